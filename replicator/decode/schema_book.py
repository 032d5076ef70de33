"""What is known about the schemas of the source's tables, and which events have which.

Two ways of knowing: events of JSON with schemas carry their schema, recognised by its fingerprint; for JSON without,
the schema-change topic gives each table's definitions by source position.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.decode.decimals import form_of, telling_events, undecided
from replicator.decode.envelope import Epoch, fingerprint
from replicator.decode.event_schema import table_schema
from replicator.decode.mapping import reconciled
from replicator.decode.table_change import TableDefinition, table_definitions
from replicator.errors import DecodeError, MissingSchema
from replicator.model.position import FILE_SHIFT, SourcePosition
from replicator.model.record import BadRecord, RawRecord
from replicator.model.table import Column, TableId, TableSchema, topic_name
from replicator.model.types import Wire

_SAMPLE: Final = 50
_FROM_THE_START: Final = SourcePosition("binlog.000000", 0)


class SchemaBook:
    """Every schema that was seen, for all tables. Safe to use from several threads, one per table.

    `revision` is another number each time a definition comes.
    """

    def __init__(self) -> None:
        self._definitions: dict[TableId, list[TableDefinition]] = {}
        self._current: dict[TableId, Epoch] = {}
        self._decimals: dict[tuple[TableId, int], Wire] = {}
        self._looked_at: set[TableId] = set()
        self._by_topic: dict[str, set[TableId]] = {}
        self.revision = 0
        self._lock = threading.Lock()

    def add_schema_changes(self, records: Iterable[RawRecord]) -> list[BadRecord]:
        """Take in records of the schema-change topic, in the topic's order; repeated ones change nothing.

        Returns those that are no schema change. Records without a value say nothing.
        """
        bad: list[BadRecord] = []
        for record in records:
            if record.value is None:
                continue
            try:
                definitions = table_definitions(record.value)
            except DecodeError as error:
                bad.append(BadRecord(record, error.message))
                continue
            with self._lock:
                self._add(definitions)
        return bad

    def _add(self, definitions: Iterable[TableDefinition]) -> None:
        for definition in definitions:
            self.revision += 1
            self._by_topic.setdefault(topic_name(definition.table), set()).add(definition.table)
            known = self._definitions.setdefault(definition.table, [])
            if not known or _place(known[-1].position) <= _place(definition.position):
                known.append(definition)

    def define(self, table: TableId, schema: TableSchema) -> None:
        """Take the source's word for how a table is defined, where the schema-change topic has nothing of it."""
        with self._lock:
            self._definitions.setdefault(table, [TableDefinition(table, _FROM_THE_START, 0, schema)])

    def tables_called(self, topic: str) -> set[TableId]:
        """The tables that are defined, and not dropped, whose topic has this name (without the prefix)."""
        with self._lock:
            called = self._by_topic.get(topic, ())
            return {t for t in called if self._definitions[t] and self._definitions[t][-1].schema is not None}

    def epochs(self, table: TableId, since: SourcePosition | None) -> list[Epoch]:
        """The schemas that events of `table` after `since` may have, as far as is known without looking at them.

        Raises:
            MissingSchema: nothing is known about the table.
        """
        current = self._current.get(table)
        if current is not None:
            return [current]
        defined = self._defined(table, None if since is None else _place(since))
        epochs = [self._with_decimals(table, epoch) for epoch in defined]
        if not epochs:
            raise MissingSchema(
                f"no definition of {table} in the schema-change topic",
                "let the connector write it (include.schema.changes=true) or use JSON with schemas",
            )
        return epochs

    def knows(self, table: TableId) -> bool:
        """Whether events of the table can be decoded without looking at one first."""
        return table in self._current or table in self._definitions

    def learn(self, table: TableId, records: DataFrame) -> list[Epoch]:
        """The schemas that `records` (raw records of one table) carry, oldest first; one pass over the records.

        Records whose schema cannot be read are passed over.

        Raises:
            MissingSchema: no record carries a schema, and the schema-change topic has none for them.
        """
        found = (
            records.where(F.col("value").isNotNull())
            .groupBy(fingerprint(F.col("value")).alias("fingerprint"))
            .agg(
                # A truncate has no key, so it tells the schema of the table but not its key.
                F.min_by(F.struct("key", "value"), F.struct(F.col("key").isNull(), "offset")).alias("sample"),
                F.min("offset").alias("first"),
            )
            .orderBy("first")
            .collect()
        )
        epochs: list[Epoch] = []
        for row in found:
            if row.fingerprint == 0:
                # Whatever is known by position applies to them; `decode` tells the two groups apart.
                defined = self._defined(table, None)
                self._decide(table, defined, bytes(row.sample.value), _carrying(records, 0))
                epochs += [self._with_decimals(table, epoch) for epoch in defined]
                continue
            key = None if row.sample.key is None else bytes(row.sample.key)
            try:
                schema = table_schema(bytes(row.sample.value), key)
            except DecodeError:
                continue
            epoch = Epoch(self._completed(table, schema), row.fingerprint)
            self._decide(table, [epoch], bytes(row.sample.value), _carrying(records, row.fingerprint))
            epochs.append(self._with_decimals(table, epoch))
        if not epochs:
            raise MissingSchema(
                f"events of {table} carry no schema, and the schema-change topic has no definition of it",
                "let the connector write it (include.schema.changes=true) or use JSON with schemas",
            )
        if epochs[-1].fingerprint:
            self._current[table] = epochs[-1]
        return epochs

    def look_at_decimals(self, table: TableId, records: DataFrame) -> None:
        """Look, once, at a few events without a schema to find out how they write decimals, where there are any."""
        if table in self._current or table in self._looked_at:
            return
        self._looked_at.add(table)
        if columns := _undecided(self._defined(table, None)):
            sample = records.where(F.col("value").isNotNull()).select("value").limit(_SAMPLE).collect()
            found = form_of([bytes(row.value) for row in sample], columns, with_schema=False)
            self._note_decimals(table, 0, found)

    def _decide(self, table: TableId, epochs: Sequence[Epoch], sample: bytes, own: DataFrame) -> None:
        """Note how events of one schema write decimals; `own` are such events, `sample` is one; see `decimals`."""
        columns = _undecided(epochs)
        if not columns:
            return
        carried = epochs[0].fingerprint
        found = None
        if (table, carried) not in self._decimals:
            found = form_of([sample], columns, with_schema=carried != 0)
        if found is None:
            telling = telling_events(own, columns, with_schema=carried != 0)
            found = form_of(telling, columns, with_schema=carried != 0)
        self._note_decimals(table, carried, found)

    def _note_decimals(self, table: TableId, carried: int, form: Wire | None) -> None:
        if form is not None:
            # One that was found differently before: the log has both.
            known = self._decimals.setdefault((table, carried), form)
            self._decimals[table, carried] = form if form is known else Wire.EITHER_DECIMAL

    def _with_decimals(self, table: TableId, epoch: Epoch) -> Epoch:
        wire, names = self._decimals.get((table, epoch.fingerprint)), [c.name for c in _undecided([epoch])]
        return (
            epoch if wire is None or not names else replace(epoch, schema=epoch.schema.with_wire(names, wire))
        )

    def _defined(self, table: TableId, since: int | None) -> list[Epoch]:
        with self._lock:
            return _epochs(list(self._definitions.get(table, ())), since)

    def with_filled(self, table: TableId, schema: TableSchema) -> TableSchema:
        """`schema` and, behind it, the columns that were added to the table since and filled by the source.

        Events from before a column was added may arrive when the lake has it already; they are filled too.
        """
        known = set(schema.names)
        added = [c for c in self._newest(table).columns if c.name not in known and c.fill is not None]
        return replace(schema, columns=(*schema.columns, *added)) if added else schema

    def _completed(self, table: TableId, schema: TableSchema) -> TableSchema:
        """An event's schema with what only definitions say: fills, and the key where the event has none."""
        newest, current = self._newest(table), self._current.get(table)
        columns = [_defined(c, newest.column(c.name)) for c in schema.columns]
        key = schema.key or newest.key or (current.schema.key if current is not None else ())
        return TableSchema(tuple(columns), key)

    def _newest(self, table: TableId) -> TableSchema:
        with self._lock:
            schemas = [d.schema for d in self._definitions.get(table, ()) if d.schema is not None]
        return schemas[-1] if schemas else TableSchema(())


