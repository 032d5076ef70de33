"""Plans additive evolution: added columns and types that Iceberg can widen in place."""

from collections.abc import Mapping
from dataclasses import replace

from replicator.errors import UnsupportedChange
from replicator.model.schema_change import AddColumn, SchemaChange, WidenType
from replicator.model.table import Column, TableSchema
from replicator.model.types import LakeType


def plan(lake: Mapping[str, LakeType], source: TableSchema) -> tuple[SchemaChange, ...]:
    """The changes that make a lake table with columns `lake` (in order) hold rows of `source`.

    Columns that only the lake has stay, and are null in new rows. Planning again after the changes were made
    gives no changes.

    Raises:
        UnsupportedChange: a column changed to a type that its old values cannot be promoted to.
    """
    changes: list[SchemaChange] = []
    previous: str | None = None
    for column in source.columns:
        present = lake.get(column.name)
        if present is None:
            changes.append(AddColumn(column, previous))
        elif not present.holds(column.type):
            changes.append(_widening(column, present))
        previous = column.name
    return tuple(changes)


def _widening(column: Column, present: LakeType) -> WidenType:
    if column.type.widens(present):
        return WidenType(column.name, present, column.type)
    raise UnsupportedChange(
        f"column {column.name} is {present} in the lake and now {column.type} in the source, "
        "and Iceberg cannot change the one into the other",
        "drop the table in the lake and bootstrap it again",
    )


def target_schema(lake: Mapping[str, LakeType], source: TableSchema) -> TableSchema:
    """What the lake table will have after `plan`: its own columns first, in its order, then the new ones.

    A lake type that is already wider than the source's stays.
    """
    of_source = {c.name: c for c in source.columns}
    kept = [
        _kept(of_source[name], present) if name in of_source else Column(name, present)
        for name, present in lake.items()
    ]
    added = [c for c in source.columns if c.name not in lake]
    return TableSchema((*kept, *added), source.key)


def _kept(column: Column, present: LakeType) -> Column:
    return replace(column, type=present) if present.holds(column.type) else column


def merged(schemas: list[TableSchema]) -> TableSchema:
    """One schema that holds the rows of all `schemas` (oldest first): the newest, and what older ones had besides.

    Raises:
        UnsupportedChange: a column's types cannot be promoted to one another.
    """
    result = schemas[0]
    for newer in schemas[1:]:
        lake = {c.name: c.type for c in result.columns}
        plan(lake, newer)
        known = {c.name: c for c in result.columns}
        target = target_schema(lake, newer)
        # What only an older schema has keeps what is known of it, its fill above all.
        columns = tuple(c if newer.column(c.name) else known[c.name] for c in target.columns)
        result = TableSchema(columns, target.key)
    return result
