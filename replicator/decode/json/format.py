"""Change events in JSON, with or without their schemas."""

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.decode.connect_schema import source_table, table_schema
from replicator.decode.event_format import CarriedSchema, EventFormat, ImageFields, image_fields
from replicator.decode.event_frame import Decoding, WriterSchema
from replicator.decode.json import events
from replicator.decode.json.decimals import DecimalEncodings
from replicator.errors import MissingSchema
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId
from replicator.schema.history.declared import table_definitions
from replicator.schema.history.versions import SchemaHistory, TableDefinition


class JsonFormat(EventFormat):
    """The `EventFormat` of JSON. An event's schema is identified by its fingerprint.

    Events without a schema are decoded with the declared version at their position. With `flattened`, events are
    rows and not envelopes; see `model.events`.
    """

    takes_definitions: Final = True
    no_schema: Final = 0

    def __init__(self, *, flattened: bool = False) -> None:
        self._flattened = flattened
        self._decimals = DecimalEncodings(flattened=flattened)

    def schema_id(self, value: SparkColumn) -> SparkColumn:
        return events.fingerprint(value)

    def carries_schema(self, value: bytes) -> bool:
        return value.startswith(events.SCHEMA_START.encode())

    def image_fields(self, value: bytes) -> ImageFields | None:
        return None if self.carries_schema(value) else image_fields(value, flattened=self._flattened)

    def table_named_in(self, value: bytes) -> TableId | None:
        return source_table(value)

    def definitions_in(self, value: bytes) -> list[TableDefinition]:
        return table_definitions(value)

    def with_sources(self, records: DataFrame) -> DataFrame:
        return records.withColumn("source", events.event_source(F.col("value"), flattened=self._flattened))

    def writer_schema(self, table: TableId, carried: CarriedSchema, history: SchemaHistory) -> WriterSchema:
        del table, history
        schema = table_schema(carried.value, carried.key, flattened=self._flattened)
        return WriterSchema(schema, carried.schema_id, events.schema_prefix(carried.value))

    def inspect_values(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], values: Iterable[bytes]
    ) -> None:
        self._decimals.inspect_values(table, writer_schemas, values)

    def inspect_records(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], sample: bytes, records: DataFrame
    ) -> None:
        self._decimals.inspect_records(table, writer_schemas, sample, records)

    def with_encodings(self, table: TableId, writer_schema: WriterSchema) -> WriterSchema:
        return self._decimals.applied(table, writer_schema)

    def missing_schema(self, table: TableId, reasons: Sequence[str]) -> MissingSchema:
        del reasons
        return MissingSchema(
            f"events of {table} carry no schema, and the schema-change topic has no definition of it",
            "let the connector write it (include.schema.changes=true) or use JSON with schemas",
        )

    def decode(self, records: DataFrame, decoding: Decoding, ranges: Sequence[OffsetRange]) -> DataFrame:
        return events.decode(records, decoding, ranges, flattened=self._flattened)
