"""Events in Avro, in Confluent's wire format: a zero byte, the four-byte id of the writer schema, and the event."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.avro.parser import NO_WRITER, parse, sources, writer_ids
from replicator.decode.avro.schema import Writer
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.parsed import ParsedEvents, Sources, no_sources
from replicator.model.table import TableSchema

_NOT_CONFLUENT: Final = "not in Confluent's wire format"
_NO_SCHEMA: Final = Writer("")


@dataclass(frozen=True, slots=True)
class AvroWriterSchema(WriterSchema):
    """An Avro writer schema; its id in the registry is the `fingerprint`."""

    writer: Writer = _NO_SCHEMA


@dataclass(frozen=True, slots=True)
class AvroParser:
    """The `EventParser` of Avro.

    Attributes:
        writers: schema id → writer schema, for the schemas of which source blocks can be read.
    """

    writers: Mapping[int, Writer] = field(default_factory=dict)

    def schema_ids(self, values: pa.BinaryArray) -> pa.Int64Array:
        return writer_ids(values)

    def belongs(self, values: pa.BinaryArray, writer_schema: WriterSchema) -> pa.BooleanArray:
        return pc.equal(writer_ids(values), writer_schema.fingerprint)

    def sources(self, values: pa.BinaryArray) -> Sources:
        ids = writer_ids(values)
        found = no_sources(len(values))
        for number, writer in self.writers.items():
            own = pc.equal(ids, number)
            if pc.any(own).as_py():
                read = sources(values.filter(own), writer)
                found = {name: pc.replace_with_mask(found[name], own, read[name]) for name in found}
        return found

    def parse(self, values: pa.BinaryArray, writer_schema: WriterSchema, decoding: Decoding) -> ParsedEvents:
        before = writer_schema.before_columns(for_changelog=decoding.for_changelog)
        writer = writer_schema.writer if isinstance(writer_schema, AvroWriterSchema) else _NO_SCHEMA
        return parse(values, writer, writer_schema.schema.columns, before)

    def unknown(self, values: pa.BinaryArray, decoding: Decoding) -> pa.StringArray:
        return pc.if_else(pc.equal(writer_ids(values), NO_WRITER), _NOT_CONFLUENT, decoding.undecodable)

    def unreadable(self, schema: TableSchema, decoding: Decoding) -> str:
        del schema, decoding
        return "a value that its column cannot hold"
