"""Makes a lake table follow its source's schema: one commit, also where rows must be converted.

Conversions are made on a branch, into columns of their own, while readers go on with the table as it is. One commit
then publishes the branch and lets the new columns take the places of the old.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from replicator.apply import sql
from replicator.apply.alter import add_columns, alter, is_replaced
from replicator.apply.lake import Lake, LakeTable, lake_errors
from replicator.apply.strategy import BRANCH
from replicator.errors import UnsupportedChange
from replicator.failpoints import reach
from replicator.model.names import quoted
from replicator.model.schema_change import ChangeType, Recreate, SchemaChange

_NEW: Final = "replicator_new_"
"""Before the name of a column: its values of the new type, until they take its place."""


def is_temporary(column: str) -> bool:
    """Whether a lake's column is one that a conversion makes, or that a crash left behind."""
    return column.startswith(_NEW)


def evolve(
    lake: Lake,
    table: LakeTable,
    changes: Sequence[SchemaChange],
    properties: Mapping[str, str],
    *,
    key: Sequence[str] = (),
    fill: bool = False,
) -> None:
    """Make `changes`; see `alter`.

    Raises:
        UnsupportedChange: a value cannot be converted; nothing was changed.
    """
    conversions = [c for c in changes if isinstance(c, ChangeType)]
    rows_stay = not table.is_empty and not any(isinstance(c, Recreate) for c in changes)
    if not conversions or not rows_stay:
        alter(lake, table, changes, properties, key=key, fill=fill)
        return
    _check(lake, table, conversions)
    replaced = {c.was: _NEW + c.was for c in conversions if is_replaced(c)}
    add_columns(lake, table, {replaced[c.was]: c.new for c in conversions if c.was in replaced})
    lake.create_branch(table, BRANCH)
    values = [(replaced.get(c.was, c.was), c.using.format(quoted(c.was))) for c in conversions]
    lake.spark.sql(sql.convert(f"{table.sql_name}.`branch_{BRANCH}`", values))
    with lake_errors(f"table {table.namespace}.{table.name} cannot be read again"):
        table.java.refresh()
    reach("after-conversion")
    alter(lake, table, changes, properties, key=key, fill=fill, replaced=replaced, branch=BRANCH)


def _check(lake: Lake, table: LakeTable, conversions: Sequence[ChangeType]) -> None:
    """Raises UnsupportedChange where the lake has a value that cannot be converted."""
    pairs = [(quoted(c.was), c.using.format(quoted(c.was))) for c in conversions]
    (lost,) = lake.spark.sql(sql.lost_values(table.sql_name, pairs)).collect()
    for change, count in zip(conversions, lost, strict=True):
        if count:
            raise UnsupportedChange(
                f"column {change.was} became {change.told}, and {count} of its values in the lake cannot be "
                f"converted to {change.new} as the source did",
                "drop the table in the lake, mirror and changelog, and bootstrap it again",
            )
