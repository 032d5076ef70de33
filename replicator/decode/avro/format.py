"""Change events in Avro, in Confluent's wire format."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from replicator.decode.avro.parser import NO_WRITER, AvroParser
from replicator.decode.avro.schema import Writer, key_names, parse_writer_schema, read_record, source_names
from replicator.decode.connect_schema import table_of
from replicator.decode.decoding import WriterSchema
from replicator.decode.event_format import CarriedSchema, EventFormat
from replicator.errors import DecodeError, MissingSchema, UnknownWriter, UnsupportedChange
from replicator.model.document import Document
from replicator.model.table import TableId, TableSchema
from replicator.schema.history.declared import definitions_of
from replicator.schema.history.versions import SchemaHistory, TableDefinition
from replicator.sources.kafka.schema_registry import HEADER_BYTES, WriterSchemas, writer_id


@dataclass(frozen=True, slots=True)
class AvroFormat(EventFormat):
    """The `EventFormat` of Avro. An event names its schema by the id in its header.

    Attributes:
        schemas: the writer schemas by id.
        refuse_defaults: whether to refuse schemas with nullable columns that have a default, because NULLs are lost.
        flattened: whether events are rows and not envelopes; see `model.events`.
    """

    takes_definitions: ClassVar[bool] = False
    no_schema: ClassVar[int] = NO_WRITER

    schemas: WriterSchemas
    refuse_defaults: bool = False
    flattened: bool = False

    def parser(self, schema_ids: Iterable[int] = ()) -> AvroParser:
        return AvroParser(self._writers(schema_ids))

    def carries_schema(self, value: bytes) -> bool:
        return writer_id(value) is not None

    def table_named_in(self, value: bytes) -> TableId | None:
        try:
            return table_of(Document(self._record(value)).object("source"))
        except DecodeError:
            return None

    def definitions_in(self, value: bytes) -> list[TableDefinition]:
        return definitions_of(self._record(value))

    def writer_schema(self, table: TableId, carried: CarriedSchema, history: SchemaHistory) -> WriterSchema:
        read, columns = parse_writer_schema(self._text(carried.schema_id), flattened=self.flattened)
        if self.refuse_defaults and read.defaulted:
            raise UnsupportedChange(
                f"NULLs in {', '.join(read.defaulted)} of {table} arrive as the columns' defaults, "
                "because of Apicurio's converter",
                "make the columns NOT NULL or drop their defaults; or take JSON, or Confluent's converter and "
                'registry; or allow it: allow_lossy = ["value.converter"] in [log]',
            )
        columns = source_names(columns, _declared_names(history, carried.version_in(history)))
        key = key_names(self._text(_schema_id(carried.key)), columns) if carried.key else ()
        schema = TableSchema(columns, key).without_reserved()
        return WriterSchema(schema, carried.schema_id)

    def missing_schema(self, table: TableId, reasons: Sequence[str]) -> MissingSchema:
        if reasons:
            return UnknownWriter(
                f"events of {table} cannot be read: {'; '.join(reasons)}",
                "does log.registry_url fit the connector's converters? replicator check",
            )
        return MissingSchema(
            f"no event of {table} is in Confluent's wire format",
            "does log.format fit the connector's converters? replicator check",
        )

    def _writers(self, ids: Iterable[int]) -> dict[int, Writer]:
        """Return id → writer schema, for the ids of schemas of change events."""
        found: dict[int, Writer] = {}
        for number in ids:
            with contextlib.suppress(DecodeError):
                found[number], _ = parse_writer_schema(self._text(number), flattened=self.flattened)
        return found

    def _record(self, value: bytes) -> dict[str, Any]:
        """Read one record without Spark. Raises DecodeError if it cannot be read."""
        return read_record(self._text(_schema_id(value)), value[HEADER_BYTES:])

    def _text(self, schema_id: int) -> str:
        text = self.schemas.schema(schema_id)
        if text is None:
            raise DecodeError(f"the registry has no schema {schema_id}")
        return text


def _schema_id(data: bytes) -> int:
    """Return the schema id in the header of a key or value. Raises DecodeError if there is none."""
    number = writer_id(data)
    if number is None:
        raise DecodeError("not in Confluent's wire format")
    return number


def _declared_names(history: SchemaHistory, here: int | None) -> list[list[str]]:
    """Return the source's column names in each declared version: version `here` first, then the newest first."""
    declared = [(i, v) for i, v in enumerate(history.versions) if v.declared]
    ordered = sorted(declared, key=lambda found: (found[0] != here, -found[0]))
    return [[c.source_name.name for c in version.schema.columns] for _, version in ordered]
