"""Apply schema changes to a lake table in one commit, even if rows must be deleted or replaced.

The rows are deleted or written on a branch, while readers continue with the unchanged table. One commit then publishes
the branch and replaces columns that got another type by new ones.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator import failpoints
from replicator.errors import CommitConflict, UnknownValues
from replicator.lake.catalog.schema_update import add_columns, alter
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.lake.strategies.changes import BRANCH, refresh
from replicator.lake.strategies.equality import apply_equality_deletes
from replicator.model.common import quoted
from replicator.model.types import LakeType, spark_sql_name
from replicator.schema.evolution.changes import (
    AddColumn,
    ChangeType,
    DeleteRows,
    DropColumn,
    Recreate,
    RenameColumn,
    RequireValues,
    RetireColumn,
    SchemaChange,
    WidenType,
)
from replicator.schema.evolution.own_columns import TEMPORARY


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
        UnknownValues: a column that must have values lacks some; nothing was changed.
        CommitConflict: the table was changed since it was loaded.
    """
    rows_stay = not table.is_empty and not any(isinstance(c, Recreate) for c in changes)
    if rows_stay:
        _check_values(lake, table, changes)
    _apply_deletes(lake, table, changes)
    deletes = _needed_deletes(lake, table, changes) if rows_stay else []
    if not deletes:
        alter(lake, table, changes, properties, key=key, fill=fill)
        return
    lake.create_branch(table, BRANCH)
    for condition in deletes:
        lake.spark.sql(f"DELETE FROM {table.sql_name}.`branch_{BRANCH}` WHERE {condition}")
    refresh(table)
    failpoints.reach("after-conversion")
    alter(lake, table, changes, properties, key=key, fill=fill, branch=BRANCH)


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
    replaced = {c.was: TEMPORARY + c.was for c in changes if isinstance(c, ChangeType)}
    added = {c.column.name: f"{TEMPORARY}_{c.column.name}" for c in changes if isinstance(c, AddColumn)}
    types = {replaced[c.was]: c.new for c in changes if isinstance(c, ChangeType) and c.was in replaced}
    types |= {added[c.column.name]: c.column.type for c in changes if isinstance(c, AddColumn)}
    widened = {names.get(c.name, c.name): c.new for c in changes if isinstance(c, WidenType)}
    add_columns(lake, table, types, widened)
    lake.create_branch(table, BRANCH)
    # Column of the branch → column of `rows`.
    origin = {replaced.get(was, was): name for name in rows.columns for was in [names.get(name, name)]}
    origin |= {temporary: name for name, temporary in added.items()}
    required = table.required_columns()
    written = rows.select(
        *(
            (F.col(quoted(origin[name])) if name in origin else _nothing(kind, required=name in required))
            .cast(spark_sql_name(kind))
            .alias(name)
            for name, kind in table.columns().items()
        )
    )
    written.writeTo(f"{table.sql_name}.`branch_{BRANCH}`").overwrite(F.lit(True))
    refresh(table)
    failpoints.reach("after-conversion")
    alter(lake, table, changes, properties, key=key, replaced=replaced, added=added, branch=BRANCH)


def _nothing(kind: LakeType, *, required: bool) -> SparkColumn:
    """Return a value for a column that the commit drops: null, unless the column is required, as a key is."""
    value = "1970-01-01" if kind.name.startswith(("date", "timestamp")) else "0"
    return F.lit(value if required else None)


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
    if any(isinstance(c, DropColumn | ChangeType) for c in changes):
        planned = (table.marker(), table.schema_json())
        apply_equality_deletes(lake, table)
        if (table.marker(), table.schema_json()) != planned:
            raise CommitConflict(f"{table.namespace}.{table.name} was changed since it was loaded")


def _needed_deletes(lake: Lake, table: LakeTable, changes: Sequence[SchemaChange]) -> list[str]:
    """Return the conditions of the rows to delete, if the table has any such row."""
    conditions = [c.rows.of_columns() for c in changes if isinstance(c, DeleteRows)]
    if not conditions:
        return []
    rows = rows_of(lake, table)
    return [condition for condition in conditions if not rows.where(condition).isEmpty()]


def _check_values(lake: Lake, table: LakeTable, changes: Sequence[SchemaChange]) -> None:
    """Check that columns which cannot be NULL any more have values, unless the lake still lacks the source's.

    Raises:
        UnknownValues: a column lacks a value.
    """
    lacking = {*table.pending_fills(), *table.unfilled()}
    required = [c for c in changes if isinstance(c, RequireValues) and c.was not in lacking]
    rows = rows_of(lake, table)
    for change in required:
        if not rows.where(f"{quoted(change.was)} IS NULL").isEmpty():
            raise UnknownValues(
                f"column {change.name} is NOT NULL now, and NULLs in the lake are other values in the source",
                "read the table again: replicator heal DATABASE.TABLE",
            )
