"""Discover the schemas of a table's events: in its definitions, or in the events themselves."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.decoding import WriterSchema
from replicator.decode.event_format import CarriedSchema, EventFormat, EventParser
from replicator.decode.parsed import SOURCE_TYPES
from replicator.decode.records import Records, values_of
from replicator.decode.schemas.histories import SchemaHistories
from replicator.decode.schemas.resolution import matching_versions
from replicator.decode.schemas.versions import Places
from replicator.errors import DecodeError, MissingSchema
from replicator.model.gtid import Transaction
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import Encoding
from replicator.schema.history.order import CLOCK_MS
from replicator.schema.history.versions import SchemaHistory
from replicator.schema.types.mysql import reconciled

_FIRST: Final = pa.schema(
    [
        ("schema_id", pa.int64()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("with_key", pa.binary()),
    ]
)
"""The first event of each schema in some records of each partition: its offset and value, and the key and value of the
first event with a key. A truncate has none, so it is a sample of the table's schema, but not of its key."""

_PLACED: Final = pa.schema(
    [("schema_id", pa.int64()), ("at", pa.int64()), *((name, kind) for name, kind in SOURCE_TYPES.items())]
)
"""The earliest position of an event of each schema, with its source block."""


def carried_schemas(records: Records, event_format: EventFormat) -> list[CarriedSchema]:
    """Return the schemas that raw records carry or refer to, oldest first; usually by one pass over the records.

    Records without a schema have an entry too, with `EventFormat.no_schema` as its id. Tombstones are ignored.
    """
    firsts = _firsts(records, event_format)
    ids = {row["schema_id"] for row in firsts}
    parser, values = event_format.parser(ids), [row["value"] for row in firsts]
    placed = _earliest([_placed(parser, pa.array(values, pa.binary()), [row["schema_id"] for row in firsts])])
    if ids - {event_format.no_schema} - placed.keys():
        # The first record of a schema is not a change event and has no position; a later one may have one.
        placed = _earliest([records.summarized(partial(_placed_events, parser), _PLACED)])
    origins = {found.origin for row in placed.values() if (found := Transaction.parse(row["gtid"]))}
    # Positions of several servers cannot be compared.
    by_time = len(origins) > 1

    def place(schema_id: int) -> tuple[int, int, int]:
        row = placed.get(schema_id)
        time = (row["ts_ms"] or 0) // CLOCK_MS if row is not None and by_time else 0
        first = next(f["offset"] for f in firsts if f["schema_id"] == schema_id)
        return time, -1 if row is None else row["at"], first

    return [_carried(schema_id, firsts, placed.get(schema_id)) for schema_id in sorted(ids, key=place)]


def parser_for(records: Records, event_format: EventFormat) -> EventParser:
    """Return a parser that can read the source blocks of records."""
    if event_format.takes_definitions:
        return event_format.parser()
    return event_format.parser({row["schema_id"] for row in _firsts(records, event_format)})


def _firsts(records: Records, event_format: EventFormat) -> list[dict[str, Any]]:
    """Return the first event of each schema (see `_FIRST`), perhaps in several parts, in the order of offsets."""
    found = records.summarized(partial(_first_events, event_format.parser()), _FIRST)
    return list(found.sort_by("offset").to_pylist())


def _first_events(parser: EventParser, records: pa.Table) -> pa.Table:
    """Summarize records as `_FIRST`."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    ids = parser.schema_ids(values_of(records)).to_pylist()
    partitions = records.column("partition").to_pylist()
    ordered = pc.sort_indices(records.column("offset")).to_pylist()
    keys, values, offsets = (records.column(name) for name in ("key", "value", "offset"))
    for i in ordered:
        place = partitions[i], ids[i]
        row = found.get(place)
        if row is None:
            row = {"schema_id": ids[i], "offset": offsets[i].as_py(), "value": values[i].as_py(), "key": None}
            found[place] = row
        if row["key"] is None and keys[i].is_valid:
            row |= {"key": keys[i].as_py(), "with_key": values[i].as_py()}
    return pa.Table.from_pylist(list(found.values()), _FIRST)


def _placed_events(parser: EventParser, records: pa.Table) -> pa.Table:
    values = values_of(records)
    return _placed(parser, values, parser.schema_ids(values).to_pylist())


def _placed(parser: EventParser, values: pa.BinaryArray, schema_ids: Sequence[int]) -> pa.Table:
    """Return `_PLACED` for events with these values and schemas."""
    source = parser.sources(values)
    places = Places.of(source)
    rows = pa.table(
        {"schema_id": pa.array(schema_ids, pa.int64()), "at": places.key, **source}, schema=_PLACED
    )
    return pa.Table.from_pylist(list(_earliest([rows.filter(pa.array(places.is_known))]).values()), _PLACED)


def _earliest(tables: Iterable[pa.Table]) -> dict[int, dict[str, Any]]:
    """Return schema id → the row of `_PLACED` with the earliest position."""
    found: dict[int, dict[str, Any]] = {}
    for row in pa.concat_tables(tables).sort_by("at").to_pylist():
        found.setdefault(row["schema_id"], row)
    return found


def _carried(
    schema_id: int, firsts: Sequence[Mapping[str, Any]], placed: Mapping[str, Any] | None
) -> CarriedSchema:
    own = [row for row in firsts if row["schema_id"] == schema_id]
    sample = next((row for row in own if row["key"] is not None), None)
    key, value = (None, own[0]["value"]) if sample is None else (sample["key"], sample["with_key"])
    if placed is None or placed["file"] is None:
        return CarriedSchema(schema_id, key, value)
    position = SourcePosition(placed["file"], placed["pos"] or 0, 0, placed["server_id"] or 0, placed["gtid"])
    return CarriedSchema(schema_id, key, value, position, placed["ts_ms"] or 0)


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

    def learn(self, table: TableId, records: Records, *, patient: bool) -> list[WriterSchema]:
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

    def learn_from_sample(self, table: TableId, sample: Records, *, patient: bool) -> list[WriterSchema]:
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
        self, table: TableId, found: Sequence[CarriedSchema], records: Records, patient: bool
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
        self, table: TableId, carried: CarriedSchema, records: Records, patient: bool
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
