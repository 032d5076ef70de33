"""Read events in Avro, in Confluent's wire format: their writer schemas tell the names and types of their fields.

Lists and maps become JSON text, as in JSON events.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.arrow_types import arrow_type
from replicator.decode.avro.columns import Cursor, Reader, Wanted, scattered
from replicator.decode.avro.parser import NO_WRITER, writer_ids
from replicator.decode.avro.schema import checked_schema
from replicator.decode.values import cast_values, of_binary_decimals
from replicator.errors import DecodeError
from replicator.log_tables.parsed import ParsedEvents, Values
from replicator.model.document import parse_json
from replicator.model.shapes import Path, Shape, merged
from replicator.model.table import Column
from replicator.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    LakeType,
)
from replicator.model.types import decimal as decimal_type
from replicator.sources.kafka.schema_registry import HEADER_BYTES

Writers: TypeAlias = Mapping[int, str | None]
"""Id of a writer schema → the schema; None if it cannot be used."""

_NOT_AVRO: Final = "not Avro of its writer schema"
_SIMPLE: Final = {
    "boolean": BOOLEAN,
    "int": INT,
    "long": LONG,
    "float": LakeType("float"),
    "double": DOUBLE,
    "string": STRING,
    "enum": STRING,
    "bytes": BINARY,
    "fixed": BINARY,
}
_LOGICAL: Final = {
    "date": (DATE, 1),
    "timestamp-millis": (TIMESTAMPTZ, 1000),
    "timestamp-micros": (TIMESTAMPTZ, 1),
    "local-timestamp-millis": (TIMESTAMP, 1000),
    "local-timestamp-micros": (TIMESTAMP, 1),
}
"""Logical type → the type of a column, and what its numbers are multiplied with."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """How a field that is not nested is read.

    Attributes:
        kind: the type of a column that is made for it.
        wanted: the type in which it is read.
        factor: what its numbers are multiplied with; 0 if they are no times.
    """

    kind: LakeType
    wanted: pa.DataType
    factor: int = 0


_Fields: TypeAlias = Mapping[str, "_Leaf | _Fields"]


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer schema: its reader, and its fields."""

    reader: Reader
    fields: Any


@lru_cache(256)
def writer_of(text: str) -> Writer:
    """Return a writer schema.

    Raises:
        DecodeError: the schema is no record, or cannot be read within limits.
    """
    schema = checked_schema(parse_json(text))
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise DecodeError("the Avro schema is no record")
    return Writer(Reader(schema), _fields(schema, schema["__named_schemas"]))


