"""Collects the statistics of a decoded batch of one table: counts, redelivered events, progress.

One narrow pass over the decoded frame brings a few numbers per event to the driver as Arrow columns. They are processed
as whole arrays, so that redelivered events are found without a shuffle or a sort; `redelivery` defines which events
these are. Snapshot reads (op r) have the position of their snapshot and are never redelivered ones.

An event that cannot be decoded is a redelivered one if its position is before the furthest event: the lake has it, or
it went to quarantine when it came first. Its schema may be older than all that later events can have.

If the connector takes its initial snapshot again, the rows replace those of the table. The changes that follow them in
their partition are new, whether or not they were delivered before: a replica that lagged did not have them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.events.event_details import EventDetails, FetchDetails, Longs, Rows
from replicator.batch.events.partition_scan import Flags, PartitionScan, duplicate_ranges
from replicator.batch.events.redelivery import MayBeCompressed, is_later_transaction
from replicator.decode.event_frame import EVENT_NUMBERS
from replicator.model.batch_stats import (
    BAD_CODE,
    CHUNK_READ_CODE,
    FIRST_READ_CODE,
    LAST_READ_CODE,
    MESSAGE_CODE,
    OP_CODES,
    UNKNOWN_SCHEMA_CODE,
    BatchStats,
    DuplicateRange,
    EarliestEvent,
)
from replicator.model.commit_marker import HighWater, OffsetRange, PartitionProgress
from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.seen_transactions import SeenTransactions
from replicator.model.snapshot import SnapshotRead, Truncate

_SNAPSHOT_CODES: Final = (OP_CODES["r"], FIRST_READ_CODE, LAST_READ_CODE)
"""Codes of rows from a snapshot of the whole table."""
_COMPARED: Final = ("position_key", "ts_ms", "gtid_origin", "gtid_number")
"""What events and schema versions are compared by."""


def collect_stats(
    stats_columns: pa.Table,
    ranges: Sequence[OffsetRange],
    before: Mapping[int, PartitionProgress],
    fetch: FetchDetails,
    may_be_compressed: MayBeCompressed,
) -> BatchStats:
    """Return the statistics of decoded events.

    Args:
        stats_columns: see `MaterializedEvents.stats_columns`.
        ranges: the offset ranges of the events.
        before: partition → progress at the start of `ranges`.
        fetch: fetches details; it is called only if events must be observed one by one.
        may_be_compressed: see `RedeliveryDetector`.

    Raises:
        TransactionsNotNumbered, TransactionInterrupted: nothing tells whether an event was delivered before.
        SourceUnavailable: see `MayBeCompressed`.
    """
    numbers = {
        name: pc.fill_null(stats_columns.column(name), 0).to_numpy().astype(np.int64, copy=False)
        for name in EVENT_NUMBERS
    }
    details = EventDetails(stats_columns, fetch)
    partitions = [
        _partition_stats(numbers, r, before.get(r.partition), details, may_be_compressed) for r in ranges
    ]
    codes = numbers["code"]
    good = codes < MESSAGE_CODE
    for found in partitions:
        good[found.repeated] = False
    highs = [p.progress.high_water for p in partitions]
    times = numbers["ts_ms"][good]
    return BatchStats(
        events=_events_by_op(codes[good]),
        duplicates=tuple(d for p in partitions for d in p.duplicates),
        bad=int((codes == BAD_CODE).sum()) - sum(p.repeated_bad for p in partitions),
        unknown_schema=int((codes == UNKNOWN_SCHEMA_CODE).sum()),
        truncates=_truncates(numbers, np.flatnonzero(good & (codes == OP_CODES["t"])), details),
        progress={r.partition: p.progress for r, p in zip(ranges, partitions, strict=True)},
        position=max((high.position for high in highs if high is not None), default=None),
        watermark_ms=int(times.max()) if len(times) else None,
        messages=int((codes == MESSAGE_CODE).sum()),
        snapshots=_snapshots(numbers, details),
        chunk_reads=bool((codes == CHUNK_READ_CODE).any()),
        begins_with_snapshot=any(p.begins_with_snapshot for p in partitions)
        and all(p.has_beginning for p in partitions),
        last_changes={
            r.partition: p.last_change
            for r, p in zip(ranges, partitions, strict=True)
            if p.last_change is not None
        },
        earliest=_earliest({name: numbers[name][good] for name in _COMPARED}, details),
    )


@dataclass(frozen=True, slots=True)
class _PartitionStats:
    """Statistics of one partition.

    Attributes:
        repeated: row numbers of redelivered events in the arrays of the batch.
        repeated_bad: how many of them cannot be decoded.
        begins_with_snapshot: whether the first event is a row of a snapshot of the whole table.
        has_beginning: whether no event before the range can be of that snapshot: the range begins at offset 0, or with
            the row that is marked as the first one.
        last_change: offset of the last change; None if there is none.
    """

    progress: PartitionProgress
    repeated: Rows
    repeated_bad: int
    duplicates: list[DuplicateRange]
    begins_with_snapshot: bool
    has_beginning: bool
    last_change: int | None


def _partition_stats(
    numbers: Mapping[str, Longs],
    r: OffsetRange,
    before: PartitionProgress | None,
    details: EventDetails,
    may_be_compressed: MayBeCompressed,
) -> _PartitionStats:
    rows = np.flatnonzero(numbers["partition"] == r.partition)
    rows = rows[np.argsort(numbers["offset"][rows], kind="stable")]
    codes = numbers["code"][rows]
    high_water = before.high_water if before else None
    repeated_in = list[Rows]()
    for part, snapshot in _parted_by_snapshots(numbers, rows):
        if snapshot is not None and high_water is not None:
            high_water = replace(high_water, snapshot=snapshot)
        again, high_water = _scan(numbers, part, r.partition, high_water, details, may_be_compressed)
        repeated_in.append(again)
    repeated = np.concatenate([rows[:0], *repeated_in])
    if high_water is not None and (codes >= BAD_CODE).any():
        # The lake lacks these. If one comes again and can be decoded then, its position must decide: it may be older.
        high_water = replace(high_water, transactions=SeenTransactions())
    changes = rows[_is_change(codes)]
    return _PartitionStats(
        PartitionProgress(r.end, high_water),
        repeated,
        int((numbers["code"][repeated] == BAD_CODE).sum()),
        duplicate_ranges(r.partition, numbers["offset"][rows], np.isin(rows, repeated)),
        len(rows) > 0 and int(codes[0]) in _SNAPSHOT_CODES,
        r.start == 0 or len(rows) == 0 or int(codes[0]) == FIRST_READ_CODE,
        int(numbers["offset"][changes[-1]]) if len(changes) else None,
    )


def _is_change(codes: Longs) -> Flags:
    return (codes > OP_CODES["r"]) & (codes < BAD_CODE)


def _parted_by_snapshots(
    numbers: Mapping[str, Longs], rows: Rows
) -> Iterator[tuple[Rows, SourcePosition | None]]:
    """Divide the events of a partition, in offset order, before each run of rows of initial snapshots.

    Yield the events of each part, and the position of the snapshot with whose rows it begins; None if it does not.
    """
    reads = np.isin(numbers["code"][rows], _SNAPSHOT_CODES) & (numbers["server_id"][rows] == 0)
    begins = np.flatnonzero(np.diff(reads.astype(np.int8), prepend=0) > 0)
    edges = np.unique([0, *begins, len(rows)])
    for begin, end in pairwise(edges.tolist()):
        read = rows[begin:end][reads[begin:end]]
        position = PackedPosition(int(numbers["position_key"][read[-1]]), 0).unpack() if len(read) else None
        yield rows[begin:end], position


def _scan(
    numbers: Mapping[str, Longs],
    rows: Rows,
    partition: int,
    before: HighWater | None,
    details: EventDetails,
    may_be_compressed: MayBeCompressed,
) -> tuple[Rows, HighWater | None]:
    """Scan successive events of a partition. Return as `PartitionScan.run`, but the numbers of the repeated rows.

    Redelivered events that cannot be decoded are among them.
    """
    changes = rows[_is_change(numbers["code"][rows])]
    events = {name: values[changes] for name, values in numbers.items()}
    known = None if before is None or before.snapshot is not None else before
    repeated, reached = PartitionScan(partition, events, known, details, may_be_compressed).run()
    high_water = reached if len(changes) else before
    bad = _repeated_bad(numbers, rows, known)
    if len(bad) and high_water is not None and high_water.position.gtid is not None:
        bad = bad[~_are_later(numbers["offset"][bad], high_water.position.gtid, partition, details)]
    return np.concatenate([changes[repeated], bad]), high_water


def _repeated_bad(numbers: Mapping[str, Longs], rows: Rows, before: HighWater | None) -> Rows:
    """Return the bad events of a partition that lie before the furthest event until then, and not later in time.

    `rows` are the row numbers of all events of the partition, in offset order.
    """
    codes, servers = numbers["code"][rows], numbers["server_id"][rows]
    is_bad, is_change = codes == BAD_CODE, (codes > OP_CODES["r"]) & (codes < MESSAGE_CODE)
    known = set(servers[is_change].tolist()) | ({before.position.server_id} if before else set())
    if not is_bad.any() or len(known) != 1:
        return rows[:0]
    reached = PackedPosition.pack(before.position).position_key if before else 0
    latest = before.ts_ms if before else 0
    keys, times = numbers["position_key"][rows], numbers["ts_ms"][rows]
    furthest = np.maximum(np.maximum.accumulate(np.where(is_change, keys, 0)), reached)
    newest = np.maximum(np.maximum.accumulate(np.where(is_change, times, 0)), latest)
    # A position that cannot be read is 0.
    earlier = (keys > 0) & (keys < furthest) & (times <= newest)
    repeated: Rows = rows[is_bad & earlier & (servers == next(iter(known)))]
    return repeated


def _are_later(
    offsets: Longs, than: str, partition: int, details: EventDetails
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return which events are of a later transaction than another one; they are new, whatever their position is."""
    found = details.fetched(partition, offsets)
    return np.array([is_later_transaction(event.gtid, than) for event in found], dtype=bool)


