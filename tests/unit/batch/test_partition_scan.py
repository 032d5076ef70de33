"""Scanning one partition: the result is the same whether events are observed as arrays or one by one."""

import numpy as np
import pyarrow as pa
import pytest

from replicator.batch.events.event_details import EventDetails
from replicator.batch.events.partition_scan import PartitionScan, duplicate_ranges
from replicator.batch.events.redelivery import EventPosition, RedeliveryDetector
from replicator.model.batch_stats import DuplicateRange
from replicator.model.commit_marker import HighWater
from replicator.model.position import SourcePosition

FIELDS = ("position_key", "row_key", "ts_ms", "server_id")


class Source:
    """A source that does not compress its transactions, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def may_be_at(self, _: SourcePosition) -> bool:
        self.asked += 1
        return False


def scan(
    events: list[EventPosition], before: HighWater | None, source: Source | None = None
) -> PartitionScan:
    """Return a scan of one partition, whose offsets begin at 0."""
    offsets = range(len(events))
    table = pa.table(
        {
            "partition": pa.array([0] * len(events), pa.int64()),
            "offset": pa.array(offsets, pa.int64()),
            "file": pa.array([f"b.{e.packed.file_number:06d}" for e in events], pa.string()),
            "gtid": pa.array([e.gtid for e in events], pa.string()),
            "tx_order": pa.array([e.tx_order for e in events], pa.int64()),
        }
    )
    arrays = {name: np.array([getattr(e, name) for e in events], np.int64) for name in FIELDS}
    arrays["offset"] = np.array(offsets, np.int64)
    gtids = [e.gtid or "" for e in events]
    arrays["gtid_origin"] = np.array([hash(gtid.rpartition(":")[0]) for gtid in gtids], np.int64)
    arrays["gtid_number"] = np.array([int(gtid.rpartition(":")[2] or 0) for gtid in gtids], np.int64)
    details = EventDetails(table, lambda _, first, last: table.slice(first, last - first + 1))
    return PartitionScan(0, arrays, before, details, (source or Source()).may_be_at)


def observed(events: list[EventPosition], before: HighWater | None) -> tuple[list[bool], HighWater]:
    """Return the flags and the high-water mark of a detector that observes each event."""
    if before is None:
        detector, flags = RedeliveryDetector.starting_at(events[0], Source().may_be_at), [False]
    else:
        detector, flags = RedeliveryDetector.from_high_water(before, Source().may_be_at), []
    flags += [detector.observe(event) for event in events[len(flags) :]]
    return flags, detector.high_water()


def events_with(rows: list[int]) -> list[EventPosition]:
    """Return events at ascending positions with `rows` rows each."""
    positions = [(key, row) for key, count in enumerate(rows, start=1) for row in range(count)]
    return [EventPosition(key, row * 2 + 1, 1000 + key, 1) for key, row in positions]


@pytest.mark.parametrize("count", [1, 2, 200])
@pytest.mark.parametrize("cut", [0, 1, 20])
def test_high_water_mark_is_the_same_for_arrays_and_single_events(count: int, cut: int) -> None:
    events = events_with([3, count])
    first, second = events[:cut], events[cut:]
    before = scan(first, None).run()[1]
    flags, high_water = scan(second, before).run()
    expected_flags, expected = observed(second, observed(first, None)[1] if first else None)
    assert (flags.tolist(), high_water) == (expected_flags, expected)


def test_source_is_asked_once_for_a_long_replay_at_one_position() -> None:
    events, source = events_with([60_000]), Source()
    before = scan(events, None, source).run()[1]
    assert source.asked == 0
    flags = scan(events[100:], before, source).run()[0]
    assert flags.all()
    assert source.asked == 1


@pytest.mark.parametrize(
    ("repeated", "ranges"),
    [
        ([], []),
        ([False, False], []),
        ([True], [(10, 10)]),
        ([True, True, False, True], [(10, 11), (13, 13)]),
    ],
)
def test_duplicate_ranges_are_runs_of_repeated_events(
    repeated: list[bool], ranges: list[tuple[int, int]]
) -> None:
    offsets = np.arange(10, 10 + len(repeated), dtype=np.int64)
    found = duplicate_ranges(3, offsets, np.array(repeated, dtype=bool))
    assert found == [DuplicateRange(3, first, last) for first, last in ranges]
