"""Parse change events in Avro to columns.

A value is in Confluent's wire format: a zero byte, the four-byte id of its writer schema, and the event.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.avro.columns import Cursor, Reader, Wanted
from replicator.decode.avro.schema import Writer, checked_schema
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.parsed import SOURCE_TYPES, ParsedEvents, ParsedRow, Sources, unflattened
from replicator.decode.transforms import is_blank
from replicator.decode.values import wire_type
from replicator.errors import DecodeError
from replicator.model.document import parse_json
from replicator.model.table import Column, TableSchema
from replicator.sources.kafka.schema_registry import HEADER_BYTES

NO_WRITER: Final = -1
"""Writer schema id of records that are not in Confluent's wire format."""

_NOT_CONFLUENT: Final = "not in Confluent's wire format"
_NOT_AVRO: Final = "not Avro of its writer schema"
_TEXT: Final = pa.string()
_FLAT: Final = {
    "__op": _TEXT,
    "__deleted": _TEXT,
    **{f"__source_{name}": kind for name, kind in SOURCE_TYPES.items()},
}
_SCHEMAS: Final = 256
"""Number of schemas that are kept parsed."""


@dataclass(frozen=True, slots=True)
class AvroParser:
    """The `EventParser` of Avro. The `fingerprint` of a `WriterSchema` is its id in the registry.

    Attributes:
        writers: schema id → writer schema, for the schemas of which events can be read.
    """

    writers: Mapping[int, Writer] = field(default_factory=dict)

    def schema_ids(self, values: pa.BinaryArray) -> pa.Int64Array:
        return writer_ids(values)

    def belongs(self, values: pa.BinaryArray, writer_schema: WriterSchema) -> pa.BooleanArray:
        return pc.equal(writer_ids(values), writer_schema.fingerprint)

    def sources(self, values: pa.BinaryArray) -> Sources:
        ids = writer_ids(values)
        found: Sources = {name: pa.nulls(len(values), kind) for name, kind in SOURCE_TYPES.items()}
        for number, writer in self.writers.items():
            own = pc.equal(ids, number)
            if pc.any(own).as_py():
                read = sources(values.filter(own), writer)
                found = {name: pc.replace_with_mask(found[name], own, read[name]) for name in found}
        return found

    def parse(self, values: pa.BinaryArray, writer_schema: WriterSchema, decoding: Decoding) -> ParsedEvents:
        before = writer_schema.before_columns(for_changelog=decoding.for_changelog)
        if (writer := self.writers.get(writer_schema.fingerprint)) is None:
            raise DecodeError(f"the schema {writer_schema.fingerprint} of the event cannot be read")
        return parse(values, writer, writer_schema.schema.columns, before)

    def unknown(self, values: pa.BinaryArray, decoding: Decoding) -> pa.StringArray:
        return pc.if_else(pc.equal(writer_ids(values), NO_WRITER), _NOT_CONFLUENT, decoding.undecodable)

    def unreadable(self, schema: TableSchema, decoding: Decoding) -> str:
        del schema, decoding
        return "a value that its column cannot hold"


def writer_ids(values: pa.BinaryArray) -> pa.Int64Array:
    """Return the id of each value's writer schema; `NO_WRITER` if it has none."""
    cursor = Cursor.of(values)
    words = cursor.words()
    ids = (words >> np.uint64(8)).astype(np.uint32).byteswap().astype(np.int64)
    is_confluent = (cursor.end - cursor.pos > HEADER_BYTES) & (words & np.uint64(0xFF) == 0)
    return pa.array(np.where(is_confluent, ids, NO_WRITER))


def sources(values: pa.BinaryArray, writer: Writer) -> Sources:
    """Return the source blocks of events of one writer schema; null for what is no such event."""
    if writer.flattened:
        return _source(_events(values, writer, _FLAT), "__source_")
    return _source(pc.struct_field(_events(values, writer, {"source": SOURCE_TYPES}), "source"))


def parse(
    values: pa.BinaryArray, writer: Writer, columns: Sequence[Column], before_columns: Sequence[Column]
) -> ParsedEvents:
    """Parse events of one writer schema; of the images, only these columns are read."""
    if writer.flattened:
        return _flat_events(values, writer, columns)
    wanted = {
        "before": _row_of(before_columns),
        "after": _row_of(columns),
        "source": SOURCE_TYPES,
        "op": _TEXT,
        "transaction": {"total_order": pa.int64()},
    }
    events = _events(values, writer, wanted)
    return ParsedEvents(
        pc.struct_field(events, "op"),
        _source(pc.struct_field(events, "source")),
        pc.struct_field(events, ["transaction", "total_order"]),
        _image(pc.struct_field(events, "before"), before_columns),
        _image(pc.struct_field(events, "after"), columns),
        _error(events),
    )


def _flat_events(values: pa.BinaryArray, writer: Writer, columns: Sequence[Column]) -> ParsedEvents:
    events = _events(values, writer, _FLAT | _row_of(columns))
    op, deleted = (pc.struct_field(events, name) for name in ("__op", "__deleted"))
    return unflattened(
        op, deleted, _source(events, "__source_"), _image(events, columns).values, _error(events)
    )


def _events(values: pa.BinaryArray, writer: Writer, wanted: Mapping[str, Wanted]) -> pa.StructArray:
    """Return what is wanted of events as fields; null for what is no event of the writer schema."""
    cursor = Cursor.of(values)
    cursor.advance(HEADER_BYTES)
    return _reader(writer.written).records(cursor, wanted)


@lru_cache(_SCHEMAS)
def _reader(schema: str) -> Reader:
    return Reader(checked_schema(parse_json(schema)))


def _row_of(columns: Iterable[Column]) -> dict[str, Wanted]:
    found: dict[str, Wanted] = {}
    for column in columns:
        kind = wire_type(column)
        if is_blank(column):
            continue
        found[column.written] = {f.name: f.type for f in kind} if isinstance(kind, pa.StructType) else kind
    # Arrow cannot tell the length of a struct without fields.
    return found or {"": pa.null()}


def _image(rows: pa.StructArray, columns: Iterable[Column]) -> ParsedRow:
    blank = {c.written: pa.nulls(len(rows), wire_type(c)) for c in columns if is_blank(c)}
    read = {c.written: pc.struct_field(rows, c.written) for c in columns if c.written not in blank}
    return ParsedRow(pc.is_valid(rows), blank | read)


def _source(block: pa.StructArray, prefix: str = "") -> Sources:
    return {name: pc.struct_field(block, f"{prefix}{name}") for name in SOURCE_TYPES}


def _error(events: pa.StructArray) -> pa.StringArray:
    return pc.if_else(pc.is_null(events), _NOT_AVRO, pa.scalar(None, _TEXT))
