"""The two sides of an evolution: the schema of a lake table, and that of the source."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from replicator.batch.values import BatchSchema
from replicator.lake.catalog.tables import LakeTable
from replicator.model.common import now_ms
from replicator.model.table import Column, TableSchema
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import (
    ChangeNote,
    ChangeType,
    DeleteRows,
    KeepRows,
    MoveColumn,
    RequireValues,
    SchemaState,
)
from replicator.schema.evolution.own_columns import is_temporary
from replicator.schema.evolution.plan import LakeSide, Plan, SourceSide
from replicator.schema.history.partitions import RowCondition
from replicator.schema.history.versions import SchemaVersion

_NOTHING: Final[Mapping[int, RowCondition]] = {}


def fits(table: LakeTable, columns: Mapping[str, LakeType], schema: TableSchema) -> bool:
    """Return whether a lake table can hold rows of `schema` without a change, as in nearly every batch."""
    if not schema.key and table.required_columns():
        return False
    return all(c.name in columns and columns[c.name].holds(c.type) for c in schema.columns)


def lake_side(table: LakeTable, known: SchemaState, schema: BatchSchema) -> LakeSide:
    columns = {n: t for n, t in table.engine_columns().items() if not is_temporary(n)}
    history, retired, users = schema.history, frozenset(known.retired), frozenset(table.user_columns())
    # An earlier release may have followed a version whose key does not identify rows as if it did.
    key = () if schema.source.key else table.required_columns()
    if history.versions[0].at > known.at:
        return LakeSide(columns, retired, key, users=users)
    version = history.versions[history.index_at(known.at)]
    nullable = frozenset(c.name for c in version.schema.columns if c.nullable)
    return LakeSide(columns, retired, version.schema.key or key, users, nullable)


def source_side(
    there: LakeSide,
    known: SchemaState,
    schema: BatchSchema,
    followed: Mapping[int, RowCondition] = _NOTHING,
) -> SourceSide:
    """Return the target of an evolution; `followed` maps `at` of a version to the rows that its statement removes."""
    history, old = schema.history, -1
    if history.versions[0].at <= known.at:
        old = history.index_at(known.at)
    news = history.versions[old + 1 : schema.version_index + 1]
    last = max((i for i, v in enumerate(news) if v.recreated), default=-1)
    unlogged = tuple(_unlogged(v, v.unlogged, followed.get(v.at)) for v in news[last + 1 :] if v.unlogged)
    carried = history.carry_lake(known.at, schema.version_index, there.live)
    target = schema.source if old >= 0 else _with_fills_of_first(schema, frozenset(carried.values()))
    return SourceSide(target, carried, old >= 0 and last >= 0, unlogged)


def _with_fills_of_first(schema: BatchSchema, kept: frozenset[str]) -> TableSchema:
    """Return the columns of the target for a lake table with a version that is earlier than all known ones.

    A column of the first known version that the table lacks was added in between. If the statement is not known, its
    default may have been another one.
    """
    first, columns = schema.history.versions[0], list[Column]()
    origin = {now: was for was, now in schema.history.carry(0, schema.version_index).items()}
    for column in schema.source.columns:
        defined = first.schema.column(origin.get(column.name, ""))
        if defined is None or column.name in kept:
            columns.append(column)
            continue
        is_unknown = defined.fill is not None and (first.declared or column.transform is not None)
        fill = None if is_unknown else defined.fill
        columns.append(replace(column, fill=fill, fill_unknown=is_unknown or defined.fill_unknown))
    return replace(schema.source, columns=tuple(columns))


def _unlogged(version: SchemaVersion, statement: str, rows: RowCondition | None) -> KeepRows | DeleteRows:
    position = str(version.position)
    if rows is None:
        return KeepRows(statement, version.at, position)
    return DeleteRows(statement, version.at, position, rows)


def next_state(known: SchemaState, schema: BatchSchema, found: Plan) -> SchemaState:
    version = schema.version
    at = max(known.at, version.at)
    converted = {c.name for c in found.changes if isinstance(c, ChangeType)}
    made = [c for c in found.changes if not isinstance(c, RequireValues)]
    made = [c for c in made if not (isinstance(c, MoveColumn) and c.name in converted)]
    lines = [str(c) for c in made] + [f"ignored: {c}" for c in found.ignored if known.at < version.at]
    if not lines:
        return SchemaState(at, found.retired, notes=known.notes)
    note = ChangeNote(str(version.position), version.ts_ms, now_ms(), tuple(lines), version.declared)
    return SchemaState(at, found.retired, notes=(*known.notes, note))
