"""The protocol of a format of change events: JSON and Avro are its implementations.

All events between two schema changes have the same fields, whatever columns the connector leaves out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.parsed import ParsedEvents, Sources
from replicator.decode.records import Records
from replicator.errors import MissingSchema
from replicator.model.position import SourcePosition, binlog_number
from replicator.model.table import TableId, TableSchema
from replicator.schema.history.versions import SchemaHistory, TableDefinition

_FLAT: Final = "__"
"""What the names of metadata fields in flattened events begin with."""


@dataclass(frozen=True, slots=True)
class ImageFields:
    """The names of the fields in an event's row, and its position with the source's time, milliseconds or 0."""

    names: frozenset[str]
    position: SourcePosition
    ts_ms: int = 0


def image_fields(value: bytes, *, flattened: bool) -> ImageFields | None:
    """Return the fields of a JSON event without a schema; None if it has no row or no position."""
    try:
        event = json.loads(value)
        if not isinstance(event, dict):
            return None
        if flattened:
            metadata = {name: found for name, found in event.items() if name.startswith(_FLAT)}
            source = {name.removeprefix("__source_"): found for name, found in metadata.items()}
            return _fields(event.keys() - metadata.keys(), source)
        row = next((event[name] for name in ("after", "before") if isinstance(event.get(name), dict)), None)
        return (
            None
            if row is None or not isinstance(event.get("source"), dict)
            else _fields(row, event["source"])
        )
    except (ValueError, TypeError, RecursionError):
        # Decoding reports it.
        return None


def _fields(names: Any, source: Mapping[str, Any]) -> ImageFields | None:
    file, gtid = source.get("file"), source.get("gtid")
    if not isinstance(file, str) or not names:
        return None
    binlog_number(file)
    position = SourcePosition(
        file,
        int(source.get("pos") or 0),
        0,
        int(source.get("server_id") or 0),
        gtid if isinstance(gtid, str) else None,
    )
    return ImageFields(frozenset(names), position, int(source.get("ts_ms") or 0))


@dataclass(frozen=True, slots=True)
class CarriedSchema:
    """A schema that records carry or refer to, with one of these records as a sample.

    Attributes:
        schema_id: see `EventFormat.schema_id`.
        key, value: the sample. Its key is None only if no record with this schema has a key.
        position, ts_ms: of the first event, with the source's time; None and 0 if no event has a position.
    """

    schema_id: int
    key: bytes | None
    value: bytes
    position: SourcePosition | None = None
    ts_ms: int = 0

    def version_in(self, history: SchemaHistory) -> int | None:
        """Return the index of the version to which the first event belongs; None without a position."""
        return None if self.position is None else history.index_of(self.position, self.ts_ms)


class EventParser(Protocol):
    """Reads the values of records, which are no tombstones; it runs in Spark's Python workers too.

    Implementations can be pickled, and keep no state.
    """

    def schema_ids(self, values: pa.BinaryArray) -> pa.Int64Array:
        """Return the id of each event's schema; `EventFormat.no_schema` if it neither carries nor names one."""
        ...

    def belongs(self, values: pa.BinaryArray, writer_schema: WriterSchema) -> pa.BooleanArray:
        """Return whether events have the schema of `writer_schema`, whatever its range of positions."""
        ...

    def sources(self, values: pa.BinaryArray) -> Sources:
        """Return the source blocks of events of any schema; null where there is none."""
        ...

    def parse(self, values: pa.BinaryArray, writer_schema: WriterSchema, decoding: Decoding) -> ParsedEvents:
        """Parse events that belong to a writer schema."""
        ...

    def unknown(self, values: pa.BinaryArray, decoding: Decoding) -> pa.StringArray:
        """Return why events with a schema that is not in `decoding` cannot be read."""
        ...

    def unreadable(self, schema: TableSchema, decoding: Decoding) -> str:
        """Return the verdict on events with a value that its column cannot have."""
        ...


class EventFormat(Protocol):
    """Reads schemas, definitions and events of one format. Safe for several threads, one per table.

    What has a body is that of a format in which each event names its schema, and that determines every encoding.
    """

    @property
    def takes_definitions(self) -> bool:
        """Whether a definition of a table is enough to decode its events."""
        ...

    @property
    def no_schema(self) -> int:
        """The schema id of records that carry no schema."""
        ...

    def parser(self, schema_ids: Iterable[int] = ()) -> EventParser:
        """Return the parser of events; it can read the source blocks of events with one of these schemas."""
        ...

    def carries_schema(self, value: bytes) -> bool:
        """Return whether a record carries its schema or refers to it."""
        ...

    def image_fields(self, value: bytes) -> ImageFields | None:
        """Return the fields in the row of an event; None if it has none, or if the event's schema tells them."""
        del value
        return None

    def table_named_in(self, value: bytes) -> TableId | None:
        """Return the table that an event names as its source; None if it names none."""
        ...

    def definitions_in(self, value: bytes) -> list[TableDefinition]:
        """Return the definitions in a record of the schema-change topic.

        Raises:
            DecodeError: the record is not a schema change.
        """
        ...

    def writer_schema(self, table: TableId, carried: CarriedSchema, history: SchemaHistory) -> WriterSchema:
        """Read the schema that events carry or refer to. Definitions in `history` may add the source's column names.

        Raises:
            DecodeError: the schema cannot be read.
            UnsupportedChange: values would be lost or confused.
            LogUnavailable, RegistryRefused: the schema registry does not answer, or refuses the request.
        """
        ...

    def inspect_values(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], values: Iterable[bytes]
    ) -> None:
        """Learn the encoding of values from a few events without a schema, if `writer_schemas` do not determine it."""
        del table, writer_schemas, values

    def inspect_records(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], sample: bytes, records: Records
    ) -> None:
        """Learn the encoding of values in events of one schema, if the schema does not determine it.

        The schema has the id of the first of `writer_schemas`. `sample` is one of these events. `records` are
        searched for others only if the sample does not show the encoding.
        """
        del table, writer_schemas, sample, records

    def with_encodings(self, table: TableId, writer_schema: WriterSchema) -> WriterSchema:
        """Return the schema with the encodings that were learned for its events."""
        del table
        return writer_schema

    def missing_schema(self, table: TableId, reasons: Sequence[str]) -> MissingSchema:
        """Return the error for records without a readable schema; `reasons` say why schemas could not be read."""
        ...
