"""What is known about the schemas of the source's tables, where events are in Avro and name their writer schema."""

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import fastavro
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from replicator.decode import avro
from replicator.decode.avro_schema import Writer, key_names, source_names, writer_schema
from replicator.decode.envelope import Epoch
from replicator.decode.schema_book import SchemaBook
from replicator.decode.table_change import definitions_of
from replicator.errors import DecodeError, MissingSchema, UnknownWriter, UnsupportedChange
from replicator.model.lineage import TableDefinition
from replicator.model.position import SourcePosition
from replicator.model.table import TableId, TableSchema
from replicator.registry import HEADER_BYTES, WriterSchemas, writer_id

_UNREADABLE: Final = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    EOFError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class AvroBook(SchemaBook):
    """A schema book whose events are in Confluent's wire format; `schemas` has the writer schemas.

    With `refuse_defaults`, it gives no schema with nullable columns that have a default: their NULLs are lost.
    """

    takes_definitions = False
    _no_schema = avro.NO_WRITER

    def __init__(
        self, schemas: WriterSchemas, *, refuse_defaults: bool = False, flattened: bool = False
    ) -> None:
        super().__init__(flattened=flattened)
        self._schemas = schemas
        self._refuse_defaults = refuse_defaults

    @property
    def _decode(self) -> Callable[..., DataFrame]:
        return avro.decode

    def knows(self, table: TableId) -> bool:
        return table in self._current

    def epochs(self, table: TableId, since: SourcePosition | None) -> list[Epoch]:
        del since
        return [self._current[table]]

    def carries_schema(self, value: bytes) -> bool:
        """Whether it names its schema."""
        return writer_id(value) is not None

    def table_named_in(self, value: bytes) -> TableId | None:
        try:
            source = self._record(value)["source"]
            return TableId(str(source["db"]), str(source["table"]))
        except (DecodeError, KeyError, TypeError):
            return None

    def with_sources(self, records: DataFrame) -> DataFrame:
        written = records.where(F.col("value").isNotNull()).select(
            avro.writer_id(F.col("value")).alias("writer")
        )
        found = [row.writer for row in written.distinct().collect()]
        return avro.with_sources(records, sorted(self._writers(found).items()))

    def _writers(self, numbers: Iterable[int]) -> dict[int, Writer]:
        """Those of the writer schemas that are an event's."""
        known: dict[int, Writer] = {}
        for number in numbers:
            with contextlib.suppress(DecodeError):
                known[number], _ = writer_schema(self._text(number), flattened=self._flattened)
        return known

    def _epochs_of(self, table: TableId, row: Row, records: DataFrame, patient: bool) -> Sequence[Epoch]:
        del records
        if row.schema_id == self._no_schema:
            return []
        key = None if row.sample.key is None else bytes(row.sample.key)
        epoch = self._epoch(table, row.schema_id, key, row.at)
        self._note_seen(table, epoch, row.source, patient=patient)
        return [epoch]

    def _nothing_learned(self, table: TableId, reasons: Sequence[str]) -> MissingSchema:
        if reasons:
            return UnknownWriter(
                f"events of {table} cannot be read: {'; '.join(reasons)}",
                "does log.registry_url fit the connector's converters? replicator check",
            )
        return MissingSchema(
            f"no event of {table} is in Confluent's wire format",
            "does log.format fit the connector's converters? replicator check",
        )

    def _schema_id(self, value: SparkColumn) -> SparkColumn:
        return avro.writer_id(value)

    def _epoch(self, table: TableId, writer: int, key: bytes | None, at: int | None) -> avro.AvroEpoch:
        read, columns = writer_schema(self._text(writer), flattened=self._flattened)
        if self._refuse_defaults and read.defaulted:
            raise UnsupportedChange(
                f"NULLs in {', '.join(read.defaulted)} of {table} arrive as the columns' defaults, "
                "because of Apicurio's converter",
                "make the columns NOT NULL or drop their defaults; or take JSON, or Confluent's converter and "
                'registry; or allow it: allow_lossy = ["value.converter"] in [log]',
            )
        line = self.line(table)
        columns = source_names(columns, line.versions[-1].schema.names if line else ())
        names = key_names(self._text(_writer_of(key)), columns) if key else ()
        schema = self._completed(table, TableSchema(columns, names).without_reserved(), at)
        return avro.AvroEpoch(schema, writer, writer=read)

    def _text(self, writer: int) -> str:
        text = self._schemas.schema(writer)
        if text is None:
            raise DecodeError(f"the registry has no schema {writer}")
        return text

    def definitions_in(self, value: bytes) -> list[TableDefinition]:
        return definitions_of(self._record(value))

    def _record(self, value: bytes) -> dict[str, Any]:
        """A record, parsed here and not by Spark. Raises DecodeError where it cannot be read."""
        schema = self._text(_writer_of(value))
        try:
            parsed = fastavro.parse_schema(json.loads(schema))
            record = fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), parsed, None)
        except (*_UNREADABLE, fastavro.schema.SchemaParseException) as error:
            raise DecodeError(f"not Avro of its writer schema: {error!r}") from error
        if not isinstance(record, dict):
            raise DecodeError("no event: it is no record")
        return record


def _writer_of(data: bytes) -> int:
    """The id in a record's header. Raises DecodeError where it has none."""
    number = writer_id(data)
    if number is None:
        raise DecodeError("not in Confluent's wire format")
    return number
