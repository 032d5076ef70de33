"""What is recorded with every commit: the ledger's entries.

A `CommitMarker` is written as JSON under `MARKER_KEY` into the summary of each snapshot that
the engine commits and, because snapshots expire, into the table's properties in the same
atomic commit.
"""

import base64
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from replicator.model.position import SourcePosition
from replicator.model.snapshot import SnapshotRead
from replicator.model.truncate import Truncate

MARKER_KEY: Final = "replicator.marker"
MARKER_VERSION: Final = 1
_ROW_BYTES: Final = 3


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (inclusive) to `end` (exclusive) of one partition of one topic."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """How many offsets it spans; Kafka may have fewer records there."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class HighWater:
    """How far one partition has come in the source's log.

    What a restarted connector sends again lies at or before it, in position *and* in time; the
    time guards against a source whose binlogs were reset and count from one again.

    Attributes:
        position: the furthest binlog position seen.
        kind: 0 after a delete or truncate, 1 after anything else, because a key update
            sends a delete and a create from one position.
        ts_ms: the latest source time seen, milliseconds since the epoch.
        nth: the number of the furthest event in its transaction, where the connector counts them.
        seen: how many events stand at this very place in the file. They are the rows of one statement; or, where the
            source compresses its transactions, all rows of a whole one.
        head: what tells the first of these events from one another (`decode.envelope.mark`), in order.
        marks: the same of the last of them.
        plain: whether the rows at this place were numbered in order, as those of one statement are.
        resent: how many of them a restarted connector has sent again so far; None where it is not about to.
        rows: the lowest 24 bits of what tells these events from one another, in order, where `marks` has not all of
            them; empty where they are too many.
    """

    position: SourcePosition
    kind: int
    ts_ms: int
    nth: int | None = None
    seen: int = 1
    head: tuple[int, ...] = ()
    marks: tuple[int, ...] = ()
    plain: bool = True
    resent: int | None = None
    rows: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "position": self.position.to_json(),
            "kind": self.kind,
            "ts_ms": self.ts_ms,
            "nth": self.nth,
            "seen": self.seen,
            "head": list(self.head),
            "marks": list(self.marks),
            "plain": self.plain,
            "resent": self.resent,
            "rows": base64.b64encode(b"".join(r.to_bytes(_ROW_BYTES, "big") for r in self.rows)).decode(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "HighWater":
        return cls(
            SourcePosition.from_json(value["position"]),
            value["kind"],
            value["ts_ms"],
            # Markers of older engines lack what follows.
            value.get("nth"),
            value.get("seen", 1),
            tuple(value.get("head", ())),
            tuple(value.get("marks", ())),
            value.get("plain", True),
            value.get("resent"),
            _rows(base64.b64decode(value.get("rows", ""))),
        )


def _rows(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[i : i + _ROW_BYTES], "big") for i in range(0, len(data), _ROW_BYTES))


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """What one partition has contributed to a table.

    Attributes:
        next_offset: the first offset that the table does not contain.
        high_water: see `HighWater`; None while only snapshot rows were seen.
    """

    next_offset: int
    high_water: HighWater | None = None


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """Up to where one lake table contains its source's changes.

    Attributes:
        mirror: the mirror's name from the config.
        sequence: 1 for a table's first commit, one more for each commit after it.
        batch: the mirror process's batch that made the commit; for people.
        progress: topic → partition → progress.
        position: the furthest source position that the table contains.
        watermark_ms: the latest source time that it contains, milliseconds since the epoch.
        committed_ms: when the commit was prepared, milliseconds since the epoch.
        truncate: the newest TRUNCATE that the table contains: changes from before it may still arrive. Markers
            of older engines lack it.
        topic_ids: topic → what tells it from a later one of the same name, where that is known. A topic that is here
            and not in `progress` was made anew, and nothing of it was taken in yet.
        snapshot: the newest snapshot of the whole table that it contains rows of.
        alone: this is the changelog of a table without a key that has no mirror.
    """

    mirror: str
    sequence: int
    batch: int
    progress: Mapping[str, Mapping[int, PartitionProgress]] = field(default_factory=dict)
    position: SourcePosition | None = None
    watermark_ms: int | None = None
    committed_ms: int = 0
    truncate: Truncate | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    snapshot: SnapshotRead | None = None
    alone: bool = False

    def next_offset(self, topic: str, partition: int) -> int | None:
        """The first offset of a partition that the table lacks; None: nothing of it is there."""
        progress = self.progress.get(topic, {}).get(partition)
        return None if progress is None else progress.next_offset

    def awaits_snapshot(self, topic: str) -> bool:
        """Whether `topic` was made anew, so that only a snapshot tells what happened in between."""
        return topic in self.topic_ids and topic not in self.progress

    def with_new_topic(self, topic: str, topic_id: str | None) -> "CommitMarker":
        """The marker of a commit after which the table has nothing of `topic`, which is another one now."""
        ids = {t: known for t, known in self.topic_ids.items() if t != topic}
        return replace(
            self,
            sequence=self.sequence + 1,
            progress={t: partitions for t, partitions in self.progress.items() if t != topic},
            committed_ms=time.time_ns() // 1_000_000,
            truncate=None,
            snapshot=None,
            topic_ids=ids if topic_id is None else {**ids, topic: topic_id},
        )

    def known_truncate(self, topic: str) -> Truncate | None:
        """The newest truncate, where it stands in `topic`."""
        t, known = self.truncate, self.progress.get(topic, {})
        if t is None or t.partition not in known or known[t.partition].next_offset <= t.offset:
            return None  # There is none, or it stands in another topic.
        return t

    def unfinished_truncate(self, topic: str, partitions: Iterable[int]) -> Truncate | None:
        """The newest truncate, where one of `partitions` may still bring changes from before it."""
        t, known = self.known_truncate(topic), self.progress.get(topic, {})
        if t is None:
            return None
        others = [known.get(p) for p in partitions if p != t.partition]
        return t if any(p is None or not _beyond(p, t) for p in others) else None

    def may_reach_beyond(self, topic: str, truncate: Truncate) -> bool:
        """Whether the table may have changes of other partitions that happened after `truncate`."""
        others = [p for n, p in self.progress.get(topic, {}).items() if n != truncate.partition]
        later = self.watermark_ms is not None and self.watermark_ms > truncate.ts_ms
        return any(later or _beyond(p, truncate) for p in others)

    def to_json(self) -> str:
        """One line of JSON, keys sorted."""
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
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> "CommitMarker":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is no marker, or of a version that this engine does not know.
        """
        value = json.loads(text)
        if value.get("version") != MARKER_VERSION:
            raise ValueError(
                f"commit marker of version {value.get('version')!r}, this engine reads {MARKER_VERSION}"
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
        )


def _beyond(progress: PartitionProgress, truncate: Truncate) -> bool:
    high = progress.high_water
    return high is not None and not truncate.undoes(high.position, high.kind, high.ts_ms)


def _progress_to_json(progress: PartitionProgress) -> dict[str, Any]:
    high_water = None if progress.high_water is None else progress.high_water.to_json()
    return {"next": progress.next_offset, "high_water": high_water}


def _progress_from_json(value: dict[str, Any]) -> PartitionProgress:
    high_water = None if value["high_water"] is None else HighWater.from_json(value["high_water"])
    return PartitionProgress(value["next"], high_water)
