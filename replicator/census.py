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

from replicator.model.census import (
    BAD_CODE,
    CHUNK_READ_CODE,
    LAST_READ_CODE,
    MESSAGE_CODE,
    OP_CODES,
    UNFAMILIAR_CODE,
    Census,
    DuplicateRange,
)
from replicator.model.commit import HighWater, OffsetRange, PartitionProgress
from replicator.model.position import FILE_SHIFT, SourcePosition
from replicator.model.reached import MOST_MARKS, MOST_ROWS, SHORT, Place, Reached
from replicator.model.snapshot import SnapshotRead
from replicator.model.truncate import Truncate

_Longs = npt.NDArray[np.int64]


def take(
    control: pa.Table,
    ranges: Sequence[OffsetRange],
    before: Mapping[int, PartitionProgress],
    details: "AskDetails",
) -> Census:
    """Count decoded events (see `held.control`); `before` is the progress at the start of `ranges`.

    `details` is asked only where events have to be looked at one by one.
    """
    numbers = {
        name: pc.fill_null(control.column(name), 0).to_numpy().astype(np.int64, copy=False)
        for name in ("partition", "offset", "code", "hi", "lo", "ts_ms", "server_id")
    }
    return count(numbers, ranges, before, _Tail(control), details)


AskDetails = Callable[[int, int, int], pa.Table]
"""(partition, first offset, last offset) → offset, gtid, nth and mark of the events there."""


def _details(ask: AskDetails, partition: int, offsets: _Longs) -> list[tuple[str | None, int | None, int]]:
    """(gtid, nth, mark) of the events at `offsets` (rising) of one partition."""
    found = ask(partition, int(offsets[0]), int(offsets[-1]))
    columns = (found.column(name).to_pylist() for name in ("offset", "gtid", "nth", "mark"))
    by_offset = {o: (gtid, nth, mark) for o, gtid, nth, mark in zip(*columns, strict=True)}
    return [by_offset[offset] for offset in offsets.tolist()]


class _Tail:
    """File names, GTIDs and marks of the last few events."""

    def __init__(self, control: pa.Table) -> None:
        self._rows = control.filter(pc.is_valid(control.column("mark")))

    def _find(self, partition: int, offset: int) -> dict[str, Any]:
        at = pc.and_(
            pc.equal(self._rows.column("partition"), partition), pc.equal(self._rows.column("offset"), offset)
        )
        rows = self._rows.filter(at).select(["file", "gtid", "nth"]).to_pylist()
        return rows[0] if rows else {"file": None, "gtid": None, "nth": None}

    def position(self, partition: int, offset: int, hi: int, lo: int, server_id: int) -> SourcePosition:
        number, pos = hi >> FILE_SHIFT, hi & ((1 << FILE_SHIFT) - 1)
        row = self._find(partition, offset)
        # Outside the tail the name is not at hand; its number is what orders it.
        return SourcePosition(row["file"] or f"binlog.{number:06d}", pos, lo >> 1, server_id, row["gtid"])

    def nth(self, partition: int, offset: int) -> int | None:
        """Its number in its transaction."""
        number: int | None = self._find(partition, offset)["nth"]
        return number

    def marks(self, partition: int, offsets: _Longs) -> list[int] | None:
        """The marks of events; None where some are outside the tail."""
        own = self._rows.filter(pc.equal(self._rows.column("partition"), partition))
        known = dict(zip(own.column("offset").to_pylist(), own.column("mark").to_pylist(), strict=True))
        wanted = offsets.tolist()
        return [known[offset] for offset in wanted] if known.keys() >= set(wanted) else None


