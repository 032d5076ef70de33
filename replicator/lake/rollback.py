"""Notices that others rolled a lake table back.

The marker is a property of the table, which a rollback does not change: it would describe changes that the rows lack.
It is therefore bound to the snapshot of its commit (`SNAPSHOT_KEY`), which must have led to the current one.
"""

from collections.abc import Iterator
from typing import Any

from replicator.config import CATALOG_NAME
from replicator.errors import ForeignChange, MirrorRolledBack
from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.lake.lineage import LineSnapshot, is_in_line
from replicator.model.commit_marker import SEQUENCE_KEY, SNAPSHOT_KEY


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
        )
        snapshot = None if parent is None else java.snapshot(parent) or _find(older, parent)


def _find(older: Iterator[Any], snapshot_id: int) -> Any:
    return next((found for m in older if (found := m.snapshot(snapshot_id)) is not None), None)


def _earlier_metadata(lake: Lake, table: LakeTable) -> Iterator[Any]:
    """Yield the earlier versions of the table's metadata that still exist, the newest first."""
    files = list(table.java.operations().current().previousFiles())
    for entry in reversed(files):
        source = table.java.io().newInputFile(entry.file())
        if source.exists():
            yield lake.classes.metadata_parser.read(source)
