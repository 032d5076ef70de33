"""Compare the columns and the key of a mirror with those of its source table."""

from collections.abc import Iterator

from pyiceberg.table import Table

from replicator.model.table import lake_names
from replicator.model.types import LakeType
from replicator.schema.changes import SCHEMA_KEY, SchemaState
from replicator.verify.compared_table import ComparedTable
from replicator.verify.results import SchemaFinding, Severity


def compare_schema(table: ComparedTable, mirror: Table) -> Iterator[SchemaFinding]:
    """Yield what differs; a wider type and a column that the source dropped are only notes."""
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
    for name in types.keys() - set(names.values()):
        if name in retired:
            yield SchemaFinding(
                Severity.NOTE, f"the source dropped the column {name}, which the mirror keeps"
            )
        else:
            yield _different(f"the mirror has a column {name}, which the source lacks")


def _different(text: str) -> SchemaFinding:
    return SchemaFinding(Severity.DIFFERENT, text)


def _parsed(text: str) -> LakeType | None:
    try:
        return LakeType.parse(text)
    except ValueError:
        return None
