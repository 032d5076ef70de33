"""Discover the schemas of a table's events: in its definitions, or in the events themselves."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from replicator.decode.event_format import CarriedSchema, EventFormat
from replicator.decode.event_frame import WriterSchema, event_position_key
from replicator.decode.schemas.histories import SchemaHistories
from replicator.decode.schemas.resolution import matching_versions
from replicator.errors import DecodeError, MissingSchema
from replicator.jvm.spark import local_frame
from replicator.model.gtid import Transaction
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import Encoding
from replicator.schema.history.order import CLOCK_MS
from replicator.schema.history.versions import SchemaHistory
from replicator.schema.types.mysql import reconciled


def carried_schemas(records: DataFrame, event_format: EventFormat) -> list[CarriedSchema]:
    """Return the schemas that raw records carry or refer to, oldest first; usually by one pass over the records.

    Records without a schema have an entry too, with `EventFormat.no_schema` as its id. Tombstones are ignored.
    """
    schema_id = event_format.schema_id(F.col("value")).alias("schema_id")
    sample = F.struct("key", "value")
    given = records.where(F.col("value").isNotNull()).select("*", schema_id)
    first = given.groupBy("schema_id", "partition").agg(
        # A truncate has no key, so it is a sample of the table's schema, but not of its key.
        F.min_by(sample, F.struct(F.col("key").isNull(), "offset")).alias("sample"),
        F.min_by("value", "offset").alias("value"),
        F.min("offset").alias("offset"),
    )
    found = _by_schema(local_frame(records.sparkSession, first.toArrow(), first.schema), event_format)
    if any(row.at is None and row.schema_id != event_format.no_schema for row in found):
        # The first record of a schema is not a change event and has no position; a later one may have one.
        found = _by_schema(given.withColumn("sample", sample), event_format)
    return [_carried(row) for row in found]


def _by_schema(records: DataFrame, event_format: EventFormat) -> list[Row]:
    """Return one row per schema in `records` (schema_id, offset, value, sample), in the order of their first events."""
    at = event_position_key(F.col("source"))
    rows = (
        event_format.with_sources(records)
        .groupBy("schema_id")
        .agg(
            F.min_by("sample", F.struct(F.col("sample.key").isNull(), "offset")).alias("sample"),
            F.min("offset").alias("first"),
            F.min(at).alias("at"),
            F.min_by("source", at).alias("source"),
        )
        .collect()
    )
    origins = {found.origin for row in rows if row.source and (found := Transaction.parse(row.source.gtid))}
    # Positions of several servers cannot be compared.
    by_time = len(origins) > 1
    return sorted(rows, key=lambda row: _place(row, by_time=by_time))


def _place(row: Row, *, by_time: bool) -> tuple[int, int, int]:
    time = row.source.ts_ms or 0 if by_time and row.source else 0
    return time // CLOCK_MS, -1 if row.at is None else row.at, row.first


def _carried(row: Row) -> CarriedSchema:
    source, key = row.source, row.sample.key
    position, ts_ms = None, 0
    if source is not None and source.file is not None:
        ts_ms = source.ts_ms or 0
        position = SourcePosition(source.file, source.pos or 0, 0, source.server_id or 0, source.gtid)
    return CarriedSchema(
        row.schema_id,
        None if key is None else bytes(key),
        bytes(row.sample.value),
        position,
        ts_ms,
    )


def declared_writer_schemas(history: SchemaHistory, since: int | None = None) -> list[WriterSchema]:
    """Return the schemas of events that carry none: one for each declared version, with its range of positions.

    Versions before the one in effect at `since`, which is the `at` of a version, are omitted.
    """
    declared = [i for i in range(history.own, len(history.versions)) if history.versions[i].declared]
    writer_schemas: list[WriterSchema] = []
    for i, end_index in itertools.zip_longest(declared, declared[1:]):
        end = None if end_index is None else history.boundary(end_index)
        if end is None or since is None or end.at > since:
            first = history.boundary(i) if writer_schemas else None
            writer_schemas.append(WriterSchema(history.versions[i].schema, first=first, end=end))
    return writer_schemas


def completed(
    schema: TableSchema, history: SchemaHistory, version: int | None, last_key: tuple[str, ...]
) -> TableSchema:
    """Return the schema of an event of a version, completed from definitions: fills, and the key if it has none.

    `last_key`, that of earlier events, is used if the definition has no key either, and never had this one: then the
    connector's configuration names it.
    """
    declared = _declared_at(history, schema, version)
    columns = [_completed_column(c, declared.column(c.name)) for c in schema.columns]
    dropped = any(v.declared and set(v.event_key) == set(last_key) for v in history.versions)
    return TableSchema(tuple(columns), schema.key or declared.key or (() if dropped else last_key))


def _declared_at(history: SchemaHistory, schema: TableSchema, version: int | None) -> TableSchema:
    """Return the columns of the version that an event was written with, as far as it is known."""
    if not history:
        return TableSchema(())
    own = history.versions[-1 if version is None else version].schema
    matching = matching_versions(history, schema)
    return (
        own if not matching or set(own.names) == set(schema.names) else history.versions[matching[-1]].schema
    )


def _completed_column(column: Column, declared: Column | None) -> Column:
    if declared is None:
        return column
    lake_type, encoding = reconciled((column.type, column.encoding), (declared.type, declared.encoding))
    return replace(
        column,
        type=lake_type,
        encoding=encoding,
        size=declared.size if encoding is Encoding.LATIN1 else column.size,
        fill=declared.fill,
        fill_unknown=declared.fill_unknown,
    )


_MAX_WAITS: Final = 2
"""How often a batch is postponed to wait for the definition that distinguishes a renamed column from a new one."""


class SchemaDiscovery:
    """Learns the schemas of events, and stores the current one of each table.

    A schema that matches no definition becomes an observed version of the table's history. Safe for several threads,
    one per table.
    """

    def __init__(self, event_format: EventFormat, histories: SchemaHistories) -> None:
        self._format = event_format
        self._histories = histories
        self._current: dict[TableId, WriterSchema] = {}
        self._inspected: set[TableId] = set()
        self._waits: dict[tuple[TableId, int], int] = {}

    def knows(self, table: TableId) -> bool:
        """Return whether events of the table can be decoded before any of them is inspected."""
        return table in self._current or (
            self._format.takes_definitions and self._histories.is_defined(table)
        )

    def writer_schemas(
        self, table: TableId, since: int | None, until: int | None = None
    ) -> list[WriterSchema]:
        """Return the schemas that events of `table` may have, as far as they are known.

        No event has an earlier version than the one in effect at `since`, or a later one than that at `until`; None if
        they may have any version.

        Raises:
            MissingSchema: no schema of the table is known.
        """
        current = self._current.get(table)
        if current is not None:
            return [current]
        writer_schemas = self._declared(table, since, until)
        if not writer_schemas:
            raise MissingSchema(
                f"no definition of {table} in the schema-change topic",
                "let the connector write it (include.schema.changes=true) or use JSON with schemas",
            )
        return self._with_encodings(table, writer_schemas)

    def needs_definitions(self, table: TableId) -> bool:
        """Return whether events of the table may have no schema, as far as that is known."""
        return self._format.takes_definitions and table not in self._current

    def needs_inspection(self, table: TableId) -> bool:
        """Return whether inspecting the table's next events before decoding may avoid decoding them twice."""
        return table not in self._current and table not in self._inspected

    def inspect_values(self, table: TableId, values: Iterable[bytes]) -> None:
        """Learn the encoding of values from a few events without a schema."""
        self._inspected.add(table)
        self._format.inspect_values(table, self._declared(table), values)

    def learn(self, table: TableId, records: DataFrame, *, patient: bool) -> list[WriterSchema]:
        """Return the schemas that `records` (raw records of one table) carry, oldest first.

        Schemas that cannot be read are omitted.

        Raises:
            MissingSchema: there is no schema for any record; or the batch is postponed, see `observe`.
            UnknownWriter: no schema can be read.
            UnsupportedChange, LogUnavailable, RegistryRefused: see `EventFormat.writer_schema`.
        """
        found = carried_schemas(records, self._format)
        writer_schemas, reasons = self._read(table, found, records, patient)
        if not writer_schemas:
            raise self._format.missing_schema(table, reasons)
        return writer_schemas

    def learn_from_sample(self, table: TableId, sample: DataFrame, *, patient: bool) -> list[WriterSchema]:
        """Return the schema that a sample, the first few events of each partition, carries; usually all events have it.

        The result is empty if the sample has several schemas, or does not show the key: then all events must be
        inspected.

        Raises:
            MissingSchema: the batch is postponed, see `observe`.
        """
        found = carried_schemas(sample, self._format)
        if len(found) != 1 or found[0].schema_id == self._format.no_schema or found[0].key is None:
            return []
        writer_schemas, _ = self._read(table, found, sample, patient)
        return writer_schemas

    def writer_schema(self, table: TableId, carried: CarriedSchema) -> WriterSchema:
        """Read a schema that events carry or refer to, and complete it from the definitions.

        Raises:
            DecodeError, UnsupportedChange, LogUnavailable, RegistryRefused: see `EventFormat.writer_schema`.
        """
        history, current = self._histories.history(table), self._current.get(table)
        last_key = () if current is None else current.schema.key
        found = self._format.writer_schema(table, carried, history)
        return replace(found, schema=completed(found.schema, history, carried.version_in(history), last_key))

    def observe(
        self, table: TableId, carried: CarriedSchema, writer_schema: WriterSchema, *, patient: bool
    ) -> None:
        """Add a schema to the table's history if no version has its columns.

        If columns disappeared while others appeared, only a definition can distinguish renamed columns from new ones.
        If `patient`, the batch is postponed a few times to wait for the definition; then the columns count as new.

        Raises:
            MissingSchema: the batch is postponed.
        """
        history, schema = self._histories.history(table), writer_schema.schema
        if carried.position is None or matching_versions(history, schema):
            return
        if history:
            last, names = set(history.versions[-1].schema.names), set(schema.names)
            ambiguous = bool(last - names and names - last)
            waits = self._waits.get((table, writer_schema.fingerprint), 0)
            if patient and ambiguous and self._histories.is_defined(table) and waits < _MAX_WAITS:
                self._waits[table, writer_schema.fingerprint] = waits + 1
                raise MissingSchema(
                    f"columns of {table} were renamed, or dropped and others added, and no definition says which",
                    "let the connector write the schema-change topic (include.schema.changes=true)",
                )
        self._histories.observe(table, carried.position, carried.ts_ms, schema)

    def _read(
        self, table: TableId, found: Sequence[CarriedSchema], records: DataFrame, patient: bool
    ) -> tuple[list[WriterSchema], list[str]]:
        """Read the schemas that were `found` in `records`; the last one becomes the current one.

        The second result has the reasons why others cannot be read.
        """
        writer_schemas: list[WriterSchema] = []
        reasons: list[str] = []
        for carried in found:
            try:
                writer_schemas += self._writer_schemas_of(table, carried, records, patient)
            except DecodeError as error:
                reasons.append(error.message)
        if writer_schemas and writer_schemas[-1].fingerprint:
            self._current[table] = writer_schemas[-1]
        return writer_schemas, reasons

    def _writer_schemas_of(
        self, table: TableId, carried: CarriedSchema, records: DataFrame, patient: bool
    ) -> list[WriterSchema]:
        """Return the schemas of the events that `carried` represents. Raises DecodeError if they cannot be read."""
        if carried.schema_id == self._format.no_schema:
            # Every declared version may apply; `decode` distinguishes these events from those with a schema.
            writer_schemas = self._declared(table)
            self._format.inspect_records(table, writer_schemas, carried.value, records)
        else:
            writer_schema = self.writer_schema(table, carried)
            writer_schemas = [writer_schema]
            self._format.inspect_records(table, writer_schemas, carried.value, records)
            self.observe(table, carried, writer_schema, patient=patient)
        return self._with_encodings(table, writer_schemas)

    def _declared(
        self, table: TableId, since: int | None = None, until: int | None = None
    ) -> list[WriterSchema]:
        if not self._format.takes_definitions:
            return []
        return declared_writer_schemas(self._histories.history(table).until(until), since)

    def _with_encodings(self, table: TableId, writer_schemas: Iterable[WriterSchema]) -> list[WriterSchema]:
        return [self._format.with_encodings(table, writer_schema) for writer_schema in writer_schemas]
