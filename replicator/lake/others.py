"""Notice what others did to a lake table: own it, change its columns, roll it back.

Properties of a table show that it is a mirror's: the source table and the mirror's name since its creation, the commit
marker since the first commit. Tables of earlier versions may lack the first two.

The engine records the field ids of the columns that it made (`OwnColumns`). All other columns are users' columns: the
engine never changes or drops one, and writes null to it in new rows.

The marker is a property of the table, which a rollback does not change: it would describe changes that the rows lack.
It is therefore bound to the snapshot of its commit (`SNAPSHOT_KEY`), which must have led to the current one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from replicator.config import CATALOG_NAME
from replicator.errors import ForeignChange, ForeignColumns, ForeignTable, MirrorRolledBack
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.model.commit_marker import MARKER_KEY, SEQUENCE_KEY, SNAPSHOT_KEY, CommitMarker
from replicator.model.common import quoted
from replicator.model.table import MIRROR_KEY, SOURCE_KEY
from replicator.schema.evolution.changes import SCHEMA_KEY
from replicator.schema.evolution.own_columns import ColumnDifferences


@dataclass(frozen=True, slots=True)
class LineSnapshot:
    """A snapshot of a lake table.

    Attributes:
        id, parent: its id, and that of the snapshot before it; no parent if it is the first of its line.
        sequence: Iceberg's sequence number, which ascends with each commit to the table.
    """

    id: int
    parent: int | None
    sequence: int


def is_in_line(line: Iterable[LineSnapshot], snapshot_id: int, sequence: int) -> bool:
    """Return whether a snapshot led to the current one; `line` has the known snapshots, the current one first.

    A line whose older part was deleted may contain every older snapshot. No more of `line` is taken than necessary.
    """
    known = None
    for known in line:
        if known.id == snapshot_id:
            return True
        if known.sequence <= sequence:
            return False
    return known is not None and known.parent is not None


_MARKS: Final = (SOURCE_KEY, SCHEMA_KEY, MARKER_KEY)
_HINT: Final = "rename that table, or choose another lake.namespace; then start the mirror again"


def foreign(table: LakeTable, mirror: str) -> ForeignTable | None:
    """Return why `table` is not the mirror's; None if it is."""
    # The marker first: nearly every table has one, and each property is a call of Java.
    marker = table.property(MARKER_KEY)
    owner = CommitMarker.from_json(marker).mirror if marker is not None else table.property(MIRROR_KEY)
    if owner is not None:
        return None if owner == mirror else another_mirrors(table, owner, mirror)
    if any(table.property(key) is not None for key in _MARKS):
        return None
    return ForeignTable(
        f"{table.namespace}.{table.name} exists, and no mirror made it; it was not changed", _HINT
    )


def another_mirrors(table: LakeTable, owner: str, mirror: str) -> ForeignTable:
    """Return the error for a table of the mirror `owner`."""
    return ForeignTable(
        f"{table.namespace}.{table.name} belongs to the mirror {owner!r}, and not to {mirror!r}; it was not changed",
        _HINT,
    )


def refuse_foreign(table: LakeTable, mirror: str) -> None:
    """Raise ForeignTable unless `table` is the mirror's."""
    if (error := foreign(table, mirror)) is not None:
        raise error


_RELOAD = "run: replicator reload"


def refuse_changed_columns(
    table: LakeTable, found: ColumnDifferences, *, is_mirror: bool, restated: bool = False
) -> None:
    """Check that the columns of `table` differ in nothing that the engine cannot follow from those that it made.

    If the table is `restated`, all its rows are replaced, and dropped columns are made again.

    Raises:
        ForeignColumns: they do.
    """
    changes = [*_changes(found), *([] if restated else [f"dropped {name}" for name in found.dropped])]
    if changes:
        raise ForeignColumns(
            f"others changed the columns of {table.namespace}.{table.name}: {', '.join(changes)}",
            "; ".join(_steps(table, found, is_mirror=is_mirror)),
        )


def refuse_loss(table: LakeTable, doing: str, *, otherwise: str | None = None) -> None:
    """Check that `table` has no users' columns, whose values would be lost by `doing`.

    `otherwise` is another way, for the hint.

    Raises:
        ForeignColumns: it has some.
    """
    users = table.user_columns()
    if not users or table.is_empty:
        return
    names = ", ".join(users)
    raise ForeignColumns(
        f"{doing} would remove values of the column {names} of {table.namespace}.{table.name}, which others added",
        f"copy its values to a table of your own; ALTER TABLE {table.sql_name} DROP COLUMNS "
        f"({', '.join(map(quoted, users))}); then {otherwise or _RELOAD}",
    )


def _changes(found: ColumnDifferences) -> list[str]:
    renamed = ", ".join(f"{was} to {now}" for was, now in found.renamed)
    return [
        *([f"renamed {renamed}"] if renamed else []),
        *(f"changed the type of {name} from {was} to {now}" for name, was, now in found.retyped),
        *(f"required {name}" for name in found.required),
        *(f"added {name} {kind}" for name, kind in found.unwritable),
    ]


def _steps(table: LakeTable, found: ColumnDifferences, *, is_mirror: bool) -> Sequence[str]:
    """Return the next steps, the last one of which lets the table continue."""
    alter, taken = f"ALTER TABLE {table.sql_name}", {now for _, now in found.renamed}
    steps = []
    for was, now in found.renamed:
        if was in taken:
            steps.append(f"give {now} its name {was} again")
        else:
            steps.append(f"{alter} RENAME COLUMN {quoted(now)} TO {quoted(was)}")
    steps += [f"{alter} ALTER COLUMN {quoted(name)} DROP NOT NULL" for name in found.required]
    steps += [f"{alter} DROP COLUMN {quoted(name)}" for name, _ in found.unwritable]
    lost = [*found.dropped, *(name for name, _, _ in found.retyped)]
    if not lost:
        return [*steps, _RELOAD]
    if is_mirror and not found.retyped:
        return [*steps, "read the table again: replicator heal DATABASE.TABLE"]
    return [
        *steps,
        f"the values of {', '.join(lost)} cannot be restored: drop the table (replicator drop) and bootstrap it again",
    ]


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
