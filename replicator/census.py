"""What a decoded batch of one table contains: counts, duplicates, how far it reaches.

One narrow pass over the decoded frame: a few numbers per event come to the driver as Arrow columns and are looked at
as whole arrays. That finds what a restarted connector sent again without a shuffle or a sort.

Which event is a duplicate: at-least-once delivery repeats a suffix of the log in order, so on one partition a
repeated event lies at or before the furthest position seen, and is not later in source time. Both must hold: where
the source's binlogs were reset and count from one again, positions are small but the time goes on, and dropping
a change would be worse than recording one twice. Snapshot reads (op r) carry the snapshot's position and are never
duplicates.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replicator.model.census import BAD_CODE, OP_CODES, UNFAMILIAR_CODE, Census, DuplicateRange
from replicator.model.commit import HighWater, OffsetRange, PartitionProgress
from replicator.model.position import FILE_SHIFT, SourcePosition
from replicator.model.truncate import Truncate

_Longs = npt.NDArray[np.int64]


def take(control: pa.Table, ranges: Sequence[OffsetRange], before: Mapping[int, PartitionProgress]) -> Census:
    """Count decoded events (see `held.control`); `before` is the progress at the start of `ranges`."""
    numbers = {
        name: pc.fill_null(control.column(name), 0).to_numpy().astype(np.int64, copy=False)
        for name in ("partition", "offset", "code", "hi", "lo", "ts_ms", "server_id")
    }
    return count(numbers, ranges, before, _TailNames(control))


class _TailNames:
    """File names and GTIDs of the last few events, by (partition, offset)."""

    def __init__(self, table: pa.Table) -> None:
        tail = table.filter(pc.is_valid(table.column("file")))
        columns = (tail.column(name).to_pylist() for name in ("partition", "offset", "file", "gtid"))
        self._by_place = {(p, o): (file, gtid) for p, o, file, gtid in zip(*columns, strict=True)}

    def position(self, partition: int, offset: int, hi: int, lo: int, server_id: int) -> SourcePosition:
        number, pos = hi >> FILE_SHIFT, hi & ((1 << FILE_SHIFT) - 1)
        # Outside the tail the name is not at hand; its number is what orders it.
        file, gtid = self._by_place.get((partition, offset), (f"binlog.{number:06d}", None))
        return SourcePosition(file, pos, lo >> 1, server_id, gtid)


def count(
    numbers: Mapping[str, _Longs],
    ranges: Sequence[OffsetRange],
    before: Mapping[int, PartitionProgress],
    names: _TailNames,
) -> Census:
    """The census of events given as equally long arrays; see `take`."""
    codes = numbers["code"]
    unfamiliar = int((codes == UNFAMILIAR_CODE).sum())
    keep = np.ones(len(codes), dtype=bool)
    duplicates: list[DuplicateRange] = []
    progress: dict[int, PartitionProgress] = {}
    for r in ranges:
        rows = np.flatnonzero(numbers["partition"] == r.partition)
        rows = rows[np.argsort(numbers["offset"][rows], kind="stable")]
        previous = before.get(r.partition)
        high = previous.high_water if previous else None
        logged = rows[(codes[rows] > OP_CODES["r"]) & (codes[rows] < BAD_CODE)]
        repeated, reached = _repeated({name: numbers[name][logged] for name in numbers}, high)
        keep[logged[repeated]] = False
        duplicates += _as_ranges(r.partition, numbers["offset"][rows], ~keep[rows])
        if reached is not None:
            i = logged[reached]
            place = (int(numbers[n][i]) for n in ("offset", "hi", "lo", "server_id"))
            latest = int(numbers["ts_ms"][logged].max())
            if high is not None:
                latest = max(latest, high.ts_ms)
            high = HighWater(names.position(r.partition, *place), int(numbers["lo"][i]) & 1, latest)
        progress[r.partition] = PartitionProgress(r.end, high)
    good = keep & (codes < BAD_CODE)
    truncated = np.flatnonzero(good & (codes == OP_CODES["t"]))
    highs = [p.high_water.position for p in progress.values() if p.high_water is not None]
    times = numbers["ts_ms"][good]
    return Census(
        events={op: n for op, number in OP_CODES.items() if (n := int((codes[good] == number).sum()))},
        duplicates=tuple(duplicates),
        bad=int((codes == BAD_CODE).sum()),
        unfamiliar=unfamiliar,
        truncates=tuple(_truncate({n: int(numbers[n][i]) for n in numbers}, names) for i in truncated),
        progress=progress,
        position=max(highs, default=None),
        watermark_ms=int(times.max()) if len(times) else None,
    )


def _truncate(event: Mapping[str, int], names: _TailNames) -> Truncate:
    partition, offset = event["partition"], event["offset"]
    position = names.position(partition, offset, event["hi"], event["lo"], event["server_id"])
    return Truncate(partition, offset, position, event["ts_ms"])


def _repeated(
    events: Mapping[str, _Longs], high: HighWater | None
) -> tuple[npt.NDArray[np.bool_], int | None]:
    """Which events (one partition, in offset order) are duplicates, and the index of the furthest new one."""
    hi, lo, servers = events["hi"], events["lo"], events["server_id"]
    if len(hi) == 0:
        return np.zeros(0, dtype=bool), None
    rising = (hi[1:] > hi[:-1]) | ((hi[1:] == hi[:-1]) & (lo[1:] > lo[:-1]))
    one_server = bool((servers == servers[0]).all())
    if one_server and bool(rising.all()) and _after(int(hi[0]), int(lo[0]), int(servers[0]), high):
        return np.zeros(len(hi), dtype=bool), len(hi) - 1
    return _repeated_one_by_one(events, high)


def _after(hi: int, lo: int, server_id: int, high: HighWater | None) -> bool:
    if high is None or high.position.server_id != server_id:
        return True
    return (hi, lo) > _order(high)


def _order(high: HighWater) -> tuple[int, int]:
    number, pos, row = high.position.order
    return (number << FILE_SHIFT) + pos, row << 1 | high.kind


def _repeated_one_by_one(
    events: Mapping[str, _Longs], high: HighWater | None
) -> tuple[npt.NDArray[np.bool_], int | None]:
    repeated = np.zeros(len(events["hi"]), dtype=bool)
    server = high.position.server_id if high else None
    furthest = _order(high) if high else None
    latest = high.ts_ms if high else 0
    reached: int | None = None
    columns = (events[name].tolist() for name in ("hi", "lo", "ts_ms", "server_id"))
    for i, (hi, lo, ts_ms, server_id) in enumerate(zip(*columns, strict=True)):
        # Positions of two servers cannot be compared; after a failover nothing is taken for a duplicate.
        if server_id == server and furthest is not None and (hi, lo) <= furthest and ts_ms <= latest:
            repeated[i] = True
            continue
        server, furthest, latest, reached = server_id, (hi, lo), max(latest, ts_ms), i
    return repeated, reached


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
