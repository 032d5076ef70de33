"""One batch of one log table: read, decode, set bad events apart, add columns, stage the rows, and commit."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from replicator import failpoints
from replicator.config import Config
from replicator.config.log_tables import LogTableConfig
from replicator.decode.records import values_of
from replicator.errors import DataLossError, DecodeError, UnfitColumns
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.quarantine import Quarantine
from replicator.log_tables.avro_events import writer_of
from replicator.log_tables.decoding import LogDecoding, first_shape, listed
from replicator.log_tables.notes import Notes
from replicator.log_tables.progress import Reading, next_marker, reading
from replicator.log_tables.staging import StagedRows, stage_few, stage_many
from replicator.log_tables.table import LogTableStore
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.common import listing
from replicator.model.shapes import Shape, unknown
from replicator.model.table import LOG_UNNUMBERED_KEY, TableId
from replicator.sources.kafka.schema_registry import WriterSchemas
from replicator.sources.kafka.topic_states import TopicState
from replicator.sources.kafka.topics import KafkaTopics

_SAMPLE: Final = 2_000
"""From this number of events, the columns of a new table are learnt; later ones are added."""
_ATTEMPTS: Final = 20
"""Each attempt adds columns, so there is an end."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What a batch did.

    Attributes:
        rows, bad: number of events that were appended, and that are in quarantine.
        columns: the places of columns that were added.
        gaps: the offsets that Kafka had deleted before they were read.
        left: number of offsets that remain to be read.
        seconds: how long it took.
    """

    table: str
    rows: int
    bad: int
    columns: tuple[str, ...]
    gaps: Sequence[OffsetRange]
    left: int
    seconds: float


@dataclass(frozen=True, slots=True)
class WriterLookup:
    """Looks up the writer schemas of events in Avro, as far as events have named them.

    Attributes:
        registry: where they are; None if no events are in Avro.
        known: id → the schema; None if there is none, or if it cannot be used.
    """

    registry: WriterSchemas | None = None
    known: dict[int, str | None] = field(default_factory=dict)

    def look_up(self, ids: frozenset[int]) -> None:
        """Look up schemas. Raises LogUnavailable, RegistryRefused."""
        for number in ids:
            try:
                found = None if self.registry is None else self.registry.schema(number)
                if found is not None:
                    writer_of(found)
            except DecodeError:
                found = None
            self.known[number] = found


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Appends the next events of a topic to its table."""

    config: Config
    settings: LogTableConfig
    lake: Lake
    topics: KafkaTopics
    quarantine: Quarantine
    writers: WriterLookup

    def run(self, state: TopicState) -> Appended | None:
        """Append the next events; return None if there are none.

        Raises:
            DataLossError: Kafka does not have events any more that the table lacks.
            UnfitColumns: the events have other fields than the configuration allows.
            CommitConflict, FencedError: others changed the table meanwhile; nothing was committed.
            LogUnavailable, LakeUnavailable: Kafka or the catalog failed.
        """
        began, store = time.monotonic(), LogTableStore(self.config, self.lake, self.settings)
        table = store.load()
        marker = None if table is None else table.marker()
        read = reading(self.settings.topic, state, marker, self.config.apply.max_events)
        self._check(read, state)
        if not read.ranges:
            return None
        few = self._fetched(read.ranges)
        before: Shape = {} if table is None else store.shape(table)
        if table is None:
            table = store.create(self._first_shape(read.ranges, few))
        store.add_missing(table)
        staged = self._staged(store, table, read.ranges, few)
        self._set_apart(staged)
        after = next_marker(
            self.config.mirror.name, self.settings.topic, state, marker, read, staged.notes.newest_ms
        )
        numbered = {"partition", "offset"} <= set(self.settings.record) and not read.recreated
        self._commit(table, marker, staged, after, {} if numbered else {LOG_UNNUMBERED_KEY: "true"})
        added = () if marker is None else tuple(".".join(p) for p in unknown(before, store.shape(table)))
        notes, seconds = staged.notes, time.monotonic() - began
        return Appended(self.settings.table, notes.rows, notes.bad, added, read.gaps, read.left, seconds)

    def _check(self, read: Reading, state: TopicState) -> None:
        topic, table = self.settings.topic, self.settings.table
        again = f"to read the topic from its beginning: replicator drop {table}"
        if read.rewound:
            partition = read.rewound[0]
            raise DataLossError(
                f"partition {partition} of {topic} ends at offset {state.ends[partition]:,}, and {table} has later "
                "events: it is another topic, or Kafka lost its newest events",
                again,
            )
        if read.gaps and self.settings.on_gap == "pause":
            lost = listing(f"{r.start:,} to {r.end - 1:,} of partition {r.partition}" for r in read.gaps)
            raise DataLossError(
                f"Kafka has deleted events of {topic} that {table} lacks: offsets {lost}",
                f'to continue behind them, set on_gap = "continue" in its [[log_table]]; {again}',
            )

    def _fetched(self, ranges: Sequence[OffsetRange]) -> pa.Table | None:
        """Return the records of a small batch; None if Spark must read them."""
        apply = self.config.apply
        if sum(r.count for r in ranges) > apply.driver_max_events:
            return None
        return self.topics.fetch(ranges, apply.max_size // 8)

    def _first_shape(self, ranges: Sequence[OffsetRange], few: pa.Table | None) -> Shape:
        found: Shape = {}
        if self.settings.learns:
            each = -(-_SAMPLE // len(ranges))
            heads = [replace(r, end=min(r.end, r.start + each)) for r in ranges]
            sample = few if few is not None else self.topics.fetch(heads, self.config.apply.max_size)
            if sample is not None:
                values = values_of(sample)
                self.writers.look_up(self._decoding({}).unread_writers(values))
                found = self._decoding({}).unknown(values)
        decoding = self._decoding({})
        return first_shape(decoding, found, self.settings.event_time, self.settings.columns)

    def _decoding(self, shape: Shape) -> LogDecoding:
        settings = self.settings
        return LogDecoding(
            settings.format,
            settings.policy,
            shape,
            settings.record_columns,
            settings.nested == "struct",
            settings.delimiter,
            dict(self.writers.known),
        )

    def _staged(
        self, store: LogTableStore, table: LakeTable, ranges: Sequence[OffsetRange], few: pa.Table | None
    ) -> StagedRows:
        """Stage the rows. If events have further fields, add their columns, and stage the rows again.

        Raises:
            UnfitColumns: they have fields that the policy "freeze" does not allow.
        """
        for _ in range(_ATTEMPTS):
            decoding = self._decoding(store.shape(table))
            staged = self._stage(table, decoding, ranges, few)
            with staged.discarded_on_error():
                if not self._learnt(store, table, decoding, staged.notes):
                    return staged
            staged.discard()
        raise UnfitColumns(f"events of {self.settings.topic} have ever more fields", 'set schema = "discard"')

    def _learnt(self, store: LogTableStore, table: LakeTable, decoding: LogDecoding, notes: Notes) -> bool:
        """Look up writer schemas or add columns; return whether there were any, without which rows were decoded."""
        if notes.writers:
            self.writers.look_up(notes.writers)
            return True
        found = notes.unknown
        if found and self.settings.policy == "freeze":
            raise UnfitColumns(
                f"events of {self.settings.topic} have fields that {self.settings.table} has no columns for: "
                + listed(unknown(decoding.shape, found)),
                'name them in columns; or set schema = "evolve", "discard" or "quarantine" in its [[log_table]]',
            )
        new = decoding.new_columns(found) if self.settings.policy == "evolve" else {}
        if new:
            store.add(table, new)
            failpoints.reach("after-log-columns")
        return bool(new)

    def _stage(
        self, table: LakeTable, decoding: LogDecoding, ranges: Sequence[OffsetRange], few: pa.Table | None
    ) -> StagedRows:
        if few is not None:
            return stage_few(self.lake, table, decoding, self.settings.event_time, few)
        headers = "headers" in self.settings.record
        tasks = self.lake.spark.sparkContext.defaultParallelism
        parts = self.topics.parts(ranges, tasks, headers=headers)
        return stage_many(self.lake, table, decoding, self.settings.event_time, parts)

    def _set_apart(self, staged: StagedRows) -> None:
        """Add the bad events to the quarantine; those that a batch before has added are not added again."""
        if staged.bad is not None:
            name = TableId(self.settings.namespace, self.settings.name)
            with staged.discarded_on_error():
                self.quarantine.add(name, self.settings.topic, staged.bad, 0)
            failpoints.reach("after-log-quarantine")

    def _commit(
        self,
        table: LakeTable,
        base: CommitMarker | None,
        staged: StagedRows,
        marker: CommitMarker,
        properties: Mapping[str, str],
    ) -> None:
        failpoints.reach("after-log-files")
        publish(self.lake, table, base, marker, Staged(staged.data, properties=properties))
        failpoints.reach("after-log-commit")