def _earliest(numbers: Mapping[str, Longs], details: EventDetails) -> EarliestEvent | None:
    """Return the earliest of the events with these numbers; see `BatchStats`.

    The beginning of a schema version is compared by one rule with all of them; see `schema.history.order`.
    """
    origins, times = numbers["gtid_origin"], numbers["ts_ms"]
    if not len(origins) or (origins != origins[0]).any() or (not times.min() and times.any()):
        return None
    gtid = None
    if origins[0]:
        lowest, highest, origin = (
            int(numbers["gtid_number"].min()),
            int(numbers["gtid_number"].max()),
            details.origin(int(origins[0])),
        )
        if origin is None or Transaction(origin, lowest).line != Transaction(origin, highest).line:
            return None
        gtid = str(Transaction(origin, lowest))
    packed = PackedPosition(int(numbers["position_key"].min()), 0)
    return EarliestEvent(packed.unpack(gtid=gtid), int(times.min()))


def _events_by_op(codes: Longs) -> dict[str, int]:
    """Return op → number of events."""
    ops = np.maximum(codes, OP_CODES["r"])
    return {op: n for op, number in OP_CODES.items() if (n := int((ops == number).sum()))}


def _truncates(numbers: Mapping[str, Longs], rows: Rows, details: EventDetails) -> tuple[Truncate, ...]:
    truncates = []
    for row in rows:
        event = {name: int(values[row]) for name, values in numbers.items()}
        partition, offset = event["partition"], event["offset"]
        packed = PackedPosition(event["position_key"], event["row_key"])
        position = details.position(partition, offset, packed, event["server_id"])
        if position.gtid is None and event["gtid_origin"]:
            position = replace(position, gtid=_gtid(event, details))
        truncates.append(Truncate(partition, offset, position, event["ts_ms"]))
    return tuple(truncates)


