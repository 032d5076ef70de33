"""Commit markers: the entries of the ledger.

Each commit writes a `CommitMarker` as JSON under `MARKER_KEY` to the table's properties, the values of it that other
engines may need under names of their own, and the marker's sequence number under `COMMIT_KEY` to the summary of its
Iceberg snapshot, atomically. `schemas/` describes all of them. The summaries of all snapshots are in the
table's metadata, which each commit rewrites: markers in them would make each commit more expensive.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from replicator.model.common import now_ms
from replicator.model.position import SourcePosition
from replicator.model.recorded import UNLESS_NONE, Count, Part, Record
from replicator.model.seen_transactions import SeenTransactions
from replicator.model.snapshot import SnapshotRead, Truncate

MARKER_KEY: Final = "replicator.marker"
COMMIT_KEY: Final = "replicator.commit"
POSITION_KEY: Final = "replicator.position"
GTID_KEY: Final = "replicator.gtid"
WATERMARK_KEY: Final = "replicator.watermark-ms"
SNAPSHOT_KEY: Final = "replicator.snapshot-id"
"""Table property with the snapshot whose rows the marker describes."""
SEQUENCE_KEY: Final = "replicator.sequence-number"
"""Table property with Iceberg's sequence number of that snapshot."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (inclusive) to `end` (exclusive) of one partition of one topic."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """Number of offsets in the range; Kafka may have fewer records."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class HighWater(Part):
    """The furthest position and time that one partition has reached.

    Events that a restarted connector sends again lie at or before it, in position *and* in time. The time guards
    against a source whose binlogs were reset, so that its positions start at one again.

    Attributes:
        position: the furthest binlog position seen.
        kind: 0 after a delete or truncate, 1 after anything else: a key update sends a delete and a create from one
            position.
        ts_ms: the latest source time seen, milliseconds since the epoch.
        tx_order: number of the furthest event in its transaction; None if the connector does not count events.
        rows_ascending: whether the row numbers at `position` ascended, as those of one statement do.
        is_replay: whether a restarted connector has sent events again, and not yet the furthest one.
        transactions: the transactions that were seen. Rebuilt tables, and markers of older versions, have none.
        snapshot: position of a snapshot of the whole table whose rows came after the furthest event, and no change
            since; otherwise None. If the snapshot is of a replica that lagged, the rows lack changes that were
            delivered before. So the changes that follow the rows are new.
    """

    WHAT = "the progress of a commit marker"
    position: SourcePosition
    kind: int
    ts_ms: int
    # Markers of older versions of the engine lack the fields below, or have others besides.
    tx_order: Annotated[int | None, Field(alias="nth")] = None
    rows_ascending: Annotated[bool, Field(alias="plain")] = True
    # Earlier versions counted the events that came again.
    is_replay: Annotated[
        bool,
        Field(alias="resent", exclude_if=lambda found: not found),
        BeforeValidator(lambda found: found not in (None, False)),
    ] = False
    transactions: Annotated[SeenTransactions, Field(exclude_if=lambda found: found == SeenTransactions())] = (
        field(default_factory=SeenTransactions)
    )
    snapshot: Annotated[SourcePosition | None, UNLESS_NONE] = None


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of one partition in a table.

    Attributes:
        next_offset: the first offset that the table does not contain.
        high_water: see `HighWater`; None if the table contains only snapshot rows of the partition.
    """

    next_offset: Annotated[Count, Field(alias="next")]
    high_water: HighWater | None = None


@dataclass(frozen=True, slots=True)
class CommitMarker(Record):
    """The progress of one lake table: how far it contains the changes of its source table.

    Attributes:
        mirror: the mirror's name from the configuration.
        sequence: 1 for a table's first commit, one more for each later commit.
        batch: number of the process's batch that made the commit; informative only.
        progress: topic → partition → progress.
        position: the furthest source position that the table contains.
        watermark_ms: the latest source time of a change that it contains, milliseconds since the epoch.
        committed_ms: when the commit was prepared, milliseconds since the epoch.
        truncate: the newest TRUNCATE that the table contains. Markers of older versions of the engine lack it.
        topic_ids: topic → topic id, if known. A topic that is here and not in `progress` was recreated, and none of its
            events has been applied yet.
        snapshot: the newest snapshot of the whole table of which it contains rows.
        alone: whether this is the changelog of a table without a key and without a mirror.
        partition_counts: topic → number of its partitions, if known. Once it has more, the order of its events is
            unknown, because Kafka chooses the partition of a row by the number.
    """

    WHAT = "a commit marker"
    mirror: str
    sequence: Count
    batch: Count
    progress: Annotated[Mapping[str, Mapping[int, PartitionProgress]], Field(alias="topics")] = field(
        default_factory=dict
    )
    position: SourcePosition | None = None
    watermark_ms: int | None = None
    committed_ms: int = 0
    truncate: Truncate | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    snapshot: SnapshotRead | None = None
    alone: bool = False
    partition_counts: Mapping[str, int] = field(default_factory=dict)

    def next_offset(self, topic: str, partition: int) -> int | None:
        """Return the first offset of a partition that the table lacks; None if it has no event of the partition."""
        progress = self.progress.get(topic, {}).get(partition)
        return None if progress is None else progress.next_offset

    def awaits_snapshot(self, topic: str) -> bool:
        """Return whether `topic` was recreated, so that only a snapshot has the changes in between."""
        return topic in self.topic_ids and topic not in self.progress

    def with_new_topic(
        self, topic: str, topic_id: str | None, partitions: int | None = None
    ) -> "CommitMarker":
        """Return the marker of a commit that resets the progress in `topic`, which was recreated.

        `partitions` is the number of its partitions, if known.
        """
        counts = {t: count for t, count in self.partition_counts.items() if t != topic}
        ids = {t: known for t, known in self.topic_ids.items() if t != topic}
        return replace(
            self,
            sequence=self.sequence + 1,
            progress={t: partitions for t, partitions in self.progress.items() if t != topic},
            committed_ms=now_ms(),
            truncate=None,
            snapshot=None,
            topic_ids=ids if topic_id is None else {**ids, topic: topic_id},
            partition_counts=counts if partitions is None else {**counts, topic: partitions},
        )

    def known_truncate(self, topic: str) -> Truncate | None:
        """Return the newest truncate if it is in `topic`."""
        t, known = self.truncate, self.progress.get(topic, {})
        if t is None or t.partition not in known or known[t.partition].next_offset <= t.offset:
            return None  # There is no truncate, or it is in another topic.
        return t

    def properties(self) -> dict[str, str | None]:
        """Return the table properties of a commit with this marker; None for one that the table must not have.

        The properties besides `MARKER_KEY` are for readers; the engine itself reads none of them.
        """
        position, watermark_ms = self.position, self.watermark_ms
        return {
            MARKER_KEY: self.to_json(),
            POSITION_KEY: None if position is None else str(replace(position, gtid=None)),
            GTID_KEY: None if position is None else position.gtid,
            WATERMARK_KEY: None if watermark_ms is None else str(watermark_ms),
        }

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(self.values(), sort_keys=True, separators=(",", ":"))
