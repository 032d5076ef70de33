"""What a decoded batch of one table contains: counts, duplicates, how far it reaches.

One narrow pass over the decoded frame: a few numbers per event come to the driver as Arrow columns and are looked at
as whole arrays. That finds what a restarted connector sent again without a shuffle or a sort.

Which event is a duplicate, and which is not: `model.reached`. Where positions only rise, as they do unless a connector
was restarted or the source compresses its transactions, none is, and that is seen from the arrays alone. Snapshot
reads (op r) carry the snapshot's position and are never duplicates.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.redelivery import (
    MAX_ROW_HASHES,
    MAX_SHORT_HASHES,
    SHORT,
    EventPosition,
    RedeliveryDetector,
)
from replicator.model.batch_stats import (
    BAD_CODE,
    CHUNK_READ_CODE,
    LAST_READ_CODE,
    MESSAGE_CODE,
    OP_CODES,
    UNKNOWN_SCHEMA_CODE,
    BatchStats,
    DuplicateRange,
)
from replicator.model.commit_marker import HighWater, OffsetRange, PartitionProgress
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.snapshot import SnapshotRead
from replicator.model.truncate import Truncate

_Longs = npt.NDArray[np.int64]


def collect_stats(
    stats_columns: pa.Table,
    ranges: Sequence[OffsetRange],
    before: Mapping[int, PartitionProgress],
    details: "FetchDetails",
) -> BatchStats:
    """Count decoded events (see `held.control`); `before` is the progress at the start of `ranges`.

    `details` is asked only where events have to be looked at one by one.
    """
    numbers = {
        name: pc.fill_null(stats_columns.column(name), 0).to_numpy().astype(np.int64, copy=False)
        for name in ("partition", "offset", "code", "position_key", "row_key", "ts_ms", "server_id")
    }
    return count(numbers, ranges, before, _Tail(stats_columns), details)


FetchDetails = Callable[[int, int, int], pa.Table]
"""(partition, first offset, last offset) → offset, gtid, tx_order and row_hash of the events there."""


def _details(ask: FetchDetails, partition: int, offsets: _Longs) -> list[tuple[str | None, int | None, int]]:
    """(gtid, tx_order, row_hash) of the events at `offsets` (rising) of one partition."""
    found = ask(partition, int(offsets[0]), int(offsets[-1]))
    columns = (found.column(name).to_pylist() for name in ("offset", "gtid", "tx_order", "row_hash"))
    by_offset = {o: (gtid, tx_order, row_hash) for o, gtid, tx_order, row_hash in zip(*columns, strict=True)}
    return [by_offset[offset] for offset in offsets.tolist()]


class _Tail:
    """File names, GTIDs and marks of the last few events."""

    def __init__(self, stats_columns: pa.Table) -> None:
        self._rows = stats_columns.filter(pc.is_valid(stats_columns.column("row_hash")))

    def _find(self, partition: int, offset: int) -> dict[str, Any]:
        at = pc.and_(
            pc.equal(self._rows.column("partition"), partition), pc.equal(self._rows.column("offset"), offset)
        )
        rows = self._rows.filter(at).select(["file", "gtid", "tx_order"]).to_pylist()
        return rows[0] if rows else {"file": None, "gtid": None, "tx_order": None}

    def position(
        self, partition: int, offset: int, position_key: int, row_key: int, server_id: int
    ) -> SourcePosition:
        # File names are known only for events near the end of a range.
        row = self._find(partition, offset)
        return PackedPosition(position_key, row_key).unpack(row["file"], server_id, row["gtid"])

    def tx_order(self, partition: int, offset: int) -> int | None:
        """Its number in its transaction."""
        number: int | None = self._find(partition, offset)["tx_order"]
        return number

    def marks(self, partition: int, offsets: _Longs) -> list[int] | None:
        """The marks of events; None where some are outside the tail."""
        own = self._rows.filter(pc.equal(self._rows.column("partition"), partition))
        known = dict(zip(own.column("offset").to_pylist(), own.column("row_hash").to_pylist(), strict=True))
        wanted = offsets.tolist()
        return [known[offset] for offset in wanted] if known.keys() >= set(wanted) else None


def count(
    numbers: Mapping[str, _Longs],
    ranges: Sequence[OffsetRange],
    before: Mapping[int, PartitionProgress],
    tail: _Tail,
    details: FetchDetails,
) -> BatchStats:
    """The census of events given as equally long arrays; see `take`."""
    codes = numbers["code"]
    unknown_schema = int((codes == UNKNOWN_SCHEMA_CODE).sum())
    keep = np.ones(len(codes), dtype=bool)
    duplicates: list[DuplicateRange] = []
    progress: dict[int, PartitionProgress] = {}
    begins_with_snapshot = False
    for r in ranges:
        rows = np.flatnonzero(numbers["partition"] == r.partition)
        rows = rows[np.argsort(numbers["offset"][rows], kind="stable")]
        previous = before.get(r.partition)
        high = previous.high_water if previous else None
        begins_with_snapshot |= len(rows) > 0 and int(codes[rows[0]]) in (OP_CODES["r"], LAST_READ_CODE)
        logged = rows[(codes[rows] > OP_CODES["r"]) & (codes[rows] < BAD_CODE)]
        events = {name: numbers[name][logged] for name in numbers}
        if (risen := _risen(events, high, r.partition, tail, details)) is not None:
            high = risen
        elif len(logged):
            repeated, high = _one_by_one(events, high, _details(details, r.partition, events["offset"]))
            keep[logged[repeated]] = False
            duplicates += _as_ranges(r.partition, numbers["offset"][rows], ~keep[rows])
        progress[r.partition] = PartitionProgress(r.end, high)
    good = keep & (codes < MESSAGE_CODE)
    truncated = np.flatnonzero(good & (codes == OP_CODES["t"]))
    highs = [p.high_water.position for p in progress.values() if p.high_water is not None]
    times = numbers["ts_ms"][good]
    return BatchStats(
        events=_events(codes[good]),
        duplicates=tuple(duplicates),
        bad=int((codes == BAD_CODE).sum()),
        unknown_schema=unknown_schema,
        truncates=tuple(_truncate({n: int(numbers[n][i]) for n in numbers}, tail) for i in truncated),
        progress=progress,
        position=max(highs, default=None),
        watermark_ms=int(times.max()) if len(times) else None,
        messages=int((codes == MESSAGE_CODE).sum()),
        snapshots=_snapshots(numbers, tail),
        chunk_reads=bool((codes == CHUNK_READ_CODE).any()),
        begins_with_snapshot=begins_with_snapshot,
    )


def _snapshots(numbers: Mapping[str, _Longs], tail: _Tail) -> tuple[SnapshotRead, ...]:
    """The snapshots of the whole table that the batch has rows of."""
    codes = numbers["code"]
    reads = np.flatnonzero((codes == OP_CODES["r"]) | (codes == LAST_READ_CODE))
    found: dict[int, SnapshotRead] = {}
    for position_key in np.unique(numbers["position_key"][reads]).tolist() if len(reads) else ():
        rows = reads[numbers["position_key"][reads] == position_key]
        partitions, offsets = numbers["partition"][rows], numbers["offset"][rows]
        last = rows[codes[rows] == LAST_READ_CODE]
        starts = {int(p): int(offsets[partitions == p].min()) for p in np.unique(partitions)}
        end = (int(numbers["partition"][last[-1]]), int(numbers["offset"][last[-1]])) if len(last) else None
        first = rows[0]
        partition, offset, server_id = (int(numbers[n][first]) for n in ("partition", "offset", "server_id"))
        position = tail.position(partition, offset, position_key, 0, server_id)
        found[position_key] = SnapshotRead(position, int(numbers["ts_ms"][rows].min()), starts, end)
    return tuple(sorted(found.values(), key=lambda s: (s.ts_ms, s.position)))


def _events(codes: _Longs) -> dict[str, int]:
    """Op → number of events."""
    ops = np.maximum(codes, OP_CODES["r"])
    return {op: n for op, number in OP_CODES.items() if (n := int((ops == number).sum()))}


def _truncate(event: Mapping[str, int], tail: _Tail) -> Truncate:
    partition, offset = event["partition"], event["offset"]
    position = tail.position(partition, offset, event["position_key"], event["row_key"], event["server_id"])
    return Truncate(partition, offset, position, event["ts_ms"])


def _risen(
    events: Mapping[str, _Longs], high: HighWater | None, partition: int, tail: _Tail, details: FetchDetails
) -> HighWater | None:
    """The high water after events (one partition, in offset order) that are all new, because positions only rise.

    None where they do not.
    """
    position_key, row_key, servers = events["position_key"], events["row_key"], events["server_id"]
    if len(position_key) == 0:
        return high
    rising = (position_key[1:] > position_key[:-1]) | (
        (position_key[1:] == position_key[:-1]) & (row_key[1:] > row_key[:-1])
    )
    one_server = bool((servers == servers[0]).all())
    if not (
        one_server
        and bool(rising.all())
        and _after(int(position_key[0]), int(row_key[0]), int(servers[0]), high)
    ):
        return None
    last, offsets = len(position_key) - 1, events["offset"]
    there = offsets[position_key == position_key[last]]
    same_place = (
        high is not None and high.position.server_id == servers[0] and _order(high)[0] == position_key[last]
    )
    earlier = high if same_place else None
    seen = len(there) + (earlier.event_count if earlier is not None else 0)
    head = _marks(tail, details, partition, there[:MAX_SHORT_HASHES])
    newest = (
        _marks(tail, details, partition, there[-MAX_ROW_HASHES:]) if len(there) > MAX_SHORT_HASHES else head
    )
    before = RedeliveryDetector.of(earlier).short_hashes if earlier is not None else []
    rows = (*before, *(row_hash & SHORT for row_hash in head))
    offset, place = int(offsets[last]), (int(position_key[last]), int(row_key[last]), int(servers[last]))
    return HighWater(
        tail.position(partition, offset, *place),
        int(row_key[last]) & 1,
        max(int(events["ts_ms"].max()), high.ts_ms if high is not None else 0),
        tail.tx_order(partition, offset),
        seen,
        ((earlier.first_hashes if earlier is not None else ()) + head)[:MAX_ROW_HASHES],
        ((earlier.last_hashes if earlier is not None else ()) + newest)[-MAX_ROW_HASHES:],
        short_hashes=rows if MAX_ROW_HASHES < seen <= MAX_SHORT_HASHES and len(rows) == seen else (),
    )


def _marks(tail: _Tail, ask: FetchDetails, partition: int, offsets: _Longs) -> tuple[int, ...]:
    """What tells events at `offsets` (rising) from one another; Spark is asked only beyond the tail."""
    known = tail.marks(partition, offsets)
    return tuple(
        [row_hash for _, _, row_hash in _details(ask, partition, offsets)] if known is None else known
    )


def _after(position_key: int, row_key: int, server_id: int, high: HighWater | None) -> bool:
    if high is None or high.position.server_id != server_id:
        return True
    # At the very place of the furthest event there is more to look at, unless rows are simply numbered on.
    simple = high.rows_ascending and high.replayed_count is None
    return (position_key, row_key) > _order(high) if simple else position_key > _order(high)[0]


def _order(high: HighWater) -> tuple[int, int]:
    packed = PackedPosition.pack(high.position, high.kind)
    return packed.position_key, packed.row_key


def _one_by_one(
    events: Mapping[str, _Longs], high: HighWater | None, details: list[tuple[str | None, int | None, int]]
) -> tuple[npt.NDArray[np.bool_], HighWater | None]:
    """Which events (one partition, in offset order) are duplicates, and the high water after them."""
    repeated = np.zeros(len(events["position_key"]), dtype=bool)
    position_key, row_key, ts_ms, servers = (
        events[name].tolist() for name in ("position_key", "row_key", "ts_ms", "server_id")
    )
    places = [
        EventPosition(h, low, ms, server, *more)
        for h, low, ms, server, more in zip(position_key, row_key, ts_ms, servers, details, strict=True)
    ]
    reached = None if high is None else RedeliveryDetector.of(high)
    for i, place in enumerate(places):
        if reached is None:
            reached = RedeliveryDetector.at(place)
        else:
            repeated[i] = reached.has(place, places, i)
    return repeated, None if reached is None else reached.high_water()


def _as_ranges(partition: int, offsets: _Longs, repeated: npt.NDArray[np.bool_]) -> list[DuplicateRange]:
    """Runs of neighbouring duplicates among a partition's events."""
    found: list[DuplicateRange] = []
    start: int | None = None
    for i, flag in enumerate(repeated.tolist()):
        if flag and start is None:
            start = i
        elif not flag and start is not None:
            found.append(DuplicateRange(partition, int(offsets[start]), int(offsets[i - 1])))
            start = None
    if start is not None:
        found.append(DuplicateRange(partition, int(offsets[start]), int(offsets[-1])))
    return found
