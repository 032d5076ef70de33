"""Statistics of one batch of a table, as collected by `replicator.batch.events.statistics`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from replicator.model.changelog import RowKind
from replicator.model.commit_marker import PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.snapshot import SnapshotRead, Truncate

UNKNOWN_SCHEMA: Final = "a schema that is not known yet"
"""Verdict on events that carry another schema than the one they were decoded with: discover it and decode again."""

UNDECODABLE: Final = "no schema that can be read"
"""Verdict on events whose schema is still unknown after discovery."""

OP_CODES: Final[Mapping[str, int]] = {"r": 0, "c": 1, "u": 2, "d": 3, "t": 4}
"""Debezium's `op` → its numeric code in decoded frames."""

CHUNK_READ_CODE: Final = -1
"""Code of a row (op r) from an incremental snapshot, which reads a part of a table between other changes."""

LAST_READ_CODE: Final = -2
"""Code of the last row (op r) of a snapshot of the whole table."""

FIRST_READ_CODE: Final = -3
"""Code of the first row (op r) of a snapshot of the whole table, unless it is also the last one."""

MESSAGE_CODE: Final = 7
"""Code of a logical message (op m), which changes no row."""

BAD_CODE: Final = 8
"""Code of an event that cannot be applied."""

UNKNOWN_SCHEMA_CODE: Final = 9
"""Code of an event with the verdict `UNKNOWN_SCHEMA`."""


@dataclass(frozen=True, slots=True)
class DuplicateRange:
    """Offsets `first` to `last` (both inclusive) of one partition, whose events were delivered before."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EarliestEvent:
    """The lowest position, the lowest GTID and the earliest source time (milliseconds; 0 if unknown) of some events.

    Each may be that of another event. If this is after the beginning of a schema version, then so is each event.
    """

    position: SourcePosition
    ts_ms: int


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Statistics of a decoded batch of one table.

    Attributes:
        events: op → number of events, without duplicates and bad events.
        duplicates: offsets of events that were delivered before.
        bad: number of events that must be quarantined.
        unknown_schema: number of events with the verdict `UNKNOWN_SCHEMA`; if not 0, all other fields are invalid.
        truncates: in offset order.
        progress: partition → its progress after this batch.
        position: the furthest position of the batch; None if it is empty or has only snapshot rows.
        watermark_ms: the latest source time of the batch, milliseconds since the epoch.
        messages: number of logical messages, which change no row and are skipped.
        snapshots: the snapshots with rows in the batch, in the order in which they began.
        chunk_reads: whether the batch has rows of an incremental snapshot.
        last_changes: partition → offset of its last change, also of a duplicate; without rows of snapshots.
        begins_with_snapshot: whether the first event of any partition is a row of one of `snapshots`, and no partition
            may have lost earlier rows of it: each begins at offset 0, or with the row that is marked as the first one.
        earliest: the earliest of `events`; None if there are none, or if they cannot be compared with each other.
    """

    events: Mapping[str, int]
    duplicates: tuple[DuplicateRange, ...]
    bad: int
    unknown_schema: int
    truncates: tuple[Truncate, ...]
    progress: Mapping[int, PartitionProgress]
    position: SourcePosition | None
    watermark_ms: int | None
    messages: int = 0
    snapshots: tuple[SnapshotRead, ...] = ()
    chunk_reads: bool = False
    begins_with_snapshot: bool = False
    last_changes: Mapping[int, int] = field(default_factory=dict)
    earliest: EarliestEvent | None = None

    @property
    def all_to_apply(self) -> bool:
        """Whether every event must be applied."""
        return not (self.bad or self.duplicates or self.messages)

    @property
    def changes(self) -> int:
        """Number of events to apply."""
        return sum(self.events.values())

    def rows_by_kind(self, *, with_before: bool = True) -> dict[str, int]:
        """Return row kind → number of changelog rows; updates in flattened events have no before-image."""
        events = self.events
        rows = {
            RowKind.INSERT: events.get("c", 0) + events.get("r", 0),
            RowKind.UPDATE_BEFORE: events.get("u", 0) if with_before else 0,
            RowKind.UPDATE_AFTER: events.get("u", 0),
            RowKind.DELETE: events.get("d", 0),
            RowKind.TRUNCATE: events.get("t", 0),
        }
        return {str(kind): count for kind, count in rows.items() if count}


def joined(parts: Sequence[BatchStats]) -> BatchStats:
    """Merge the statistics of consecutive parts of one batch."""
    events: dict[str, int] = {}
    progress: dict[int, PartitionProgress] = {}
    for part in parts:
        progress |= part.progress
        for op, count in part.events.items():
            events[op] = events.get(op, 0) + count
    positions = [p.position for p in parts if p.position is not None]
    return BatchStats(
        events,
        tuple(d for p in parts for d in p.duplicates),
        sum(p.bad for p in parts),
        sum(p.unknown_schema for p in parts),
        tuple(t for p in parts for t in p.truncates),
        progress,
        max(positions, default=None),
        max((p.watermark_ms for p in parts if p.watermark_ms is not None), default=None),
    )
