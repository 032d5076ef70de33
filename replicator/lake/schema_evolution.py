"""Apply schema changes to a lake table in one commit, even if rows must be converted.

Conversions write new columns on a branch, while readers continue with the unchanged table. One commit then publishes
the branch and replaces the old columns by the new ones.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from replicator import failpoints
from replicator.errors import CommitConflict, UnsupportedChange
from replicator.lake import sql
from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.lake.equality_rewrite import apply_equality_deletes
from replicator.lake.schema_update import add_columns, alter, is_replaced
from replicator.lake.write_strategies import BRANCH
from replicator.model.identifiers import quoted
from replicator.schema.changes import ChangeType, DropColumn, Recreate, SchemaChange

_NEW: Final = "replicator_new_"
"""Name prefix of the temporary column with converted values, until it replaces the old column."""


def is_temporary(column: str) -> bool:
    """Return whether a lake column is temporary: made by a conversion, possibly left by a crash."""
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
    """Apply `changes`; see `alter` for the arguments.

    Raises:
        UnsupportedChange: a value cannot be converted; nothing was changed.
        CommitConflict: the table was changed since it was loaded.
    """
    # Iceberg cannot read an equality-delete file once a column of it is missing.
    if any(isinstance(c, DropColumn) or is_replaced(c) for c in changes):
        planned = (table.marker(), table.schema_json())
        apply_equality_deletes(lake, table)
        if (table.marker(), table.schema_json()) != planned:
            raise CommitConflict(f"{table.namespace}.{table.name} was changed since it was loaded")
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
    failpoints.reach("after-conversion")
    alter(lake, table, changes, properties, key=key, fill=fill, replaced=replaced, branch=BRANCH)


def _check(lake: Lake, table: LakeTable, conversions: Sequence[ChangeType]) -> None:
    """Check that all values in the lake can be converted.

    Raises:
        UnsupportedChange: a value cannot be converted.
    """
    pairs = [(quoted(c.was), c.using.format(quoted(c.was))) for c in conversions]
    (lost,) = lake.spark.sql(sql.lost_values(table.sql_name, pairs)).collect()
    for change, count in zip(conversions, lost, strict=True):
        if count:
            raise UnsupportedChange(
                f"type of column {change.was} changed from {change.declared}, and {count} of its values in the lake "
                f"cannot be converted to {change.new} as the source did",
                "drop the mirror and the changelog of the table in the lake, and bootstrap the table again",
            )
