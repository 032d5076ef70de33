"""What one batch of a table contains, as counted by `replicator.census`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from replicator.model.change import RowKind
from replicator.model.commit import PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.snapshot import SnapshotRead
from replicator.model.truncate import Truncate

UNFAMILIAR: Final = "a schema that is not known yet"
"""The verdict on events that carry another schema than they were decoded with: learn it and decode again."""

STRAY: Final = "no schema that can be read"
"""The verdict on events whose schema is still unfamiliar after everything was learned."""

OP_CODES: Final[Mapping[str, int]] = {"r": 0, "c": 1, "u": 2, "d": 3, "t": 4}
"""Debezium's op as a number, as decoded frames have it."""

CHUNK_READ_CODE: Final = -1
"""The number of a row (op r) that an incremental snapshot read: part of a table, between other changes."""

LAST_READ_CODE: Final = -2
"""The number of the last row (op r) of a snapshot that read the whole table."""

MESSAGE_CODE: Final = 7
"""The number of an event that says nothing about a row (op m)."""

BAD_CODE: Final = 8
"""The number of an event that cannot be applied."""

UNFAMILIAR_CODE: Final = 9
"""The number of an event with the verdict UNFAMILIAR."""


@dataclass(frozen=True, slots=True)
class DuplicateRange:
    """Offsets `first` to `last`, both inclusive, of one partition were delivered before."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Census:
    """What a decoded batch of one table contains.

    Attributes:
        events: op → number of events, duplicates and bad ones left out.
        duplicates: what was delivered before.
        bad: events that must go to quarantine.
        unfamiliar: events with a schema that they were not decoded with; nothing else holds where this is not 0.
        truncates: in offset order.
        progress: partition → how far it has come with this batch.
        position: the furthest position of the batch, None where it has only snapshot rows or nothing.
        watermark_ms: the latest source time in it.
        messages: events that say nothing about a row; they are passed over.
        snapshots: the snapshots that the batch has rows of, in the order in which they began.
        chunk_reads: whether it has rows that an incremental snapshot read.
        begins_with_snapshot: whether the first event of some partition is a row of one of these.
    """

    events: Mapping[str, int]
    duplicates: tuple[DuplicateRange, ...]
    bad: int
    unfamiliar: int
    truncates: tuple[Truncate, ...]
    progress: Mapping[int, PartitionProgress]
    position: SourcePosition | None
    watermark_ms: int | None
    messages: int = 0
    snapshots: tuple[SnapshotRead, ...] = ()
    chunk_reads: bool = False
    begins_with_snapshot: bool = False

    @property
    def all_to_apply(self) -> bool:
        """Whether every event is to be applied."""
        return not (self.bad or self.duplicates or self.messages)

    @property
    def changes(self) -> int:
        """Events to apply."""
        return sum(self.events.values())

    def rows_by_kind(self, *, with_before: bool = True) -> dict[str, int]:
        """Row kind → changelog rows that these events make; updates of flattened events have no row before."""
        events = self.events
        rows = {
            RowKind.INSERT: events.get("c", 0) + events.get("r", 0),
            RowKind.UPDATE_BEFORE: events.get("u", 0) if with_before else 0,
            RowKind.UPDATE_AFTER: events.get("u", 0),
            RowKind.DELETE: events.get("d", 0),
            RowKind.TRUNCATE: events.get("t", 0),
        }
        return {str(kind): count for kind, count in rows.items() if count}


def joined(parts: Sequence[Census]) -> Census:
    """What several parts of one batch, one after the other, contain together."""
    events: dict[str, int] = {}
    progress: dict[int, PartitionProgress] = {}
    for part in parts:
        progress |= part.progress
        for op, count in part.events.items():
            events[op] = events.get(op, 0) + count
    positions = [p.position for p in parts if p.position is not None]
    return Census(
        events,
        tuple(d for p in parts for d in p.duplicates),
        sum(p.bad for p in parts),
        sum(p.unfamiliar for p in parts),
        tuple(t for p in parts for t in p.truncates),
        progress,
        max(positions, default=None),
        max((p.watermark_ms for p in parts if p.watermark_ms is not None), default=None),
    )
