"""Notices that others rolled a lake table back, and lets its marker go back to what the rows show.

The marker is a property of the table, which a rollback does not change: it would describe changes that the rows lack.
It is therefore bound to the snapshot of its commit (`SNAPSHOT_KEY`), which must have led to the current one. Iceberg
keeps earlier versions of the metadata, and the marker that belongs to the rows is in one of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from replicator.config import CATALOG_NAME
from replicator.errors import ForeignChange, MirrorRolledBack
from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.lake.commit import Staged, publish
from replicator.lake.lineage import LineSnapshot, is_in_line, with_current_rows
from replicator.model.clock import now_ms
from replicator.model.commit_marker import MARKER_KEY, SEQUENCE_KEY, SNAPSHOT_KEY, CommitMarker
from replicator.model.recorded_rules import RULES_KEY
from replicator.model.reread import DONE_KEY
from replicator.model.restatement import RESTATED_KEY
from replicator.schema.changes import KEPT_KEY, PENDING_CLEAR_KEY, PENDING_FILLS_KEY, SCHEMA_KEY, UNFILLED_KEY
from replicator.schema.steps import STEPS_KEY

_MUST_EQUAL: Final = (
    SCHEMA_KEY,
    STEPS_KEY,
    RULES_KEY,
    RESTATED_KEY,
    DONE_KEY,
    PENDING_CLEAR_KEY,
    PENDING_FILLS_KEY,
    UNFILLED_KEY,
    KEPT_KEY,
)
"""Properties that must be the same now: if one is not, the rows also lack what no event can add again."""
_REWRITE: Final = "replace"
"""Iceberg's name of an operation that writes the same rows to other files."""


def rolled_back(lake: Lake, table: LakeTable, *, is_mirror: bool) -> ForeignChange | None:
    """Return the error for a table whose rows are not those that its marker describes; None if they are."""
    recorded, current = table.property(SNAPSHOT_KEY), table.snapshot_id
    if recorded is None or current == int(recorded):
        return None
    sequence = int(table.property(SEQUENCE_KEY) or 0)
    with lake_errors(f"snapshots of {table.namespace}.{table.name} cannot be read"):
        if is_in_line(_line(lake, table), int(recorded), sequence):
            return None
    name = f"{table.namespace}.{table.name}"
    found = f"snapshot {current}" if current is not None else "no rows"
    undo = f"CALL {CATALOG_NAME}.system.set_current_snapshot('{name}', {recorded})"
    kind = MirrorRolledBack if is_mirror else ForeignChange
    return kind(
        f"{name} was rolled back or replaced: it has {found}, which the last commit of this mirror did not lead to",
        f"undo it with Spark: {undo}; if that snapshot is gone, "
        + (
            "read the table again: replicator heal DATABASE.TABLE"
            if is_mirror
            else "drop and read the table again"
        )
        + "; then restart",
    )


def refuse_rollback(lake: Lake, table: LakeTable, *, is_mirror: bool) -> None:
    """Raise ForeignChange if the table's rows are not those that its marker describes."""
    if (error := rolled_back(lake, table, is_mirror=is_mirror)) is not None:
        raise error


def go_back(lake: Lake, table: LakeTable, is_readable: Callable[[CommitMarker], bool]) -> CommitMarker | None:
    """Give a table that was rolled back the marker that belongs to its rows, in one commit; return the marker.

    Returns None, and changes nothing, if no such marker is known, or if the log does not have the events after it,
    which `is_readable` says.

    Raises:
        FencedError, CommitConflict, LakeUnavailable: as `publish`.
    """
    base = table.marker()
    with lake_errors(f"earlier metadata of {table.namespace}.{table.name} cannot be read"):
        earlier = _marker_of_rows(lake, table)
    if base is None or earlier is None or _has_other_topic(earlier, base) or not is_readable(earlier):
        return None
    # The number of the commit does not go back: consumers know commits by it.
    marker = replace(earlier, sequence=base.sequence + 1, batch=base.batch, committed_ms=now_ms())
    publish(lake, table, base, marker, Staged())
    return marker


def _has_other_topic(earlier: CommitMarker, base: CommitMarker) -> bool:
    """Return whether a topic was recreated since an earlier marker: then its offsets are not those of the log.

    A marker from before the topic existed has no id of it.
    """
    return any(base.topic_ids.get(topic, known) != known for topic, known in earlier.topic_ids.items())


def _line(lake: Lake, table: LakeTable) -> Iterator[LineSnapshot]:
    """Yield the snapshots that led to the current one, from it to the oldest one that is known.

    A snapshot that was deleted is looked up in earlier versions of the metadata.
    """
    java = table.java
    snapshot, older = java.currentSnapshot(), _earlier_metadata(lake, table)
    while snapshot is not None:
        parent = snapshot.parentId()
        yield LineSnapshot(
            int(snapshot.snapshotId()),
            None if parent is None else int(parent),
            int(snapshot.sequenceNumber()),
            _keeps_rows(snapshot),
        )
        snapshot = None if parent is None else java.snapshot(parent) or _find(older, parent)


def _keeps_rows(snapshot: Any) -> bool:
    """Return whether a snapshot has the rows of its parent: it rewrote files, or it is empty, see `exact_commit`."""
    operation = str(snapshot.operation())
    return operation == _REWRITE or (
        operation == "append" and snapshot.summary().get("added-data-files") is None
    )


def _find(older: Iterator[Any], snapshot_id: int) -> Any:
    return next((found for m in older if (found := m.snapshot(snapshot_id)) is not None), None)


def _marker_of_rows(lake: Lake, table: LakeTable) -> CommitMarker | None:
    """Return the newest marker that described the current rows; None if it is not known."""
    snapshots = {str(known) for known in with_current_rows(_line(lake, table))}
    now = {key: table.property(key) for key in _MUST_EQUAL}
    for metadata in _earlier_metadata(lake, table):
        properties = metadata.properties()
        if properties.get(SNAPSHOT_KEY) in snapshots and properties.get(MARKER_KEY) is not None:
            same = all(properties.get(key) == value for key, value in now.items())
            return CommitMarker.from_json(properties[MARKER_KEY]) if same else None
    return None


def _earlier_metadata(lake: Lake, table: LakeTable) -> Iterator[Any]:
    """Yield the earlier versions of the table's metadata that still exist, the newest first."""
    files = list(table.java.operations().current().previousFiles())
    for entry in reversed(files):
        source = table.java.io().newInputFile(entry.file())
        if source.exists():
            yield lake.classes.metadata_parser.read(source)
