"""Commit markers: the entries of the ledger.

Each commit writes a `CommitMarker` as JSON under `MARKER_KEY` to the table's properties, the values of it that other
engines may need under names of their own, and the marker's sequence number under `COMMIT_KEY` to the summary of its
Iceberg snapshot, atomically. `schemas/` describes all of them. The summaries of all snapshots are in the
table's metadata, which each commit rewrites: markers in them would make each commit more expensive.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from replicator.model.common import now_ms
from replicator.model.position import SourcePosition
from replicator.model.recorded import Count, record_in, recorded
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
MARKER_VERSION: Final = 1


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
class HighWater:
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

    position: SourcePosition
    kind: int
    ts_ms: int
    tx_order: int | None = None
    rows_ascending: bool = True
    is_replay: bool = False
    transactions: SeenTransactions = field(default_factory=SeenTransactions)
    snapshot: SourcePosition | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "position": self.position.to_json(),
            "kind": self.kind,
            "ts_ms": self.ts_ms,
            "nth": self.tx_order,
            "plain": self.rows_ascending,
            **({"resent": True} if self.is_replay else {}),
            **(
                {}
                if self.transactions == SeenTransactions()
                else {"transactions": self.transactions.to_json()}
            ),
            **({} if self.snapshot is None else {"snapshot": self.snapshot.to_json()}),
        }

    @classmethod
    @recorded("a commit marker")
    def from_json(cls, value: dict[str, Any]) -> "HighWater":
        return cls(
            SourcePosition.from_json(value["position"]),
            value["kind"],
            value["ts_ms"],
            # Markers of older versions of the engine lack the fields below, or have others besides.
            value.get("nth"),
            value.get("plain", True),
            # Earlier versions counted the events that came again.
            value.get("resent") not in (None, False),
            SeenTransactions.from_json(value["transactions"])
            if "transactions" in value
            else SeenTransactions(),
            SourcePosition.from_json(value["snapshot"]) if "snapshot" in value else None,
        )


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of one partition in a table.

    Attributes:
        next_offset: the first offset that the table does not contain.
        high_water: see `HighWater`; None if the table contains only snapshot rows of the partition.
    """

    next_offset: Count
    high_water: HighWater | None = None


@dataclass(frozen=True, slots=True)
class CommitMarker:
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

    mirror: str
    sequence: Count
    batch: Count
    progress: Mapping[str, Mapping[int, PartitionProgress]] = field(default_factory=dict)
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
        """Return the marker as one line of JSON with sorted keys, described in schemas/commit-marker-v1.json."""
        return json.dumps(
            {
                "version": MARKER_VERSION,
                "mirror": self.mirror,
                "sequence": self.sequence,
                "batch": self.batch,
                "topics": {
                    topic: {str(p): _progress_to_json(progress) for p, progress in partitions.items()}
                    for topic, partitions in self.progress.items()
                },
                "position": None if self.position is None else self.position.to_json(),
                "watermark_ms": self.watermark_ms,
                "committed_ms": self.committed_ms,
                "truncate": None if self.truncate is None else self.truncate.to_json(),
                "topic_ids": dict(self.topic_ids),
                "snapshot": None if self.snapshot is None else self.snapshot.to_json(),
                "alone": self.alone,
                "partition_counts": dict(self.partition_counts),
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    @recorded("a commit marker")
    def from_json(cls, text: str) -> "CommitMarker":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a marker, or has an unsupported version.
        """
        value = record_in(text)
        if value.get("version") != MARKER_VERSION:
            raise ValueError(
                f"commit marker has version {value.get('version')!r}, this engine reads {MARKER_VERSION}"
            )
        return cls(
            mirror=value["mirror"],
            sequence=value["sequence"],
            batch=value["batch"],
            progress={
                topic: {int(p): _progress_from_json(progress) for p, progress in partitions.items()}
                for topic, partitions in value["topics"].items()
            },
            position=None if value["position"] is None else SourcePosition.from_json(value["position"]),
            watermark_ms=value["watermark_ms"],
            committed_ms=value["committed_ms"],
            truncate=None if (found := value.get("truncate")) is None else Truncate.from_json(found),
            topic_ids=value.get("topic_ids", {}),
            snapshot=None if (found := value.get("snapshot")) is None else SnapshotRead.from_json(found),
            alone=value.get("alone", False),
            partition_counts=value.get("partition_counts", {}),
        )


def _progress_to_json(progress: PartitionProgress) -> dict[str, Any]:
    high_water = None if progress.high_water is None else progress.high_water.to_json()
    return {"next": progress.next_offset, "high_water": high_water}


def _progress_from_json(value: dict[str, Any]) -> PartitionProgress:
    high_water = None if value["high_water"] is None else HighWater.from_json(value["high_water"])
    return PartitionProgress(value["next"], high_water)
