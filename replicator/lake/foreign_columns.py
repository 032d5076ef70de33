"""Notices what others changed in the columns of a lake table, and refuses what would undo it or lose its values.

The engine records the field ids of the columns that it made (`OwnColumns`). All other columns are users' columns: the
engine never changes or drops one, and writes null to it in new rows.
"""

from collections.abc import Sequence

from replicator.errors import ForeignColumns
from replicator.lake.catalog import LakeTable
from replicator.model.common import quoted
from replicator.schema.own_columns import ColumnDifferences

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
