"""Apply schema changes to a lake table in one commit, even if rows must be converted, deleted or replaced.

Conversions write new columns on a branch, and deletes are made on it, while readers continue with the unchanged table.
One commit then publishes the branch and replaces the old columns by the new ones.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator import failpoints
from replicator.errors import CommitConflict, UnknownValues
from replicator.lake import sql
from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.lake.equality_rewrite import apply_equality_deletes
from replicator.lake.schema_update import add_columns, alter, is_replaced
from replicator.lake.write_strategies import BRANCH
from replicator.model.identifiers import quoted
from replicator.model.types import spark_sql_name
from replicator.schema.changes import (
    AddColumn,
    ChangeType,
    DeleteRows,
    DropColumn,
    NarrowType,
    Recreate,
    RenameColumn,
    RetireColumn,
    SchemaChange,
    WidenType,
)
from replicator.schema.own_columns import TEMPORARY


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
        UnknownValues: a value cannot be converted, or does not fit; nothing was changed.
        CommitConflict: the table was changed since it was loaded.
    """
    rows_stay = not table.is_empty and not any(isinstance(c, Recreate) for c in changes)
    if rows_stay:
        _check_fit(lake, table, [c for c in changes if isinstance(c, NarrowType)])
    changes = [c for c in changes if not isinstance(c, NarrowType)]
    _apply_deletes(lake, table, changes)
    conversions = [c for c in changes if isinstance(c, ChangeType)]
    deletes = _needed_deletes(lake, table, changes) if rows_stay else []
    if not (conversions or deletes) or not rows_stay:
        alter(lake, table, changes, properties, key=key, fill=fill)
        return
    if conversions:
        _check(lake, table, conversions)
    replaced = {c.was: TEMPORARY + c.was for c in conversions if is_replaced(c)}
    add_columns(lake, table, {replaced[c.was]: c.new for c in conversions if c.was in replaced})
    lake.create_branch(table, BRANCH)
    branch = f"{table.sql_name}.`branch_{BRANCH}`"
    for condition in deletes:
        lake.spark.sql(sql.delete(branch, condition))
    if conversions:
        values = [(replaced.get(c.was, c.was), c.using.format(quoted(c.was))) for c in conversions]
        lake.spark.sql(sql.convert(branch, values))
    with lake_errors(f"table {table.namespace}.{table.name} cannot be read again"):
        table.java.refresh()
    failpoints.reach("after-conversion")
    alter(lake, table, changes, properties, key=key, fill=fill, replaced=replaced, branch=BRANCH)


def evolve_and_replace(
    lake: Lake,
    table: LakeTable,
    changes: Sequence[SchemaChange],
    properties: Mapping[str, str],
    rows: DataFrame,
    *,
    key: Sequence[str],
) -> None:
    """Apply `changes` and replace all rows of a mirror, which is not empty, by `rows`, in one commit.

    `rows` have the mirror's columns after the changes; of those that it lacks, the values become null.

    Raises:
        CommitConflict: the table was changed since it was loaded.
        UnsupportedChange: the table is partitioned or sorted by a column that would be dropped.
    """
    _apply_deletes(lake, table, changes)
    names = names_before(changes)
    replaced = {c.was: TEMPORARY + c.was for c in changes if isinstance(c, ChangeType) and is_replaced(c)}
    added = {c.column.name: f"{TEMPORARY}_{c.column.name}" for c in changes if isinstance(c, AddColumn)}
    types = {replaced[c.was]: c.new for c in changes if isinstance(c, ChangeType) and c.was in replaced}
    types |= {added[c.column.name]: c.column.type for c in changes if isinstance(c, AddColumn)}
    widened = {names.get(c.name, c.name): c.new for c in changes if isinstance(c, WidenType)}
    add_columns(lake, table, types, widened)
    lake.create_branch(table, BRANCH)
    # Column of the branch → column of `rows`.
    origin = {replaced.get(was, was): name for name in rows.columns for was in [names.get(name, name)]}
    origin |= {temporary: name for name, temporary in added.items()}
    written = rows.select(
        *(
            (F.col(quoted(origin[name])) if name in origin else F.lit(None))
            .cast(spark_sql_name(kind))
            .alias(name)
            for name, kind in table.columns().items()
        )
    )
    written.writeTo(f"{table.sql_name}.`branch_{BRANCH}`").overwrite(F.lit(True))
    with lake_errors(f"table {table.namespace}.{table.name} cannot be read again"):
        table.java.refresh()
    failpoints.reach("after-conversion")
    alter(lake, table, changes, properties, key=key, replaced=replaced, added=added, branch=BRANCH)


def names_before(changes: Sequence[SchemaChange]) -> dict[str, str]:
    """Return column → its name before `changes`, of columns that they rename or replace."""
    names = {c.new: c.name for c in changes if isinstance(c, RenameColumn)}
    names |= {c.kept: c.name for c in changes if isinstance(c, RetireColumn)}
    return names | {c.name: c.was for c in changes if isinstance(c, ChangeType)}


def _apply_deletes(lake: Lake, table: LakeTable, changes: Sequence[SchemaChange]) -> None:
    """Apply equality deletes: Iceberg cannot read such a file once a column of it is missing.

    Raises:
        CommitConflict: the table was changed since it was loaded.
    """
    if any(isinstance(c, DropColumn) or is_replaced(c) for c in changes):
        planned = (table.marker(), table.schema_json())
        apply_equality_deletes(lake, table)
        if (table.marker(), table.schema_json()) != planned:
            raise CommitConflict(f"{table.namespace}.{table.name} was changed since it was loaded")


def _needed_deletes(lake: Lake, table: LakeTable, changes: Sequence[SchemaChange]) -> list[str]:
    """Return the conditions of the rows to delete, if the table has any such row."""
    conditions = [c.rows.of_columns() for c in changes if isinstance(c, DeleteRows)]
    if not conditions:
        return []
    rows = lake.spark.read.table(table.sql_name)
    return [condition for condition in conditions if not rows.where(condition).isEmpty()]


def _check_fit(lake: Lake, table: LakeTable, narrowed: Sequence[NarrowType]) -> None:
    """Check that all values in the lake fit the types of the source, unless the lake still lacks the source's values.

    Raises:
        UnknownValues: a value does not fit.
    """
    lacking = {*table.pending_fills(), *table.unfilled()}
    checks = [c for c in narrowed if c.was not in lacking]
    if not checks:
        return
    conditions = [c.unfit.format(quoted(c.was)) for c in checks]
    (found,) = lake.spark.sql(sql.count_rows(table.sql_name, conditions)).collect()
    for change, count in zip(checks, found, strict=True):
        if count:
            raise UnknownValues(
                f"type of column {change.was} changed from {change.declared}, and {count} of its values in the lake "
                "do not fit: the source has changed them",
                "read the table again: replicator heal DATABASE.TABLE",
            )


def _check(lake: Lake, table: LakeTable, conversions: Sequence[ChangeType]) -> None:
    """Check that all values in the lake can be converted.

    Raises:
        UnknownValues: a value cannot be converted.
    """
    pairs = [(quoted(c.was), c.using.format(quoted(c.was))) for c in conversions]
    (lost,) = lake.spark.sql(sql.lost_values(table.sql_name, pairs)).collect()
    for change, count in zip(conversions, lost, strict=True):
        if count:
            raise UnknownValues(
                f"type of column {change.was} changed from {change.declared}, and {count} of its values in the lake "
                f"cannot be converted to {change.new} as the source did",
                "read the table again: replicator heal DATABASE.TABLE",
            )
