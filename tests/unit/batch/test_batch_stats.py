"""Batch statistics: redelivered events, progress, TRUNCATE events, snapshots and messages."""

import itertools
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import TransactionsNotNumbered
from replicator.model.batch_stats import DuplicateRange
from replicator.model.commit_marker import PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.snapshot import Truncate
from tests.support.decoded_events import DecodedEvent, again, changes, run


def test_batch_stats_are_empty_when_the_batch_has_no_events() -> None:
    found = run([])
    assert found.events == {}
    assert found.progress == {0: PartitionProgress(0)}
    assert found.position is None
    assert found.watermark_ms is None


def test_batch_stats_count_events_as_new_when_positions_increase() -> None:
    found = run(
        [DecodedEvent("c", 3, 10), DecodedEvent("u", 3, 20, ts_ms=1500), DecodedEvent("d", 4, 4, ts_ms=1400)]
    )
    assert found.events == {"c": 1, "u": 1, "d": 1}
    assert found.duplicates == ()
    assert found.position == SourcePosition("mysql-bin.000004", 4)
    assert found.watermark_ms == 1500
    high = found.progress[0].high_water
    assert high is not None
    assert (high.position, high.kind, high.ts_ms) == (SourcePosition("mysql-bin.000004", 4), 0, 1500)


def test_redelivered_suffix_is_detected_in_the_same_batch() -> None:
    found = run([*changes(10, 20, 30), *changes(20, 30), *changes(40)])
    assert found.events == {"u": 4}
    assert found.duplicates == (DuplicateRange(0, 3, 4),)


def test_redelivered_suffix_is_detected_when_the_batch_end_divides_it() -> None:
    first = run([*changes(10, 20, 30), *changes(20)])
    assert first.duplicates == (DuplicateRange(0, 3, 3),)
    second = run([*changes(30), *changes(40)], dict(first.progress))
    assert second.duplicates == (DuplicateRange(0, 4, 4),)
    assert second.events == {"u": 1}
    assert second.progress[0].next_offset == 6


def test_high_water_mark_is_unchanged_when_all_events_are_redelivered() -> None:
    first = run(changes(10, 20))
    second = run(changes(10, 20), dict(first.progress))
    assert second.events == {}
    (left, right) = (f.progress[0].high_water for f in (first, second))
    assert left is not None
    assert right is not None
    assert (left.position, left.ts_ms, left.is_replay) == (right.position, right.ts_ms, right.is_replay)
    assert second.progress[0].next_offset == 4
    assert second.watermark_ms is None


def test_key_update_is_counted_as_two_events_of_one_position() -> None:
    both = [DecodedEvent("d", 3, 10), DecodedEvent("c", 3, 10)]
    assert run(both).events == {"c": 1, "d": 1}
    first = run(both[:1])
    second = run([*both[1:], *both], dict(first.progress))
    assert second.events == {"c": 1}
    assert second.duplicates == (DuplicateRange(0, 2, 3),)


def test_redelivered_rows_of_one_event_are_detected_by_row_number() -> None:
    rows = [DecodedEvent("u", 3, 10, row=i) for i in range(3)]
    first = run(rows[:2])
    second = run(rows, dict(first.progress))
    assert second.events == {"u": 1}
    assert second.duplicates == (DuplicateRange(0, 2, 3),)


def test_events_of_another_server_are_new_after_a_failover() -> None:
    first = run([DecodedEvent("u", 9, 900, ts_ms=5000)])
    other = [
        DecodedEvent("u", 2, 100, ts_ms=4000, server_id=2),
        DecodedEvent("u", 2, 200, ts_ms=6000, server_id=2),
    ]
    second = run(other, dict(first.progress))
    assert second.events == {"u": 2}
    third = run(other[1:], dict(second.progress))
    assert third.events == {}


def test_events_are_new_after_the_binlog_was_reset_to_number_one() -> None:
    first = run([DecodedEvent("u", 9, 900, ts_ms=5000)])
    second = run(
        [DecodedEvent("u", 1, 100, ts_ms=6000), DecodedEvent("u", 1, 200, ts_ms=6001)], dict(first.progress)
    )
    assert second.events == {"u": 2}
    high = second.progress[0].high_water
    assert high is not None
    assert (high.position, high.kind, high.ts_ms) == (SourcePosition("mysql-bin.000001", 200), 1, 6001)


