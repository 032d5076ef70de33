"""What is known about the schemas of the source's tables, and which events have which.

Two ways of knowing: events of JSON with schemas carry their schema, recognised by its fingerprint; for JSON without,
the schema-change topic gives each table's definitions by source position. Events in Avro name theirs (`avro_book`).
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from replicator.decode.decimals import form_of, telling_events, undecided
from replicator.decode.envelope import (
    SCHEMA_START,
    TAIL,
    Epoch,
    beginning,
    decode,
    event_place,
    event_source,
    fingerprint,
)
from replicator.decode.epochs import Aligned, align, known_as
from replicator.decode.event_schema import source_table, table_schema
from replicator.decode.mapping import reconciled
from replicator.decode.table_change import table_definitions
from replicator.errors import DecodeError, MissingSchema
from replicator.model.commit import OffsetRange
from replicator.model.lineage import ColumnMoves, Lineage, TableDefinition, lineage, place, seen
from replicator.model.position import SourcePosition
from replicator.model.record import BadRecord, RawRecord
from replicator.model.table import Column, TableId, TableSchema, topic_name
from replicator.model.types import Wire
from replicator.spark import local_frame

_FROM_THE_START: Final = SourcePosition("binlog.000000", 0)
_PATIENCE: Final = 2
"""How often the definition is waited for that tells a renamed column from a new one."""


class SchemaBook:
    """Every schema that was seen, and how events are decoded. Safe to use from several threads, one per table.

    `revision` is another number each time a definition comes.

    With `flattened`, events are rows and not envelopes; see `model.flat`.

    Attributes:
        takes_definitions: whether a table's definition alone is enough to decode its events.
    """

    takes_definitions = True
    _no_schema = 0

    def __init__(self, *, flattened: bool = False) -> None:
        self._flattened = flattened
        self._definitions: dict[TableId, list[TableDefinition]] = {}
        self._seen: dict[TableId, list[TableDefinition]] = {}
        self._lines: dict[TableId, Lineage] = {}
        self._aligned: dict[TableId, tuple[Lineage, tuple[tuple[Epoch, ...], int, int], Aligned]] = {}
        self._waited: dict[tuple[TableId, int], int] = {}
        self._current: dict[TableId, Epoch] = {}
        self._decimals: dict[tuple[TableId, int], Wire] = {}
        self._looked_at: set[TableId] = set()
        self._by_topic: dict[str, set[TableId]] = {}
        self.revision = 0
        self._lock = threading.Lock()

    def decode(
        self,
        records: DataFrame,
        epochs: Sequence[Epoch],
        target: TableSchema,
        ranges: Sequence[OffsetRange],
        *,
        for_changelog: bool,
        stray: str,
        tail: int = TAIL,
    ) -> DataFrame:
        """Records of one table, with schemas that this book gave, as decoded events; see `envelope.decode`."""
        return self._decode(
            records, epochs, target, ranges, for_changelog=for_changelog, stray=stray, tail=tail
        )

    @property
    def _decode(self) -> Callable[..., DataFrame]:
        return partial(decode, flattened=self._flattened)

    def add_schema_changes(self, records: Iterable[RawRecord]) -> list[BadRecord]:
        """Take in records of the schema-change topic, in the topic's order; repeated ones change nothing.

        Returns those that are no schema change. Records without a value say nothing.
        """
        bad: list[BadRecord] = []
        for record in records:
            if record.value is None:
                continue
            try:
                definitions = self.definitions_in(record.value)
            except DecodeError as error:
                bad.append(BadRecord(record, error.message))
                continue
            with self._lock:
                self._add(definitions)
        return bad

    def definitions_in(self, value: bytes) -> list[TableDefinition]:
        """What a record of the schema-change topic says. Raises DecodeError where it is no schema change."""
        return table_definitions(value)

    def _add(self, definitions: Iterable[TableDefinition]) -> None:
        for definition in definitions:
            self.revision += 1
            self._by_topic.setdefault(topic_name(definition.table), set()).add(definition.table)
            known = self._definitions.setdefault(definition.table, [])
            if not known or place(known[-1].position) <= definition.at:
                replaces = any(d.schema is not None for d in known)
                known.append(self._with_moves(definition) if replaces else definition)
                # That of a table which was renamed since is made of this one's.
                self._lines.clear()

    def _with_moves(self, definition: TableDefinition) -> TableDefinition:
        """What a table that takes another's place went through under its own name, as tools that copy tables do."""
        old = definition.other_name
        if definition.schema is None or old is None or not (line := self._line(old)):
            return definition
        own = line.own_versions
        carried = line.carry(line.own, len(line.versions) - 1)
        dropped = [name for name in own[0].schema.names if name not in carried]
        renamed = [(was, now) for was, now in carried.items() if was != now]
        # One that was called otherwise for a moment only, as where names are exchanged, counts by its first name.
        first = own[0].renamed_from
        return replace(
            definition,
            moves=ColumnMoves(tuple(renamed), tuple(dropped)),
            other_name=first if len(own) == 1 and first is not None else old,
        )

    def line(self, table: TableId) -> Lineage:
        """Every version of a table that is known, from definitions and from the events themselves."""
        with self._lock:
            return self._line(table)

    def _line(self, table: TableId) -> Lineage:
        if table not in self._lines:
            self._lines[table] = self._line_until(table, None)
        return self._lines[table]

    def _line_until(self, table: TableId, end: int | None) -> Lineage:
        """The line up to a place. It goes on from the place where the table was called otherwise."""
        told, found = (
            [d for d in known.get(table, ()) if end is None or d.at < end]
            for known in (self._definitions, self._seen)
        )
        begin = next((d for d in told if d.schema is not None), None)
        past = None
        if begin is not None and begin.other_name is not None:
            past = self._line_until(begin.other_name, begin.at)
        line = lineage(told, past)
        for d in found:
            # What was seen first may have been told since.
            if d.schema is not None and (not line or d.at > line.versions[-1].at):
                is_told = line and known_as(line, d.schema)[-1:] == [len(line.versions) - 1]
                line = line if is_told else seen(line, d.position, d.ts_ms, d.schema)
        return line

    def aligned(
        self,
        table: TableId,
        line: Lineage,
        epochs: Sequence[Epoch],
        since: SourcePosition | None,
        target: int,
    ) -> Aligned:
        """How to decode `epochs` to version `target` of `line`; mostly as in the batch before, which is remembered.

        `since` is a position that all events lie behind; None where they may be of any time.
        """
        first = line.own if since is None else max(line.own, line.index_at(place(since)))
        asked = (tuple(epochs), first, target)
        known = self._aligned.get(table)
        if known is None or known[0] is not line or known[1] != asked:
            known = (line, asked, align(line, epochs, first, target))
            self._aligned[table] = known
        return known[2]

    def earlier_names(self, table: TableId) -> frozenset[TableId]:
        """What the table was called before it was renamed, or what took its place was."""
        versions = self.line(table).versions
        names = [name for v in versions for name in (v.renamed_from, v.took_over_from)]
        return frozenset(name for name in names if name is not None)

    def later_names(self, table: TableId) -> frozenset[TableId]:
        """What tables that had this name are called now, or were called next."""
        line = self.line(table)
        names = [v.left_as for v in line.own_versions] + ([] if line.gone is None else [line.gone.renamed_to])
        return frozenset(name for name in names if name is not None)

    def define(self, table: TableId, schema: TableSchema) -> None:
        """Take the source's word for how a table is defined, where the schema-change topic has nothing of it."""
        with self._lock:
            self._definitions.setdefault(table, [TableDefinition(table, _FROM_THE_START, 0, schema)])
            self._lines.pop(table, None)

    def tables_called(self, topic: str) -> set[TableId]:
        """The tables that are defined, and not dropped, whose topic has this name (without the prefix)."""
        with self._lock:
            called = self._by_topic.get(topic, ())
            return {t for t in called if self._definitions[t] and self._definitions[t][-1].schema is not None}

    def table_named_in(self, value: bytes) -> TableId | None:
        """The table that an event names as its source; None where it names none."""
        return source_table(value)

    def epochs(self, table: TableId, since: SourcePosition | None) -> list[Epoch]:
        """The schemas that events of `table` after `since` may have, as far as is known without looking at them.

        Raises:
            MissingSchema: nothing is known about the table.
        """
        current = self._current.get(table)
        if current is not None:
            return [current]
        defined = self._defined(table, None if since is None else place(since))
        epochs = [self._with_decimals(table, epoch) for epoch in defined]
        if not epochs:
            raise MissingSchema(
                f"no definition of {table} in the schema-change topic",
                "let the connector write it (include.schema.changes=true) or use JSON with schemas",
            )
        return epochs

    def with_sources(self, records: DataFrame) -> DataFrame:
        """Raw records with one more column, `source`: the source block of each event, null where it has none."""
        return records.withColumn("source", event_source(F.col("value"), flattened=self._flattened))

    def knows(self, table: TableId) -> bool:
        """Whether events of the table can be decoded without looking at one first."""
        return table in self._current or table in self._definitions

    def learn(self, table: TableId, records: DataFrame, *, patient: bool = False) -> list[Epoch]:
        """The schemas that `records` (raw records of one table) carry, oldest first; mostly one pass over the records.

        Records whose schema cannot be read are passed over. Where columns went and others came, and the definition
        that would tell renamed from new ones is not there yet, it is waited for if `patient`; after some times the
        columns are taken for new ones.

        Raises:
            MissingSchema: no record carries a schema, and the schema-change topic has none for them; or the
                definition is waited for.
            UnknownWriter, UnsupportedChange: of Avro, no schema can be read; or one loses NULLs.
            LogUnavailable, RegistryRefused: the registry cannot be asked.
        """
        epochs, reasons = self._take_in(table, self._schemas_in(records), records, patient)
        if not epochs:
            raise self._nothing_learned(table, reasons)
        return epochs

    def learn_from_few(self, table: TableId, few: DataFrame, *, patient: bool = False) -> list[Epoch]:
        """The schema that a few events of each partition carry, its first ones in the log; mostly it is that of all.

        Empty where they are not of one schema, or do not tell the key: then all events have to be looked at.

        Raises:
            MissingSchema: a definition is waited for, see `learn`.
        """
        found = self._schemas_in(few)
        if len(found) != 1 or found[0].schema_id == self._no_schema or found[0].sample.key is None:
            return []
        epochs, _ = self._take_in(table, found, few, patient)
        return epochs

    def _take_in(
        self, table: TableId, found: Sequence[Row], records: DataFrame, patient: bool
    ) -> tuple[list[Epoch], list[str]]:
        """Epochs of the schemas that were `found` in `records`, the last one being current; and why others are none."""
        epochs: list[Epoch] = []
        reasons: list[str] = []
        for row in found:
            try:
                epochs += self._epochs_of(table, row, records, patient)
            except DecodeError as error:
                reasons.append(error.message)
        if epochs and epochs[-1].fingerprint:
            self._current[table] = epochs[-1]
        return epochs, reasons

    def _epochs_of(self, table: TableId, row: Row, records: DataFrame, patient: bool) -> Sequence[Epoch]:
        """The epochs of one schema. Raises DecodeError where it cannot be read."""
        if row.schema_id == self._no_schema:
            # Whatever is known by position applies to them; `decode` tells the two groups apart.
            defined = self._defined(table, None)
            self._decide(table, defined, bytes(row.sample.value), _carrying(records, 0))
            return [self._with_decimals(table, epoch) for epoch in defined]
        key = None if row.sample.key is None else bytes(row.sample.key)
        schema = table_schema(bytes(row.sample.value), key, flattened=self._flattened)
        begins = beginning(bytes(row.sample.value))
        epoch = Epoch(self._completed(table, schema, row.at), row.schema_id, begins)
        self._decide(table, [epoch], bytes(row.sample.value), _carrying(records, row.schema_id))
        self._note_seen(table, epoch, row.source, patient=patient)
        return [self._with_decimals(table, epoch)]

    def _nothing_learned(self, table: TableId, reasons: Sequence[str]) -> MissingSchema:
        del reasons
        return MissingSchema(
            f"events of {table} carry no schema, and the schema-change topic has no definition of it",
            "let the connector write it (include.schema.changes=true) or use JSON with schemas",
        )

    def _schemas_in(self, records: DataFrame) -> list[Row]:
        """The schemas that `records` carry, oldest first: (schema_id, sample, first, at, source).

        `schema_id` is what `_schema_id` says, `sample` (key, value) one such record, `first` the lowest offset, `at`
        the place of the first event and `source` its source block, both null where no event tells them.
        """
        schema_id, sample = self._schema_id(F.col("value")).alias("schema_id"), F.struct("key", "value")
        given = records.where(F.col("value").isNotNull()).select("*", schema_id)
        heads = given.groupBy("schema_id", "partition").agg(
            # A truncate has no key, so it tells the schema of the table but not its key.
            F.min_by(sample, F.struct(F.col("key").isNull(), "offset")).alias("sample"),
            F.min_by("value", "offset").alias("value"),
            F.min("offset").alias("offset"),
        )
        found = self._placed(local_frame(records.sparkSession, heads.toArrow(), heads.schema))
        if any(row.at is None and row.schema_id != self._no_schema for row in found):
            # The first one is no event, whatever its schema; a later one may be.
            found = self._placed(given.withColumn("sample", sample))
        return found

    def _schema_id(self, value: SparkColumn) -> SparkColumn:
        """A number for the schema that a record carries; `_no_schema` where it carries none."""
        return fingerprint(value)

    def _placed(self, records: DataFrame) -> list[Row]:
        """One row for each schema in `records` (schema_id, offset, value, sample), in the order of their places."""
        place_of = event_place(F.col("source"))
        return (
            self.with_sources(records)
            .groupBy("schema_id")
            .agg(
                F.min_by("sample", F.struct(F.col("sample.key").isNull(), "offset")).alias("sample"),
                F.min("offset").alias("first"),
                F.min(place_of).alias("at"),
                F.min_by("source", place_of).alias("source"),
            )
            .orderBy("at", "first")
            .collect()
        )

    def wants_a_look(self, table: TableId) -> bool:
        """Whether a look at the table's next events, before they are decoded, may save decoding them twice."""
        return table not in self._current and table not in self._looked_at

    def carries_schema(self, value: bytes) -> bool:
        """Whether an event comes with its schema."""
        return value.startswith(SCHEMA_START.encode())

    def look_at_decimals(self, table: TableId, values: Iterable[bytes]) -> None:
        """Look at a few events without a schema to find out how they write decimals, where there are any."""
        self._looked_at.add(table)
        if columns := _undecided(self._defined(table, None)):
            self._note_decimals(table, 0, self._form(values, columns, 0))

    def _decide(self, table: TableId, epochs: Sequence[Epoch], sample: bytes, own: DataFrame) -> None:
        """Note how events of one schema write decimals; `own` are such events, `sample` is one; see `decimals`."""
        columns = _undecided(epochs)
        if not columns:
            return
        carried = epochs[0].fingerprint
        found = None
        if (table, carried) not in self._decimals:
            found = self._form([sample], columns, carried)
        if found is None:
            telling = telling_events(own, columns, with_schema=carried != 0, flattened=self._flattened)
            found = self._form(telling, columns, carried)
        self._note_decimals(table, carried, found)

    def _form(self, values: Iterable[bytes], columns: Sequence[Column], carried: int) -> Wire | None:
        return form_of(values, columns, with_schema=carried != 0, flattened=self._flattened)

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

    def _note_seen(self, table: TableId, epoch: Epoch, source: Row | None, *, patient: bool) -> None:
        """Remember a schema that no definition tells of."""
        line, schema = self.line(table), epoch.schema
        if source is None or source.file is None or known_as(line, schema):
            return
        at = SourcePosition(source.file, source.pos or 0, 0, source.server_id or 0, source.gtid)
        if line:
            last = set(line.versions[-1].schema.names)
            doubtful = last - set(schema.names) and set(schema.names) - last
            times = self._waited.get((table, epoch.fingerprint), 0)
            if patient and doubtful and table in self._definitions and times < _PATIENCE:
                self._waited[table, epoch.fingerprint] = times + 1
                raise MissingSchema(
                    f"columns of {table} changed their names, or went while others came, and no definition says which",
                    "let the connector write the schema-change topic (include.schema.changes=true)",
                )
        with self._lock:
            self._seen.setdefault(table, []).append(TableDefinition(table, at, source.ts_ms or 0, schema))
            self._lines.clear()

    def _defined(self, table: TableId, since: int | None) -> list[Epoch]:
        """Definitions by place → epochs; what ended before `since` is left out."""
        told = [v for v in self.line(table).own_versions if v.told]
        epochs: list[Epoch] = []
        for i, version in enumerate(told):
            end = told[i + 1].at if i + 1 < len(told) else None
            if end is None or since is None or end > since:
                epochs.append(Epoch(version.schema, first=version.at if epochs else None, end=end))
        return epochs

    def _completed(self, table: TableId, schema: TableSchema, at: int | None) -> TableSchema:
        """The schema of an event at a place with what only definitions say: fills, and the key where it has none."""
        line, current = self.line(table), self._current.get(table)
        told = _told(line, schema, at)
        columns = [_defined(c, told.column(c.name)) for c in schema.columns]
        key = schema.key or told.key or (current.schema.key if current is not None else ())
        return TableSchema(tuple(columns), key)


def _told(line: Lineage, schema: TableSchema, at: int | None) -> TableSchema:
    """The definition that an event at a place was written by, as far as it is known."""
    if not line:
        return TableSchema(())
    own = line.versions[-1 if at is None else line.index_at(at)].schema
    alike = known_as(line, schema)
    return own if not alike or set(own.names) == set(schema.names) else line.versions[alike[-1]].schema


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