def count(
    numbers: Mapping[str, _Longs],
    ranges: Sequence[OffsetRange],
    before: Mapping[int, PartitionProgress],
    tail: _Tail,
    details: AskDetails,
) -> Census:
    """The census of events given as equally long arrays; see `take`."""
    codes = numbers["code"]
    unfamiliar = int((codes == UNFAMILIAR_CODE).sum())
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
    return Census(
        events=_events(codes[good]),
        duplicates=tuple(duplicates),
        bad=int((codes == BAD_CODE).sum()),
        unfamiliar=unfamiliar,
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
    for hi in np.unique(numbers["hi"][reads]).tolist() if len(reads) else ():
        rows = reads[numbers["hi"][reads] == hi]
        partitions, offsets = numbers["partition"][rows], numbers["offset"][rows]
        last = rows[codes[rows] == LAST_READ_CODE]
        starts = {int(p): int(offsets[partitions == p].min()) for p in np.unique(partitions)}
        end = (int(numbers["partition"][last[-1]]), int(numbers["offset"][last[-1]])) if len(last) else None
        first = rows[0]
        partition, offset, server_id = (int(numbers[n][first]) for n in ("partition", "offset", "server_id"))
        position = tail.position(partition, offset, hi, 0, server_id)
        found[hi] = SnapshotRead(position, int(numbers["ts_ms"][rows].min()), starts, end)
    return tuple(sorted(found.values(), key=lambda s: (s.ts_ms, s.position)))


def _events(codes: _Longs) -> dict[str, int]:
    """Op → number of events."""
    ops = np.maximum(codes, OP_CODES["r"])
    return {op: n for op, number in OP_CODES.items() if (n := int((ops == number).sum()))}


def _truncate(event: Mapping[str, int], tail: _Tail) -> Truncate:
    partition, offset = event["partition"], event["offset"]
    position = tail.position(partition, offset, event["hi"], event["lo"], event["server_id"])
    return Truncate(partition, offset, position, event["ts_ms"])


def _risen(
    events: Mapping[str, _Longs], high: HighWater | None, partition: int, tail: _Tail, details: AskDetails
) -> HighWater | None:
    """The high water after events (one partition, in offset order) that are all new, because positions only rise.

    None where they do not.
    """
    hi, lo, servers = events["hi"], events["lo"], events["server_id"]
    if len(hi) == 0:
        return high
    rising = (hi[1:] > hi[:-1]) | ((hi[1:] == hi[:-1]) & (lo[1:] > lo[:-1]))
    one_server = bool((servers == servers[0]).all())
    if not (one_server and bool(rising.all()) and _after(int(hi[0]), int(lo[0]), int(servers[0]), high)):
        return None
    last, offsets = len(hi) - 1, events["offset"]
    there = offsets[hi == hi[last]]
    same_place = high is not None and high.position.server_id == servers[0] and _order(high)[0] == hi[last]
    earlier = high if same_place else None
    seen = len(there) + (earlier.seen if earlier is not None else 0)
    head = _marks(tail, details, partition, there[:MOST_ROWS])
    newest = _marks(tail, details, partition, there[-MOST_MARKS:]) if len(there) > MOST_ROWS else head
    before = Reached.of(earlier).rows if earlier is not None else []
    rows = (*before, *(mark & SHORT for mark in head))
    offset, place = int(offsets[last]), (int(hi[last]), int(lo[last]), int(servers[last]))
    return HighWater(
        tail.position(partition, offset, *place),
        int(lo[last]) & 1,
        max(int(events["ts_ms"].max()), high.ts_ms if high is not None else 0),
        tail.nth(partition, offset),
        seen,
        ((earlier.head if earlier is not None else ()) + head)[:MOST_MARKS],
        ((earlier.marks if earlier is not None else ()) + newest)[-MOST_MARKS:],
        rows=rows if MOST_MARKS < seen <= MOST_ROWS and len(rows) == seen else (),
    )


def _marks(tail: _Tail, ask: AskDetails, partition: int, offsets: _Longs) -> tuple[int, ...]:
    """What tells events at `offsets` (rising) from one another; Spark is asked only beyond the tail."""
    known = tail.marks(partition, offsets)
    return tuple([mark for _, _, mark in _details(ask, partition, offsets)] if known is None else known)


def _after(hi: int, lo: int, server_id: int, high: HighWater | None) -> bool:
    if high is None or high.position.server_id != server_id:
        return True
    # At the very place of the furthest event there is more to look at, unless rows are simply numbered on.
    simple = high.plain and high.resent is None
    return (hi, lo) > _order(high) if simple else hi > _order(high)[0]


def _order(high: HighWater) -> tuple[int, int]:
    number, pos, row = high.position.order
    return (number << FILE_SHIFT) + pos, row << 1 | high.kind


def _one_by_one(
    events: Mapping[str, _Longs], high: HighWater | None, details: list[tuple[str | None, int | None, int]]
) -> tuple[npt.NDArray[np.bool_], HighWater | None]:
    """Which events (one partition, in offset order) are duplicates, and the high water after them."""
    repeated = np.zeros(len(events["hi"]), dtype=bool)
    hi, lo, ts_ms, servers = (events[name].tolist() for name in ("hi", "lo", "ts_ms", "server_id"))
    places = [
        Place(h, low, ms, server, *more)
        for h, low, ms, server, more in zip(hi, lo, ts_ms, servers, details, strict=True)
    ]
    reached = None if high is None else Reached.of(high)
    for i, place in enumerate(places):
        if reached is None:
            reached = Reached.at(place)
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