def _fields(record: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    found = {field["name"]: _field(field["type"], named) for field in record["fields"]}
    return {name: field for name, field in found.items() if field is not None}


def _field(kind: Any, named: Mapping[str, Any]) -> Any:
    """Return how a field is read; None if it is always null."""
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        if len(branches) > 1:
            return _Leaf(STRING, pa.string())
        kind = branches[0] if branches else "null"
    if kind == "null":
        return None
    if isinstance(kind, str):
        kind = named.get(kind, {"type": kind})
    if not isinstance(kind["type"], str) or kind["type"] in named:
        return _field(kind["type"], named)
    return _fields(kind, named) if kind["type"] in ("record", "error") else _leaf_of(kind)


def _leaf_of(kind: Mapping[str, Any]) -> _Leaf:
    name, logical = kind["type"], kind.get("logicalType")
    if logical in _LOGICAL and name in ("int", "long"):
        found, factor = _LOGICAL[logical]
        return _Leaf(found, pa.int64() if name == "long" else pa.int32(), factor)
    if logical == "decimal" and name in ("bytes", "fixed"):
        return _Leaf(decimal_type(int(kind["precision"]), int(kind.get("scale", 0))), pa.binary())
    if name in _SIMPLE:
        return _Leaf(_SIMPLE[name], arrow_type(_SIMPLE[name]))
    return _Leaf(STRING, pa.string())


def shape_of(text: str, *, nested: bool) -> Shape:
    """Return the columns for the fields of a writer schema. Raises DecodeError."""
    return _shape(writer_of(text).fields, nested=nested)


def _shape(fields: Mapping[str, Any], *, nested: bool) -> Shape:
    found: dict[str, LakeType | Shape] = {}
    for name, field in fields.items():
        if isinstance(field, _Leaf):
            found[name] = field.kind
        else:
            found[name] = (_shape(field, nested=True) if nested else {}) or STRING
    return found


def unread_writers(values: pa.BinaryArray, known: Writers) -> frozenset[int]:
    """Return the ids of writer schemas that are not known."""
    return frozenset(pc.unique(writer_ids(_present(values)[0])).to_pylist()) - {NO_WRITER, *known}


def shape_in(values: pa.BinaryArray, writers: Writers, *, nested: bool) -> Shape:
    """Return all fields that the writer schemas of events have."""
    shapes = [shape_of(text, nested=nested) for _, text, _ in _by_writer(values, writers) if text is not None]
    return reduce(merged, shapes, {})


def having(values: pa.BinaryArray, writers: Writers, places: Sequence[Path]) -> pa.BooleanArray:
    """Return which events have a writer schema with one of some fields."""
    mask = np.zeros(len(values), np.bool_)
    for _, text, rows in _by_writer(values, writers):
        fields = {} if text is None else writer_of(text).fields
        mask[rows] = any(_at(fields, path) is not None for path in places)
    return pa.array(mask)


def _at(fields: Any, path: Path) -> Any:
    """Return the field at a place; None if there is none."""
    for name in path:
        fields = fields.get(name) if isinstance(fields, Mapping) else None
    return fields


def parse(values: pa.BinaryArray, shape: Shape, writers: Writers) -> ParsedEvents:
    """Return the fields of events in `shape`, in the types of its columns or as text."""
    broken, parts, order = np.zeros(len(values), np.bool_), [], []
    for _, text, rows in _by_writer(values, writers):
        if text is None:
            broken[rows] = True
            continue
        found = _read(values.take(pa.array(rows)), writer_of(text), shape)
        broken[rows] = found.is_null().to_numpy(zero_copy_only=False)
        parts.append(found)
        order.append(rows)
    rows = scattered(parts, order, len(values), _row_type(shape))
    fields, _ = _values(rows, shape)
    return ParsedEvents(fields, {}, pa.array(broken), _NOT_AVRO)


def _present(values: pa.BinaryArray) -> tuple[pa.BinaryArray, Any]:
    places = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return values.take(pa.array(places)), places


def _by_writer(values: pa.BinaryArray, writers: Writers) -> Iterator[tuple[int, str | None, Any]]:
    """Divide events, by their indices, by their writer schemas."""
    present, places = _present(values)
    ids = writer_ids(present).to_numpy()
    for number in np.unique(ids):
        yield int(number), writers.get(int(number)), places[ids == number]


def _read(values: pa.BinaryArray, writer: Writer, shape: Shape) -> pa.StructArray:
    """Return events of one writer schema in the types of the columns; null for those that do not fit."""
    cursor = Cursor.of(values)
    cursor.advance(HEADER_BYTES)
    rows = writer.reader.records(cursor, _wanted(shape, writer.fields) or {"": pa.null()})
    return _converted(rows, shape, writer.fields)


def _wanted(shape: Shape, fields: Mapping[str, Any]) -> dict[str, Wanted]:
    found: dict[str, Wanted] = {}
    for name, kind in shape.items():
        field = fields.get(name)
        if isinstance(field, _Leaf):
            found[name] = field.wanted
        elif field is not None and isinstance(kind, LakeType):
            found[name] = pa.string()
        elif field is not None and not isinstance(kind, LakeType):
            found[name] = _wanted(kind, field) or {"": pa.null()}
    return found


def _converted(rows: pa.StructArray, shape: Shape, fields: Mapping[str, Any]) -> pa.StructArray:
    """Return rows with the fields of a shape; a value that a column cannot hold makes its event null."""
    columns, lost = [], np.zeros(len(rows), np.bool_)
    for name, kind in shape.items():
        field, wanted = fields.get(name), _type(kind)
        if field is None:
            columns.append(pa.nulls(len(rows), wanted))
            continue
        values = pc.struct_field(rows, name)
        if isinstance(field, Mapping) and isinstance(kind, Mapping):
            found = _converted(values, kind, field)
        elif isinstance(kind, LakeType):
            found = _leaf(values, field, kind)
        else:
            found = pa.nulls(len(rows), wanted)
        lost |= pc.and_(values.is_valid(), found.is_null()).to_numpy(zero_copy_only=False)
        columns.append(found)
    mask = rows.is_null().to_numpy(zero_copy_only=False) | lost
    return pa.StructArray.from_arrays(columns, fields=list(_row_type(shape)), mask=pa.array(mask))


def _leaf(values: pa.Array, field: Any, kind: LakeType) -> pa.Array:
    """Return values in the type of a column; null for those that it cannot hold."""
    if isinstance(field, _Leaf):
        if field.factor:
            values = _times(values, field)
        elif field.kind.name == "decimal" and field.wanted == pa.binary():
            values = of_binary_decimals(values, Column("", field.kind))
    wanted = arrow_type(kind)
    if values.type == wanted:
        return values
    if kind == STRING:
        return values.cast(pa.string())
    return cast_values(values, wanted)


def _times(values: pa.Array, field: _Leaf) -> pa.Array:
    if field.kind == DATE:
        return values.cast(pa.int32()).cast(pa.date32())
    return pc.multiply(values.cast(pa.int64()), field.factor).cast(arrow_type(field.kind))


def _type(kind: LakeType | Shape) -> pa.DataType:
    return arrow_type(kind) if isinstance(kind, LakeType) else _row_type(kind)


def _row_type(shape: Shape) -> pa.StructType:
    return pa.struct([pa.field(name, _type(kind)) for name, kind in shape.items()])


def _values(rows: pa.StructArray, shape: Shape) -> tuple[dict[str, Values], pa.BooleanArray]:
    fields: dict[str, Values] = {}
    for name, kind in shape.items():
        part = pc.struct_field(rows, name)
        if isinstance(kind, LakeType):
            fields[name] = part
        else:
            inner, present = _values(part, kind)
            fields[name] = (present, inner)
    return fields, rows.is_valid()
