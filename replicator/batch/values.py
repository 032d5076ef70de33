"""The values that the steps of a batch share: the decoded events of one table, and the part that is applied."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.batch.context import MirrorContext
from replicator.batch.events.changelog_rows import from_offset, good_events
from replicator.batch.events.executors import MaterializedEvents
from replicator.batch.events.net_changes import key_columns, key_names, not_replaced
from replicator.batch.task import Segment, TableTask
from replicator.config import TableOptions
from replicator.decode.schemas.resolution import ResolvedSchema
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.ledger import next_marker
from replicator.lake.strategies.changelog_reader import recorded_changes
from replicator.lake.table_writer import WriteTarget
from replicator.model.batch_stats import BatchStats
from replicator.model.changelog import (
    NOT_APPLIED,
    RESTATED_KEY,
    change_column,
    followed_by_mirror,
    next_restatement,
)
from replicator.model.commit_marker import CommitMarker
from replicator.model.position import PackedPosition
from replicator.model.reread import Narrowed
from replicator.model.roles import LakeRole
from replicator.model.snapshot import Truncate
from replicator.model.table import TableSchema
from replicator.schema.history.versions import SchemaHistory, SchemaVersion


@dataclass(frozen=True, slots=True)
class BatchSchema:
    """The source's schema at the end of a batch: version `version_index` of `history`, and how events map to it."""

    history: SchemaHistory
    version_index: int
    resolved: ResolvedSchema

    @property
    def version(self) -> SchemaVersion:
        """The schema version."""
        return self.history.versions[self.version_index]

    @property
    def source(self) -> TableSchema:
        """The columns of the source table."""
        return self.resolved.schema

    @property
    def decoded(self) -> TableSchema:
        """The columns of decoded rows: those of the source, then retired ones."""
        return self.resolved.decoded_schema

    @property
    def mirror(self) -> TableSchema:
        """The columns by which mirror rows are found: a table without a key has only the source's."""
        return self.decoded if self.decoded.key else self.source

    @property
    def json_columns(self) -> frozenset[str]:
        """The columns that have JSON in the source, as far as its types are known."""
        types = self.version.source_types
        return frozenset(name for name, kind in types.items() if kind.upper() == "JSON")


@dataclass(frozen=True, slots=True)
class Misread:
    """Rows that the source has and events do not show as they are, so that they must be read again.

    Attributes:
        part: which rows; None for the whole table.
    """

    part: Narrowed | None


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The decoded events of a task, bad ones and redelivered ones included.

    Attributes:
        schema: None if no record has a known schema; then all events are bad.
    """

    segment: Segment
    events: MaterializedEvents
    schema: BatchSchema | None
    stats: BatchStats

    def bad_events(self) -> dict[tuple[int, int], str]:
        """Return (partition, offset) → reason of the events that cannot be applied."""
        frame = self.events.frame
        rows = frame.where(F.col("bad").isNotNull()).select("partition", "offset", "bad").collect()
        return {(row.partition, row.offset): row.bad for row in rows}

    def good_events(self) -> MaterializedEvents:
        """Return the events to apply: good, and not delivered before."""
        if self.stats.all_to_apply:
            return self.events
        return self.events.filtered(good_events(self.events.frame, self.stats.duplicates))


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The part of a batch that is applied to one table.

    Attributes:
        events: the events to apply.
        stats: statistics of all events of the task.
        has_mirror: whether the table has a mirror; otherwise it has no key, and is configured to have a changelog only.
        changelog, mirror: the lake tables to write, with the batch's schema; None before `evolve_tables`, and for a
            table that is not written.
        user_columns: the columns of the mirror that others added.
        misread: the rows that must be read again once the batch is applied.
    """

    segment: Segment
    schema: BatchSchema
    events: MaterializedEvents
    stats: BatchStats
    has_mirror: bool = True
    changelog: LakeTable | None = None
    mirror: LakeTable | None = None
    user_columns: tuple[str, ...] = ()
    misread: Misread | None = None

    @property
    def context(self) -> MirrorContext:
        """The services."""
        return self.segment.context

    @property
    def task(self) -> TableTask:
        """The task."""
        return self.segment.task

    @property
    def options(self) -> TableOptions:
        """How the table is configured."""
        return self.segment.options

    def target(self, role: LakeRole, table: LakeTable) -> WriteTarget:
        """Return `table` as the target of a commit."""
        return self.context.writer.target(self.task.table, role, table)

    def next_marker(self, base: CommitMarker | None) -> CommitMarker:
        """Return the marker of the commit that adds this batch to a table whose newest marker is `base`."""
        return task_marker(self.context, self.task, base, self.stats)

    def written_offsets(self, role: LakeRole) -> dict[int, int]:
        """Return partition → next offset, for partitions with events of this batch in the changelog or mirror."""
        base = self.segment.progress.marker(role)
        if base is None:
            return {}
        known = {r.partition: base.next_offset(self.task.topic, r.partition) for r in self.task.ranges}
        return {
            r.partition: n for r in self.task.ranges if (n := known[r.partition]) is not None and n > r.start
        }

    def changelog_events(self) -> DataFrame:
        """Return the events that the changelog lacks."""
        return from_offset(self.events.frame, self.written_offsets(LakeRole.CHANGELOG))

    def numbered(self, events: DataFrame, commit: int) -> DataFrame:
        """Return events with the column commit: the number of the changelog's commit that adds them."""
        return events.withColumn("commit", F.lit(commit).cast("long"))

    def mirror_events(self) -> MaterializedEvents:
        """Return the events that may change the mirror."""
        return self.events

    def restatement(self, role: LakeRole, commit: int) -> Mapping[str, str | None]:
        """Return the property that commit number `commit` to one of the tables sets; see `model.changelog`."""
        del role, commit
        return {}

    def earlier_truncate(self) -> Truncate | None:
        """Return a TRUNCATE that the mirror contains, if events of this batch may be older."""
        return None

    @property
    def is_in_log_order(self) -> bool:
        """Whether every event follows all events of its partition that the lake contains."""
        return True


