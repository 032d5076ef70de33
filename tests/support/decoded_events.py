"""Decoded events as the statistics of a batch read them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.events.statistics import collect_stats
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import HighWater, OffsetRange, PartitionProgress
from replicator.model.position import FILE_SHIFT

TOPIC = "shop.shop.orders"
CODES = {
    "r": 0,
    "c": 1,
    "u": 2,
    "d": 3,
    "t": 4,
    "m": 7,
    "bad": 8,
    "unknown_schema": 9,
    "chunk": -1,
    "last": -2,
    "first": -3,
}


@dataclass(frozen=True)
class DecodedEvent:
    """A decoded event as the statistics read it."""

    op: str
    file: int
    pos: int
    row: int = 0
    ts_ms: int = 1000
    server_id: int = 1
    partition: int = 0
    gtid: str | None = None
    tx_order: int | None = None
    content: int = 0

    @property
    def position_key(self) -> int:
        return (self.file << FILE_SHIFT) + self.pos

    @property
    def row_key(self) -> int:
        return self.row * 2 + (0 if self.op in "dt" else 1)


def run(
    events: Sequence[DecodedEvent],
    before: dict[int, PartitionProgress] | None = None,
    *,
    partitions: int = 1,
    tail: int = 16,
    compressed: bool = False,
) -> BatchStats:
    """Collect the statistics of events at ascending offsets in the order given, from the end of `before` on.

    `compressed` is what is known about the position of any event.
    """
    before = before or {}
    next_offset = {p: before[p].next_offset if p in before else 0 for p in range(partitions)}
    starts = dict(next_offset)
    offsets = []
    for e in events:
        offsets.append(next_offset[e.partition])
        next_offset[e.partition] += 1
    in_tail = [o >= next_offset[e.partition] - tail for e, o in zip(events, offsets, strict=True)]
    columns = {
        "partition": [e.partition for e in events],
        "offset": offsets,
        "code": [CODES[e.op] for e in events],
        "position_key": [e.position_key for e in events],
        "row_key": [e.row_key for e in events],
        "ts_ms": [e.ts_ms for e in events],
        "server_id": [e.server_id for e in events],
        "gtid_origin": [hash(e.gtid.rpartition(":")[0]) if e.gtid else 0 for e in events],
        "gtid_number": [int(e.gtid.rpartition(":")[2]) if e.gtid else 0 for e in events],
    }
    names = {
        "file": pa.array([f"mysql-bin.{e.file:06d}" for e in events], pa.string()),
        "gtid": pa.array([e.gtid for e in events], pa.string()),
        "tx_order": pa.array([e.tx_order for e in events], pa.int64()),
    }
    numbers = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    outside = pa.array([not kept for kept in in_tail], pa.bool_())
    stats_columns = pa.table(numbers | {n: pc.if_else(outside, None, values) for n, values in names.items()})

    def details(partition: int, first: int, last: int) -> pa.Table:
        whole = pa.table(numbers | names)
        inside = pc.and_(
            pc.equal(whole.column("partition"), partition),
            pc.and_(
                pc.greater_equal(whole.column("offset"), first), pc.less_equal(whole.column("offset"), last)
            ),
        )
        return whole.filter(inside)

    ranges = [OffsetRange(TOPIC, p, starts[p], next_offset[p]) for p in range(partitions)]
    return collect_stats(stats_columns, ranges, before, details, lambda _: compressed)


def changes(*positions: int) -> list[DecodedEvent]:
    return [DecodedEvent("u", 3, pos, ts_ms=1000 + pos) for pos in positions]


def again(progress: PartitionProgress) -> HighWater | None:
    """Return the high-water mark after a round trip through a marker."""
    high = progress.high_water
    return None if high is None else HighWater.of_values(high.values())