def test_snapshot_rows_at_one_position_are_not_redeliveries() -> None:
    snapshot = [DecodedEvent("r", 3, 10)] * 3
    found = run([*snapshot, DecodedEvent("c", 3, 11), *snapshot])
    assert found.events == {"r": 6, "c": 1}
    assert found.duplicates == ()
    assert run(snapshot).progress[0].high_water is None


def test_event_is_new_when_its_source_time_decreases_slightly() -> None:
    """A long transaction commits after a short one that began later."""
    assert run([DecodedEvent("u", 3, 10, ts_ms=1000), DecodedEvent("u", 3, 20, ts_ms=900)]).events == {"u": 2}


def test_redelivery_is_detected_for_each_partition_separately() -> None:
    events = [replace(e, partition=p) for p in (0, 1) for e in changes(10, 20)]
    found = run([*events, replace(events[0], partition=1)], partitions=2)
    assert found.events == {"u": 4}
    assert found.duplicates == (DuplicateRange(1, 2, 2),)
    assert {p: progress.next_offset for p, progress in found.progress.items()} == {0: 2, 1: 3}


def test_batch_stats_count_bad_and_unknown_schema_events_separately() -> None:
    found = run([DecodedEvent("bad", 0, 0), DecodedEvent("u", 3, 10), DecodedEvent("unknown_schema", 0, 0)])
    assert (found.bad, found.unknown_schema, found.events) == (1, 1, {"u": 1})


def test_batch_stats_report_a_redelivered_truncate_once() -> None:
    truncate = DecodedEvent("t", 3, 20)
    found = run([DecodedEvent("c", 3, 10), truncate, DecodedEvent("c", 3, 30), truncate])
    assert found.truncates == (Truncate(0, 1, SourcePosition("mysql-bin.000003", 20), 1000),)
    assert found.truncates[0].position_key == truncate.position_key


def test_event_of_a_later_transaction_is_new_at_any_position() -> None:
    """After a fail-over the events name the server that committed them first, but have other positions."""
    first = run([DecodedEvent("u", 9, 900, ts_ms=5000, gtid="a:7", tx_order=1)])
    second = run(
        [
            DecodedEvent("u", 2, 100, ts_ms=5000, gtid="a:8", tx_order=1),
            DecodedEvent("u", 2, 200, ts_ms=5000, gtid="a:9"),
        ],
        dict(first.progress),
    )
    assert second.events == {"u": 2}
    assert second.duplicates == ()


def test_incremental_snapshot_is_not_a_snapshot_of_the_whole_table() -> None:
    found = run(
        [
            DecodedEvent("r", 3, 10, server_id=0),
            DecodedEvent("chunk", 3, 30),
            DecodedEvent("last", 3, 10, server_id=0),
        ]
    )
    assert found.events == {"r": 3}
    (snapshot,) = found.snapshots
    assert (snapshot.position.pos, snapshot.starts, snapshot.end) == (10, {0: 0}, (0, 2))
    assert found.begins_with_snapshot
    assert not run([DecodedEvent("chunk", 3, 30)]).begins_with_snapshot


@pytest.mark.parametrize(
    ("starts", "ops", "expected"),
    [
        ((0,), ("r",), True),
        ((5,), ("first",), True),
        # Rows before these may be deleted.
        ((5,), ("r",), False),
        ((5,), ("last",), False),
        ((5, 0), ("first", "r"), True),
        ((5, 5), ("first", "r"), False),
        ((5, 5), ("first", "u"), False),
        ((0, 0), ("r", "u"), True),
        ((0, 0), ("u", "u"), False),
    ],
)
def test_rows_of_a_snapshot_whose_beginning_may_be_deleted_are_no_beginning(
    starts: tuple[int, ...], ops: tuple[str, ...], expected: bool
) -> None:
    before = {p: PartitionProgress(start, None) for p, start in enumerate(starts)}
    events = [
        DecodedEvent(op, 3, 10, server_id=1 if op == "u" else 0, partition=p) for p, op in enumerate(ops)
    ]
    assert run(events, before, partitions=len(starts)).begins_with_snapshot is expected


