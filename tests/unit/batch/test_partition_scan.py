"""Scanning one partition: the result is the same whether events are observed as arrays or one by one."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.batch.event_details import EventDetails
from replicator.batch.partition_scan import PartitionScan, duplicate_ranges
from replicator.batch.redelivery import MAX_ROW_HASHES, MAX_SHORT_HASHES, EventPosition, RedeliveryDetector
from replicator.model.batch_stats import DuplicateRange
from replicator.model.commit_marker import HighWater
from replicator.model.position import FILE_SHIFT

FIELDS = ("position_key", "row_key", "ts_ms", "server_id")


def scan(events: list[EventPosition], before: HighWater | None) -> PartitionScan:
    """Return a scan of one partition, whose offsets begin at 0."""
    offsets = range(len(events))
    table = pa.table(
        {
            "partition": pa.array([0] * len(events), pa.int64()),
            "offset": pa.array(offsets, pa.int64()),
            "file": pa.array([None] * len(events), pa.string()),
            "gtid": pa.array([e.gtid for e in events], pa.string()),
            "tx_order": pa.array([e.tx_order for e in events], pa.int64()),
            "row_hash": pa.array([e.row_hash for e in events], pa.int64()),
        }
    )
    arrays = {name: np.array([getattr(e, name) for e in events], np.int64) for name in FIELDS}
    arrays["offset"] = np.array(offsets, np.int64)
    details = EventDetails(table, lambda _, first, last: table.slice(first, last - first + 1))
    return PartitionScan(0, arrays, before, details)


def observed(events: list[EventPosition], before: HighWater | None) -> tuple[list[bool], HighWater]:
    """Return the flags and the high-water mark of a detector that observes each event."""
    if before is None:
        detector, flags = RedeliveryDetector.starting_at(events[0]), [False]
    else:
        detector, flags = RedeliveryDetector.from_high_water(before), []
    flags += [detector.observe(events, i) for i in range(len(flags), len(events))]
    return flags, detector.high_water()


def events_with(rows: list[int]) -> list[EventPosition]:
    """Return events at ascending positions with `rows` rows each."""
    positions = [(key, row) for key, count in enumerate(rows, start=1) for row in range(count)]
    return [
        EventPosition(key, row * 2 + 1, 1000 + key, 1, row_hash=hash((key, row)) & 0xFFFFFFFFFF)
        for key, row in positions
    ]


@pytest.mark.parametrize(
    "count", [1, MAX_ROW_HASHES, MAX_ROW_HASHES + 1, MAX_SHORT_HASHES, MAX_SHORT_HASHES + 1]
)
@pytest.mark.parametrize("cut", [0, 1, 20])
def test_high_water_mark_is_the_same_for_arrays_and_single_events(count: int, cut: int) -> None:
    events = events_with([3, count])
    first, second = events[:cut], events[cut:]
    before = scan(first, None).run()[1]
    flags, high_water = scan(second, before).run()
    expected_flags, expected = observed(second, observed(first, None)[1] if first else None)
    assert (flags.tolist(), high_water) == (expected_flags, expected)


@given(rows=st.lists(st.integers(1, 4), min_size=1, max_size=6), data=st.data())
def test_redelivered_suffix_of_a_partition_is_recognized(rows: list[int], data: st.DataObject) -> None:
    events = events_with(rows)
    start = data.draw(st.integers(0, len(events) - 1))
    before = scan(events, None).run()[1]
    again = [*events[start:], EventPosition(99, 1, 2000, 1)]
    flags, high_water = scan(again, before).run()
    assert flags.tolist() == [True] * (len(again) - 1) + [False]
    assert high_water is not None
    assert high_water.event_count == 1


def test_partition_without_new_events_keeps_its_high_water_mark() -> None:
    before = observed(events_with([2]), None)[1]
    flags, high_water = scan([], before).run()
    assert (flags.tolist(), high_water) == ([], before)


def test_redelivery_at_one_position_is_recognized_by_transaction_order() -> None:
    first, second = (EventPosition(1, 1, 1000, 1, tx_order=n, row_hash=7) for n in (1, 2))
    detector = RedeliveryDetector.starting_at(first)
    assert [detector.observe([first, second], i) for i in (1, 0, 1)] == [False, True, True]


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


def in_transaction(
    file: int, *orders: int | None, gtid: str = "a:5", ts_ms: int = 1000
) -> list[EventPosition]:
    """Return the events of one transaction, each at its own position."""
    return [
        EventPosition((file << FILE_SHIFT) + 10 * i, 1, ts_ms, 1, gtid, order, row_hash=order or i)
        for i, order in enumerate(orders, start=1)
    ]


@pytest.mark.parametrize("file", [3, 5, 9], ids=["lower", "same", "higher"])
@pytest.mark.parametrize("cut", [True, False])
def test_rest_of_a_transaction_comes_from_another_server(file: int, *, cut: bool) -> None:
    """The connector was interrupted within a transaction, and the promoted server sends it from its beginning."""
    sent, again = in_transaction(5, 1, 2), in_transaction(file, 1, 2, 3, 4)
    following = in_transaction(file, 1, gtid="b:1", ts_ms=1001)
    following = [replace(e, position_key=e.position_key + 100) for e in following]
    if cut:
        before = scan(sent, None).run()[1]
        flags = scan(again + following, before).run()[0].tolist()
    else:
        flags = scan(sent + again + following, None).run()[0].tolist()[2:]
    assert flags == [True, True, False, False, False]


@pytest.mark.parametrize("file", [3, 9])
def test_no_event_of_an_interrupted_transaction_is_lost_without_numbers(file: int) -> None:
    before = scan(in_transaction(5, None, None), None).run()[1]
    flags = scan(in_transaction(file, None, None, None, None), before).run()[0].tolist()
    assert flags[2:] == [False, False]


def test_next_file_of_the_same_server_has_new_events() -> None:
    before = scan(in_transaction(5, 1, 2), None).run()[1]
    flags = scan(in_transaction(6, 1, 2, gtid="a:6"), before).run()[0].tolist()
    assert flags == [False, False]
