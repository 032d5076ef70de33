"""Duplicates and progress, on arrays; against a reference that looks at one event after the other."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from replicator.census import _TailNames, count
from replicator.model.census import Census, DuplicateRange
from replicator.model.commit import HighWater, OffsetRange, PartitionProgress
from replicator.model.position import FILE_SHIFT, SourcePosition
from replicator.model.truncate import Truncate

TOPIC = "shop.shop.orders"
CODES = {"r": 0, "c": 1, "u": 2, "d": 3, "t": 4, "bad": 8, "unfamiliar": 9}


@dataclass(frozen=True)
class Event:
    """A decoded event as the census sees it."""

    op: str
    file: int
    pos: int
    row: int = 0
    ts_ms: int = 1000
    server_id: int = 1
    partition: int = 0

    @property
    def hi(self) -> int:
        return (self.file << FILE_SHIFT) + self.pos

    @property
    def lo(self) -> int:
        return self.row * 2 + (0 if self.op in "dt" else 1)


def run(
    events: Sequence[Event], before: dict[int, PartitionProgress] | None = None, *, partitions: int = 1
) -> Census:
    """Count events that stand at rising offsets in the order given, from where `before` ends."""
    before = before or {}
    next_offset = {p: before[p].next_offset if p in before else 0 for p in range(partitions)}
    starts = dict(next_offset)
    offsets = []
    for e in events:
        offsets.append(next_offset[e.partition])
        next_offset[e.partition] += 1
    columns = {
        "partition": [e.partition for e in events],
        "offset": offsets,
        "code": [CODES[e.op] for e in events],
        "hi": [e.hi for e in events],
        "lo": [e.lo for e in events],
        "ts_ms": [e.ts_ms for e in events],
        "server_id": [e.server_id for e in events],
    }
    numbers = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    names = pa.table(
        {
            "partition": columns["partition"],
            "offset": offsets,
            "file": pa.array([f"mysql-bin.{e.file:06d}" for e in events], pa.string()),
            "gtid": pa.array([None] * len(events), pa.string()),
        }
    )
    ranges = [OffsetRange(TOPIC, p, starts[p], next_offset[p]) for p in range(partitions)]
    return count(numbers, ranges, before, _TailNames(names))


def changes(*positions: int) -> list[Event]:
    return [Event("u", 3, pos, ts_ms=1000 + pos) for pos in positions]


def test_nothing() -> None:
    found = run([])
    assert found.events == {}
    assert found.progress == {0: PartitionProgress(0)}
    assert found.position is None
    assert found.watermark_ms is None


def test_rising_events_are_all_new() -> None:
    found = run([Event("c", 3, 10), Event("u", 3, 20, ts_ms=1500), Event("d", 4, 4, ts_ms=1400)])
    assert found.events == {"c": 1, "u": 1, "d": 1}
    assert found.duplicates == ()
    assert found.position == SourcePosition("mysql-bin.000004", 4)
    assert found.watermark_ms == 1500
    assert found.progress[0].high_water == HighWater(SourcePosition("mysql-bin.000004", 4), 0, 1500)


def test_a_suffix_sent_again_in_the_same_batch() -> None:
    found = run([*changes(10, 20, 30), *changes(20, 30), *changes(40)])
    assert found.events == {"u": 4}
    assert found.duplicates == (DuplicateRange(0, 3, 4),)


def test_a_suffix_sent_again_and_cut_by_the_batch_end() -> None:
    first = run([*changes(10, 20, 30), *changes(20)])
    assert first.duplicates == (DuplicateRange(0, 3, 3),)
    second = run([*changes(30), *changes(40)], dict(first.progress))
    assert second.duplicates == (DuplicateRange(0, 4, 4),)
    assert second.events == {"u": 1}
    assert second.progress[0].next_offset == 6


def test_a_batch_of_nothing_but_repeats_leaves_the_high_water() -> None:
    first = run(changes(10, 20))
    second = run(changes(10, 20), dict(first.progress))
    assert second.events == {}
    assert second.progress[0].high_water == first.progress[0].high_water
    assert second.progress[0].next_offset == 4
    assert second.watermark_ms is None


def test_a_key_update_is_two_events_of_one_position() -> None:
    both = [Event("d", 3, 10), Event("c", 3, 10)]
    assert run(both).events == {"c": 1, "d": 1}
    first = run(both[:1])
    second = run([*both[1:], *both], dict(first.progress))
    assert second.events == {"c": 1}
    assert second.duplicates == (DuplicateRange(0, 2, 3),)


def test_rows_of_one_event() -> None:
    rows = [Event("u", 3, 10, row=i) for i in range(3)]
    first = run(rows[:2])
    second = run(rows, dict(first.progress))
    assert second.events == {"u": 1}
    assert second.duplicates == (DuplicateRange(0, 2, 3),)


def test_binlog_names_outgrow_their_padding() -> None:
    found = run([Event("u", 999_999, 900), Event("u", 1_000_000, 4)])
    assert found.events == {"u": 2}
    assert found.position == SourcePosition("mysql-bin.1000000", 4)


def test_after_a_failover_nothing_is_taken_for_a_repeat() -> None:
    first = run([Event("u", 9, 900, ts_ms=5000)])
    other = [Event("u", 2, 100, ts_ms=4000, server_id=2), Event("u", 2, 200, ts_ms=6000, server_id=2)]
    second = run(other, dict(first.progress))
    assert second.events == {"u": 2}
    third = run(other[1:], dict(second.progress))
    assert third.events == {}


def test_binlogs_that_count_from_one_again() -> None:
    first = run([Event("u", 9, 900, ts_ms=5000)])
    second = run([Event("u", 1, 100, ts_ms=6000), Event("u", 1, 200, ts_ms=6001)], dict(first.progress))
    assert second.events == {"u": 2}
    assert second.progress[0].high_water == HighWater(SourcePosition("mysql-bin.000001", 200), 1, 6001)


def test_snapshot_rows_share_a_position_and_never_repeat() -> None:
    snapshot = [Event("r", 3, 10)] * 3
    found = run([*snapshot, Event("c", 3, 11), *snapshot])
    assert found.events == {"r": 6, "c": 1}
    assert found.duplicates == ()
    assert run(snapshot).progress[0].high_water is None


def test_source_time_may_go_back_a_little() -> None:
    """A long transaction commits after a short one that began later."""
    assert run([Event("u", 3, 10, ts_ms=1000), Event("u", 3, 20, ts_ms=900)]).events == {"u": 2}


def test_partitions_do_not_know_of_each_other() -> None:
    events = [replace(e, partition=p) for p in (0, 1) for e in changes(10, 20)]
    found = run([*events, replace(events[0], partition=1)], partitions=2)
    assert found.events == {"u": 4}
    assert found.duplicates == (DuplicateRange(1, 2, 2),)
    assert {p: progress.next_offset for p, progress in found.progress.items()} == {0: 2, 1: 3}


def test_bad_and_unfamiliar_events_are_counted_apart() -> None:
    found = run([Event("bad", 0, 0), Event("u", 3, 10), Event("unfamiliar", 0, 0)])
    assert (found.bad, found.unfamiliar, found.events) == (1, 1, {"u": 1})


def test_a_bad_event_between_repeats() -> None:
    found = run([*changes(10, 20), *changes(10), Event("bad", 0, 0), *changes(20)])
    assert found.events == {"u": 2}
    assert found.duplicates == (DuplicateRange(0, 2, 2), DuplicateRange(0, 4, 4))


def test_truncates_are_told_and_a_repeated_one_is_not() -> None:
    truncate = Event("t", 3, 20)
    found = run([Event("c", 3, 10), truncate, Event("c", 3, 30), truncate])
    assert found.truncates == (Truncate(0, 1, SourcePosition("mysql-bin.000003", 20), 1000),)
    assert (found.truncates[0].hi, found.truncates[0].lo) == (truncate.hi, truncate.lo)


class Reference:
    """One partition, one event after the other."""

    def __init__(self) -> None:
        self.server: int | None = None
        self.furthest = (0, 0)
        self.latest = 0

    def is_new(self, e: Event) -> bool:
        if e.op == "r":
            return True
        if e.server_id == self.server and (e.hi, e.lo) <= self.furthest and e.ts_ms <= self.latest:
            return False
        self.server, self.furthest, self.latest = e.server_id, (e.hi, e.lo), max(self.latest, e.ts_ms)
        return True


events_of_a_log = st.lists(
    st.builds(
        Event,
        op=st.sampled_from("rcudct"),
        file=st.integers(1, 3),
        pos=st.integers(1, 5),
        row=st.integers(0, 1),
        ts_ms=st.integers(1, 6),
        server_id=st.sampled_from([1, 1, 1, 2]),
        partition=st.integers(0, 1),
    ),
    max_size=40,
)


@given(events=events_of_a_log, cuts=st.lists(st.integers(0, 40), max_size=4), in_order=st.booleans())
def test_any_log_in_any_batches_is_counted_as_one_by_one(
    events: list[Event], cuts: list[int], in_order: bool
) -> None:
    if in_order:
        events = sorted(events, key=lambda e: (e.server_id, e.hi, e.lo))
    reference = {0: Reference(), 1: Reference()}
    before: dict[int, PartitionProgress] = {}
    marks = sorted({0, len(events), *(min(c, len(events)) for c in cuts)})
    for start, end in itertools.pairwise(marks):
        batch = events[start:end]
        new = [reference[e.partition].is_new(e) for e in batch]
        found = run(batch, before, partitions=2)
        assert sum(found.events.values()) == sum(new)
        repeated = {(d.partition, o) for d in found.duplicates for o in range(d.first, d.last + 1)}
        offset = {p: before[p].next_offset if p in before else 0 for p in (0, 1)}
        for e, is_new in zip(batch, new, strict=True):
            if e.op != "r":
                assert ((e.partition, offset[e.partition]) in repeated) is not is_new
            offset[e.partition] += 1
        before = dict(found.progress)