def test_batch_stats_count_messages_separately() -> None:
    found = run([DecodedEvent("c", 3, 10), DecodedEvent("m", 3, 20)])
    assert (found.events, found.messages, found.all_to_apply) == ({"c": 1}, 1, False)


@dataclass(frozen=True)
class RedeliveryCase:
    """A log and how it arrives."""

    seed: int
    compressed: bool
    numbered: bool
    cuts: tuple[int, ...]
    restarts: int
    partitions: int


def happened(case: RedeliveryCase) -> list[DecodedEvent]:
    """Return the events that one partition gets from a source's transactions, each change once."""
    chance, found = random.Random(case.seed), list[DecodedEvent]()
    for number in range(chance.randint(1, 8)):
        tx_order = 0
        for statement in range(chance.randint(1, 4)):
            pos = 100 * number + (0 if case.compressed else statement)
            for row in range(chance.choice((1, 1, 2, 40))):
                tx_order += 1
                kinds = "dc" if chance.random() < 0.2 else "u"
                for kind in kinds:
                    place = DecodedEvent(kind, 3, pos, row, ts_ms=1000 + number)
                    tx_order += kind == "c" and len(kinds) > 1
                    found.append(replace(place, tx_order=tx_order if case.numbered else None))
    return [e for e in found if chance.randrange(case.partitions) == 0]


@given(
    case=st.builds(
        RedeliveryCase,
        seed=st.integers(0, 2**32),
        compressed=st.booleans(),
        numbered=st.booleans(),
        cuts=st.lists(st.integers(0, 400), max_size=4).map(tuple),
        restarts=st.integers(0, 3),
        partitions=st.integers(1, 3),
    )
)
def test_batch_stats_count_each_change_once_for_any_batches_and_redelivery(case: RedeliveryCase) -> None:
    """The log is divided into any batches, and any suffix is redelivered.

    Events of a compressed transaction that are not numbered may not be counted at all: their table pauses.
    """
    log, chance = happened(case), random.Random(case.seed)
    arrived: list[DecodedEvent] = []
    position = 0
    for stop in sorted(chance.randint(0, len(log)) for _ in range(case.restarts)):
        arrived += log[position:stop]
        position = max(0, stop - chance.randint(0, 60))
    arrived += log[position:]
    kept: list[DecodedEvent] = []
    before: dict[int, PartitionProgress] = {}
    bounds = sorted({0, len(arrived), *(min(c, len(arrived)) for c in case.cuts)})
    for start, end in itertools.pairwise(bounds):
        try:
            found = run(arrived[start:end], before, compressed=case.compressed)
        except TransactionsNotNumbered:
            assert case.compressed
            assert not case.numbered
            assert kept == log[: len(kept)]
            return
        repeated = {o for d in found.duplicates for o in range(d.first, d.last + 1)}
        kept += [e for o, e in enumerate(arrived[start:end], start) if o not in repeated]
        before = {
            p: PartitionProgress(progress.next_offset, again(progress))
            for p, progress in found.progress.items()
        }
    assert kept == log


def test_bad_events_before_the_furthest_one_are_redelivered_ones() -> None:
    reached = run([DecodedEvent("c", 1, 10), DecodedEvent("c", 1, 50, ts_ms=1005)]).progress
    events = [
        DecodedEvent("bad", 1, 20),
        DecodedEvent("bad", 1, 50),
        DecodedEvent("bad", 1, 20, ts_ms=1006),
        DecodedEvent("bad", 1, 20, server_id=2),
        DecodedEvent("bad", 0, 0),
        DecodedEvent("c", 1, 60),
        DecodedEvent("bad", 1, 55),
        DecodedEvent("bad", 1, 70),
    ]
    found = run(events, dict(reached))
    assert found.bad == 5
    assert found.duplicates == (DuplicateRange(0, 2, 2), DuplicateRange(0, 8, 8))
    assert run(events[:1]).bad == 1


def test_bad_event_of_a_later_transaction_is_new_although_its_position_is_earlier() -> None:
    reached = run([DecodedEvent("c", 1, 50, gtid="a:7")]).progress
    events = [DecodedEvent("bad", 1, 20, gtid="a:7"), DecodedEvent("bad", 1, 20, gtid="a:8")]
    found = run(events, dict(reached))
    assert (found.bad, found.duplicates) == (1, (DuplicateRange(0, 1, 1),))