def _gtid(event: Mapping[str, int], details: EventDetails) -> str | None:
    """Return the GTID of an event that has one; it is fetched if no event near the end of a range has its origin."""
    if (origin := details.origin(event["gtid_origin"])) is not None:
        return str(Transaction(origin, event["gtid_number"]))
    return details.fetched(event["partition"], np.array([event["offset"]]))[0].gtid


def _snapshots(numbers: Mapping[str, Longs], details: EventDetails) -> tuple[SnapshotRead, ...]:
    """Return the snapshots of the whole table of which the batch has rows, in the order in which they began."""
    reads = np.flatnonzero(np.isin(numbers["code"], _SNAPSHOT_CODES))
    # All rows of a snapshot have its position.
    position_keys = np.unique(numbers["position_key"][reads]).tolist()
    found = [
        _snapshot(numbers, rows, details)
        for position_key in position_keys
        for rows in _divided(numbers, reads[numbers["position_key"][reads] == position_key])
    ]
    return tuple(sorted(found, key=lambda s: (s.ts_ms, s.position)))


def _divided(numbers: Mapping[str, Longs], rows: Rows) -> list[Rows]:
    """Divide the rows at one position by the snapshots that read them, in their order.

    Two snapshots have the same position if nothing was written in between, or if they are of two servers. A row that is
    marked as the first one, or a second last one, begins another snapshot if all rows before it have earlier times, and
    all rows behind it do not.
    """
    codes, times = numbers["code"][rows], numbers["ts_ms"][rows]
    partitions, offsets = numbers["partition"][rows], numbers["offset"][rows]
    marks = [*np.flatnonzero(codes == FIRST_READ_CODE), *np.flatnonzero(codes == LAST_READ_CODE)[1:]]
    begins = []
    for mark in marks:
        here = partitions == partitions[mark]
        before, behind = here & (offsets < offsets[mark]), here & (offsets > offsets[mark])
        if before.any() and (times[before] < times[mark]).all() and (times[behind] >= times[mark]).all():
            begins.append(times[mark])
    number = np.searchsorted(np.unique(begins), times, side="right")
    return [rows[number == n] for n in np.unique(number)]


def _snapshot(numbers: Mapping[str, Longs], rows: Rows, details: EventDetails) -> SnapshotRead:
    partitions, offsets = numbers["partition"][rows], numbers["offset"][rows]
    starts = {int(p): int(offsets[partitions == p].min()) for p in np.unique(partitions)}
    last = np.flatnonzero(numbers["code"][rows] == LAST_READ_CODE)
    end = (int(partitions[last[-1]]), int(offsets[last[-1]])) if len(last) else None
    packed = PackedPosition(int(numbers["position_key"][rows[0]]), 0)
    server_id = int(numbers["server_id"][rows[0]])
    position = details.position(int(partitions[0]), int(offsets[0]), packed, server_id)
    has_first = bool((numbers["code"][rows] == FIRST_READ_CODE).any())
    return SnapshotRead(position, int(numbers["ts_ms"][rows].min()), starts, end, has_first=has_first)
