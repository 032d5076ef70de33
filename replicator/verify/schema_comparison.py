"""Compare the columns and the key of a mirror with those of its source table."""

from collections.abc import Iterator

from pyiceberg.table import Table

from replicator.model.table import lake_names
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import SCHEMA_KEY, SchemaState
from replicator.schema.evolution.own_columns import COLUMNS_KEY, OwnColumns
from replicator.verify.compared_table import ComparedTable
from replicator.verify.results import SchemaFinding, Severity


def compare_schema(table: ComparedTable, mirror: Table) -> Iterator[SchemaFinding]:
    """Yield what differs; a wider type and a column that the source dropped are only notes."""
    yield from _compare_key(table, mirror)
    types = {field.name: str(field.field_type) for field in mirror.schema().fields}
    for column in table.columns:
        found = types.get(column.lake)
        if found is None:
            yield _different(f"the mirror has no column {column.source}")
        elif (known := _parsed(found)) != column.type:
            text = f"{column.source} is {column.declared}, which is {column.type} in the lake, and has the type {found}"
            wider = known is not None and known.holds(column.type)
            yield SchemaFinding(Severity.NOTE if wider else Severity.DIFFERENT, text)
    names = lake_names(c.column.name for c in table.source.columns)
    for name in (*table.excluded, *table.masked):
        if name in table.excluded and names[name] in types:
            yield _different(f"the mirror has the column {name}, which a column rule excludes")
        elif name in table.masked and names[name] not in types:
            yield _different(f"the mirror has no column {name}")
    state = mirror.properties.get(SCHEMA_KEY)
    retired = set() if state is None else set(SchemaState.from_json(state).retired)
    own = mirror.properties.get(COLUMNS_KEY)
    schema_json = mirror.schema().model_dump_json()
    users = set() if own is None else {f.name for f in OwnColumns.from_json(own).users(schema_json)}
    for name in types.keys() - set(names.values()):
        if name in users:
            yield SchemaFinding(Severity.NOTE, f"others added the column {name} to the mirror")
        elif name in retired:
            yield SchemaFinding(
                Severity.NOTE, f"the source dropped the column {name}, which the mirror keeps"
            )
        else:
            yield _different(f"the mirror has a column {name}, which the source lacks")


def mirror_key(mirror: Table) -> tuple[str, ...]:
    """Return the columns by which a mirror identifies rows. Floats are missing: Iceberg does not allow them there."""
    schema = mirror.schema()
    return tuple(field.name for field in schema.fields if field.field_id in schema.identifier_field_ids)


def _compare_key(table: ComparedTable, mirror: Table) -> Iterator[SchemaFinding]:
    floats = {field.name for field in mirror.schema().fields if str(field.field_type) in ("float", "double")}
    ours, theirs = set(mirror_key(mirror)), set(table.declared_key) - floats
    if ours != theirs:
        sides = [", ".join(sorted(key)) or "no key" for key in (theirs, ours)]
        text = f"rows are identified by {sides[0]} in the source, and by {sides[1]} in the mirror"
        # Without a key, a mirror finds rows by all their values.
        yield SchemaFinding(Severity.DIFFERENT if ours else Severity.NOTE, text)


def _different(text: str) -> SchemaFinding:
    return SchemaFinding(Severity.DIFFERENT, text)


def _parsed(text: str) -> LakeType | None:
    try:
        return LakeType.parse(text)
    except ValueError:
        return None