@dataclass(frozen=True, slots=True)
class QuarantineReplay(TableBatch):
    """Quarantined events whose offsets the table is already past: the lake may contain later changes of their rows."""

    def written_offsets(self, role: LakeRole) -> dict[int, int]:  # noqa: ARG002 as the class it replaces
        """Return nothing: offsets do not show which of these events the lake contains."""
        return {}

    def changelog_events(self) -> DataFrame:
        """Return the events that the changelog lacks; an interrupted replay may have added some."""
        if self.changelog is None:
            return self.events.frame
        ends = {r.partition: r.end for r in self.task.ranges}
        change = change_column(self.schema.decoded.names)
        recorded = recorded_changes(self.context.lake, self.changelog, change, (), ends)
        position, events = ["partition", "offset", "position_key"], self.events.frame
        # The changelog may be large; the events are few.
        known = recorded.join(F.broadcast(events.select(*position)), position, "left_semi").select(*position)
        return events.join(F.broadcast(known), position, "left_anti")

    def numbered(self, events: DataFrame, commit: int) -> DataFrame:
        """Return events with the column commit; `NOT_APPLIED` for those that the mirror will not get."""
        place = ["partition", "offset"]
        applied = self.mirror_events().frame.select(*place)
        # `super` cannot find a dataclass with slots.
        numbered = events.join(F.broadcast(TableBatch.numbered(self, applied, commit)), place, "left")
        return numbered.withColumn("commit", F.coalesce("commit", F.lit(NOT_APPLIED).cast("long")))

    def mirror_events(self) -> MaterializedEvents:
        """Return the events whose keys have no later change in the changelog, and whose rows are still in the source.

        Others are those that a snapshot replaced, and those of a table that was dropped and created again since.
        """
        lake, schema, base = self.context.lake, self.schema.mirror, self.segment.progress.mirror
        changelog = lake.load(self.context.config.lake.changes_namespace, self.task.table.name)
        if changelog is None or base is None:
            return self.events
        names, events = key_names(schema), self.events.frame
        if base.snapshot is not None and base.snapshot.is_initial:
            events = not_replaced(events, base.snapshot)
        if (removed := self._of_earlier_tables()).num_rows:
            events = events.join(
                F.broadcast(local_frame(self.context.spark, removed)), ["partition", "offset"], "left_anti"
            )
        ends = _next_offsets(base, self.task.topic)
        later = recorded_changes(lake, changelog, change_column(schema.names), schema.key, ends)
        keyed = events.where(F.col("op") != "t").select(
            *key_columns(schema), "partition", F.col("offset").alias("own")
        )
        superseded = (
            later.join(F.broadcast(keyed), [*names, "partition"])
            .where(F.col("offset") > F.col("own"))
            .select("partition", F.col("own").alias("offset"))
            .distinct()
        )
        return self.events.filtered(
            events.join(F.broadcast(superseded), ["partition", "offset"], "left_anti")
        )

    def _of_earlier_tables(self) -> pa.Table:
        """Return partition and offset of the events from before the source table was last dropped and recreated."""
        history, state = self.schema.history, self.segment.progress.mirror_schema
        at = -1 if state is None else state.at
        recreated = max((i for i, v in enumerate(history.versions) if v.recreated and v.at <= at), default=0)
        fields = ["partition", "offset", "position_key", "gtid", "ts_ms"]
        # The events are few.
        events = self.events.frame.select(*fields).toArrow()
        keys, gtids, times = (events.column(name).to_pylist() for name in fields[2:])
        earlier = [
            key is not None
            and history.index_of(PackedPosition(key, 0).unpack(gtid=gtid), time or 0) < recreated
            for key, gtid, time in zip(keys, gtids, times, strict=True)
        ]
        return events.select(fields[:2]).filter(pa.array(earlier, pa.bool_()))

    def restatement(self, role: LakeRole, commit: int) -> Mapping[str, str | None]:
        """Return the property: the rows have earlier offsets than others that the tables contain."""
        logged, known = (
            None if table is None else table.property(RESTATED_KEY) for table in (self.changelog, self.mirror)
        )
        if role is LakeRole.MIRROR:
            return {RESTATED_KEY: followed_by_mirror(logged, known)}
        ranges = ",".join(f"{r.partition}:{r.start}-{r.end}" for r in self.task.ranges)
        return {RESTATED_KEY: next_restatement(logged, known, f"replay-{ranges}", commit)}

    def earlier_truncate(self) -> Truncate | None:
        """Return the newest TRUNCATE that the mirror contains: it may have removed the rows of these events."""
        base = self.segment.progress.mirror
        if base is None:
            return None
        found = base.known_truncate(self.task.topic)
        if found is not None and base.snapshot is not None and found.position == base.snapshot.position:
            return None  # It is the beginning of the snapshot, and `mirror_events` knows its rows.
        return found

    @property
    def is_in_log_order(self) -> bool:
        """False: see the class."""
        return False


def task_marker(
    context: MirrorContext, task: TableTask, base: CommitMarker | None, stats: BatchStats
) -> CommitMarker:
    """Return the marker of the commit that adds `task` to a table whose newest marker is `base`."""
    partitions = context.partition_counts.first(task.topic)
    return next_marker(
        context.config.mirror.name, task.batch, task.topic, task.topic_id, base, stats, partitions
    )


def _next_offsets(marker: CommitMarker, topic: str) -> Mapping[int, int]:
    return {n: p.next_offset for n, p in marker.progress.get(topic, {}).items()}
