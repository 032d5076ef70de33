"""Give Iceberg's schemas to Arrow, with the field ids by which Iceberg's readers identify the columns of a file."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.arrow_types import arrow_type
from replicator.model.types import LakeType

_FIELD_ID: Final = b"PARQUET:field_id"


@lru_cache(1024)
def arrow_schema(schema_json: str) -> pa.Schema:
    """Return an Iceberg schema as Arrow's, with the field ids that Iceberg's readers need."""
    return pa.schema([_arrow_field(field) for field in json.loads(schema_json)["fields"]])


def field_id(field: pa.Field) -> int:
    """Return the id of a field of `arrow_schema`, or of a file that Iceberg can read."""
    return int((field.metadata or {})[_FIELD_ID])


def column_of(rows: pa.Table, number: int) -> pa.ChunkedArray | None:
    """Return the values of the field with an id, which may be a field of a struct; None if there is none."""
    return next((column for field, column in _fields(rows) if field_id(field) == number), None)


def _fields(rows: pa.Table) -> Iterator[tuple[pa.Field, pa.ChunkedArray]]:
    """Yield the fields of a table and of its structs, with their values."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        yield field, column
        if pa.types.is_struct(field.type):
            yield from ((child, pc.struct_field(column, i)) for i, child in enumerate(field.type))


def _arrow_field(field: Mapping[str, Any]) -> pa.Field:
    return _identified(field["name"], field["type"], field["id"], required=field["required"])


def _identified(name: str, kind: Any, number: int, *, required: bool) -> pa.Field:
    return pa.field(name, _arrow_type(kind), not required, {_FIELD_ID: str(number).encode()})


def _arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type of a type in Iceberg's JSON; only of those that the engine writes."""
    if isinstance(kind, str):
        return arrow_type(LakeType.parse(kind))
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    element = _identified("element", kind["element"], kind["element-id"], required=kind["element-required"])
    return pa.list_(element)
