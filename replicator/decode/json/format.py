"""Change events in JSON, with or without their schemas."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from replicator.decode.connect_schema import source_table, table_schema
from replicator.decode.decoding import WriterSchema
from replicator.decode.event_format import CarriedSchema, EventFormat, ImageFields, image_fields
from replicator.decode.json.decimals import (
    combined,
    decimal_encoding_of,
    decisive_events,
    undecided,
    undecided_in,
    with_encoding,
)
from replicator.decode.json.parser import NO_SCHEMA, SCHEMA_START, JsonParser, schema_prefix
from replicator.decode.records import Records
from replicator.errors import MissingSchema
from replicator.model.table import Column, TableId
from replicator.model.types import Encoding
from replicator.schema.history.declared import table_definitions
from replicator.schema.history.versions import SchemaHistory, TableDefinition


class JsonFormat(EventFormat):
    """The `EventFormat` of JSON. An event's schema is identified by its fingerprint.

    Events without a schema are decoded with the declared version at their position. With `flattened`, events are
    rows and not envelopes; see `model.events`. The encoding of decimals is learned for each table and fingerprint.
    """

    takes_definitions: Final = True
    no_schema: Final = NO_SCHEMA

    def __init__(self, *, flattened: bool = False) -> None:
        self._flattened = flattened
        self._encodings: dict[tuple[TableId, int], Encoding] = {}

    def parser(self, schema_ids: Iterable[int] = ()) -> JsonParser:
        del schema_ids
        return JsonParser(self._flattened)

    def carries_schema(self, value: bytes) -> bool:
        return value.startswith(SCHEMA_START.encode())

    def image_fields(self, value: bytes) -> ImageFields | None:
        return None if self.carries_schema(value) else image_fields(value, flattened=self._flattened)

    def table_named_in(self, value: bytes) -> TableId | None:
        return source_table(value)

    def definitions_in(self, value: bytes) -> list[TableDefinition]:
        return table_definitions(value)

    def writer_schema(self, table: TableId, carried: CarriedSchema, history: SchemaHistory) -> WriterSchema:
        del table, history
        schema = table_schema(carried.value, carried.key, flattened=self._flattened)
        return WriterSchema(schema, carried.schema_id, schema_prefix(carried.value))

    def inspect_values(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], values: Iterable[bytes]
    ) -> None:
        if columns := undecided_in(writer_schemas):
            self._note(table, 0, self._encoding_in(values, columns, 0))

    def inspect_records(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], sample: bytes, records: Records
    ) -> None:
        columns = undecided_in(writer_schemas)
        if not columns:
            return
        schema_id, found = writer_schemas[0].fingerprint, None
        # A known encoding was learned from the first events, and later ones may differ.
        if (table, schema_id) not in self._encodings:
            found = self._encoding_in([sample], columns, schema_id)
        if found is None:
            decisive = decisive_events(records, columns, schema_id, flattened=self._flattened)
            found = self._encoding_in(decisive, columns, schema_id)
        self._note(table, schema_id, found)

    def with_encodings(self, table: TableId, writer_schema: WriterSchema) -> WriterSchema:
        encoding = self._encodings.get((table, writer_schema.fingerprint))
        if encoding is None or not undecided(writer_schema.schema.columns):
            return writer_schema
        return replace(writer_schema, schema=with_encoding(writer_schema.schema, encoding))

    def _encoding_in(
        self, values: Iterable[bytes], columns: Sequence[Column], schema_id: int
    ) -> Encoding | None:
        return decimal_encoding_of(values, columns, with_schema=schema_id != 0, flattened=self._flattened)

    def _note(self, table: TableId, schema_id: int, found: Encoding | None) -> None:
        if found is not None:
            # If another encoding was found before, the log has both.
            known = self._encodings.get((table, schema_id), found)
            self._encodings[table, schema_id] = combined(known, found)

    def missing_schema(self, table: TableId, reasons: Sequence[str]) -> MissingSchema:
        del reasons
        return MissingSchema(
            f"events of {table} carry no schema, and the schema-change topic has no definition of it",
            "let the connector write it (include.schema.changes=true) or use JSON with schemas",
        )