def _defined(column: Column, known: Column | None) -> Column:
    """A column of an event's schema with what only its definition says."""
    if known is None:
        return column
    lake_type, wire = reconciled((column.type, column.wire), (known.type, known.wire))
    size = known.size if wire is Wire.LATIN1 else column.size
    return replace(
        column, type=lake_type, wire=wire, size=size, fill=known.fill, fill_unknown=known.fill_unknown
    )


def _carrying(records: DataFrame, carried: int) -> DataFrame:
    """The records whose schema has this fingerprint."""
    return records.where(F.col("value").isNotNull() & (fingerprint(F.col("value")) == carried))


def _undecided(epochs: Iterable[Epoch]) -> tuple[Column, ...]:
    return tuple({c.written: c for e in epochs for c in undecided(e.schema.columns)}.values())


def _place(position: SourcePosition) -> int:
    number, pos, _ = position.order
    return (number << FILE_SHIFT) + pos


def _epochs(definitions: list[TableDefinition], since: int | None) -> list[Epoch]:
    """Definitions by position → epochs; equal neighbours are one, what ended before `since` is left out."""
    spans: list[tuple[int, TableSchema]] = []
    for definition in definitions:
        if definition.schema is None or (spans and spans[-1][1] == definition.schema):
            continue
        spans.append((_place(definition.position), definition.schema))
    epochs: list[Epoch] = []
    for i, (start, schema) in enumerate(spans):
        end = spans[i + 1][0] if i + 1 < len(spans) else None
        if end is None or since is None or end > since:
            epochs.append(Epoch(schema, first=start if epochs else None, end=end))
    return epochs
