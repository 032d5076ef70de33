"""What is known about the schemas of the source's tables, and which events have which.

Two ways of knowing: events of JSON with schemas carry their schema, recognised by its fingerprint; for JSON without,
the schema-change topic gives each table's definitions by source position.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.decode.envelope import Epoch, fingerprint
from replicator.decode.event_schema import table_schema
from replicator.decode.table_change import TableDefinition, table_definitions
from replicator.errors import DecodeError, MissingSchema
from replicator.model.position import FILE_SHIFT, SourcePosition
from replicator.model.record import BadRecord, RawRecord
from replicator.model.table import TableId, TableSchema


class SchemaBook:
    """Every schema that was seen, for all tables. Safe to use from several threads, one per table."""

    def __init__(self, *, base64_decimals: bool = False) -> None:
        self._base64_decimals = base64_decimals
        self._definitions: dict[TableId, list[TableDefinition]] = {}
        self._current: dict[TableId, Epoch] = {}
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
            known = self._definitions.setdefault(definition.table, [])
            if not known or _place(known[-1].position) <= _place(definition.position):
                known.append(definition)

    def epochs(self, table: TableId, since: SourcePosition | None) -> list[Epoch]:
        """The schemas that events of `table` after `since` may have, as far as is known without looking at them.

        Raises:
            MissingSchema: nothing is known about the table.
        """
        current = self._current.get(table)
        if current is not None:
            return [current]
        with self._lock:
            definitions = list(self._definitions.get(table, ()))
        epochs = _epochs(definitions, None if since is None else _place(since))
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
                with self._lock:
                    epochs += _epochs(list(self._definitions.get(table, ())), None)
                continue
            key = None if row.sample.key is None else bytes(row.sample.key)
            try:
                schema = table_schema(bytes(row.sample.value), key, base64_decimals=self._base64_decimals)
            except DecodeError:
                continue
            epochs.append(Epoch(self._completed(table, schema), row.fingerprint))
        if not epochs:
            raise MissingSchema(
                f"events of {table} carry no schema, and the schema-change topic has no definition of it",
                "let the connector write it (include.schema.changes=true) or use JSON with schemas",
            )
        if epochs[-1].fingerprint:
            self._current[table] = epochs[-1]
        return epochs

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
        columns = [
            c if known is None else replace(c, fill=known.fill, fill_unknown=known.fill_unknown)
            for c in schema.columns
            for known in (newest.column(c.name),)
        ]
        key = schema.key or newest.key or (current.schema.key if current is not None else ())
        return TableSchema(tuple(columns), key)

    def _newest(self, table: TableId) -> TableSchema:
        with self._lock:
            schemas = [d.schema for d in self._definitions.get(table, ()) if d.schema is not None]
        return schemas[-1] if schemas else TableSchema(())


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
