"""Batch statistics: redelivered events, progress, TRUNCATE events, snapshots and messages."""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.batch.batch_stats import collect_stats
from replicator.errors import TransactionsNotNumbered
from replicator.model.batch_stats import BatchStats, DuplicateRange
from replicator.model.commit_marker import HighWater, OffsetRange, PartitionProgress
from replicator.model.position import FILE_SHIFT, SourcePosition
from replicator.model.truncate import Truncate

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
    def row_hash(self) -> int:
        """A hash of op and rows; events at different positions have different rows here."""
        return hash((self.op, self.file, self.pos, self.row, self.content))

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
    compressed: bool | None = False,
) -> BatchStats:
    """Collect the statistics of events at ascending offsets in the order given, from the end of `before` on.

    `compressed` is what the source answers about the position of any event.
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
    }
    names = {
        "file": pa.array([f"mysql-bin.{e.file:06d}" for e in events], pa.string()),
        "gtid": pa.array([e.gtid for e in events], pa.string()),
        "tx_order": pa.array([e.tx_order for e in events], pa.int64()),
        "row_hash": pa.array([e.row_hash for e in events], pa.int64()),
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
    assert (left.position, left.ts_ms, left.event_count) == (right.position, right.ts_ms, right.event_count)
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


def test_binlog_names_are_ordered_by_number_when_it_exceeds_the_padding() -> None:
    found = run([DecodedEvent("u", 999_999, 900), DecodedEvent("u", 1_000_000, 4)])
    assert found.events == {"u": 2}
    assert found.position == SourcePosition("mysql-bin.1000000", 4)


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


def test_duplicate_ranges_are_divided_by_a_bad_event() -> None:
    found = run([*changes(10, 20), *changes(10), DecodedEvent("bad", 0, 0), *changes(20)])
    assert found.events == {"u": 2}
    assert found.duplicates == (DuplicateRange(0, 2, 2), DuplicateRange(0, 4, 4))


def test_batch_stats_report_a_redelivered_truncate_once() -> None:
    truncate = DecodedEvent("t", 3, 20)
    found = run([DecodedEvent("c", 3, 10), truncate, DecodedEvent("c", 3, 30), truncate])
    assert found.truncates == (Truncate(0, 1, SourcePosition("mysql-bin.000003", 20), 1000),)
    assert (found.truncates[0].position_key, found.truncates[0].row_key) == (
        truncate.position_key,
        truncate.row_key,
    )


def test_event_of_a_later_transaction_is_new_at_any_position() -> None:
    """After a fail-over the events name the server that committed them first, but have other positions."""
    first = run([DecodedEvent("u", 9, 900, ts_ms=5000, gtid="a:7", tx_order=1)])
    second = run(
        [
            DecodedEvent("u", 2, 100, ts_ms=5000, gtid="a:6", tx_order=1),
            DecodedEvent("u", 2, 200, ts_ms=5000, gtid="a:8"),
        ],
        dict(first.progress),
    )
    assert second.events == {"u": 1}
    assert second.duplicates == (DuplicateRange(0, 1, 1),)


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


def test_batch_stats_count_messages_separately() -> None:
    found = run([DecodedEvent("c", 3, 10), DecodedEvent("m", 3, 20)])
    assert (found.events, found.messages, found.all_to_apply) == ({"c": 1}, 1, False)


def statements(*rows: int, pos: int = 10, numbered: bool = False, equal: bool = False) -> list[DecodedEvent]:
    """Return a compressed transaction of statements that change `rows` rows each, all at one position.

    The statements are `equal`, or no two rows are.
    """
    places = [row for count in rows for row in range(count)]
    return [
        DecodedEvent("c", 3, pos, row=row, content=0 if equal else i, tx_order=i + 1 if numbered else None)
        for i, row in enumerate(places)
    ]


def test_batch_stats_count_all_statements_of_a_compressed_transaction() -> None:
    assert run(statements(1, 1, 2, 1)).events == {"c": 5}


def test_compressed_transaction_is_counted_completely_when_two_batches_divide_it() -> None:
    events = statements(1, 1, 2, 1)
    for cut in range(1, len(events)):
        first = run(events[:cut])
        assert run(events[cut:], dict(first.progress)).events == {"c": len(events) - cut}


def test_redelivered_compressed_transaction_is_detected_by_its_numbers() -> None:
    events = [*changes(5), *statements(1, 1, 2, 1, numbered=True, equal=True)]
    assert run(events, compressed=True).events == {"u": 1, "c": 5}
    for start in range(len(events)):
        first = run(events, compressed=True)
        again = run([*events[start:], *changes(20)], dict(first.progress), compressed=True)
        assert again.events == {"u": 1}, f"sent again from event {start}"


def test_redelivered_compressed_transaction_is_detected_when_it_is_sent_from_an_earlier_position() -> None:
    events = [*changes(5), *statements(1, 1, 2, 1)]
    again = run([*events, *changes(20)], dict(run(events).progress), compressed=True)
    assert again.events == {"u": 1}


def test_equal_events_of_a_compressed_transaction_are_not_dropped() -> None:
    """A table without a key gets two equal rows by two statements."""
    equal = statements(1, 1, equal=True)
    with pytest.raises(TransactionsNotNumbered) as raised:
        run(equal, compressed=True)
    assert "binlog.000003:10" in raised.value.message
    assert "log.transactions = true" in str(raised.value.hint)
    first = run(equal[:1], compressed=True)
    assert first.events == {"c": 1}
    with pytest.raises(TransactionsNotNumbered):
        run(equal[1:], dict(first.progress), compressed=True)
    numbered = statements(1, 1, numbered=True, equal=True)
    first = run(numbered[:1], compressed=True)
    assert run(numbered[1:], dict(first.progress), compressed=True).events == {"c": 1}


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_equal_events_are_not_dropped_at_a_position_that_has_several_statements(start: int) -> None:
    """The events show that the transaction is compressed, whatever is known of the source."""
    events = statements(1, 1, 2, 1)
    with pytest.raises(TransactionsNotNumbered):
        run(events[start:], dict(run(events).progress))


@pytest.mark.parametrize("compressed", [False, None])
def test_row_sent_again_is_detected_when_the_transaction_is_not_compressed(compressed: bool | None) -> None:
    (row,) = statements(1)
    first = run([row], compressed=compressed)
    again = run([row, *changes(20)], dict(first.progress), compressed=compressed)
    assert (again.events, again.duplicates) == ({"u": 1}, (DuplicateRange(0, 1, 1),))


@pytest.mark.parametrize("rows", [[(0, 1), (0, 1), (0, 2)], [(0, 1), (1, 2), (0, 1), (1, 3)]])
def test_assumption_that_a_transaction_is_not_compressed_is_withdrawn(rows: list[tuple[int, int]]) -> None:
    """An event was dropped, and another one shows that it may have been a second equal change."""
    events = [DecodedEvent("c", 3, 10, row=row, content=content) for row, content in rows]
    with pytest.raises(TransactionsNotNumbered):
        run(events, compressed=None)
    first = run(events[:-1], compressed=None)
    assert first.duplicates
    before = {0: replace(first.progress[0], high_water=again(first.progress[0]))}
    with pytest.raises(TransactionsNotNumbered):
        run(events[-1:], before, compressed=None)


def test_rows_after_the_last_one_are_new_when_the_connector_numbers_them_from_one_again() -> None:
    """A connector that is killed within a statement skips the rows that it has sent, and does not count them."""
    rows = statements(6, numbered=True)
    rest = [replace(row, tx_order=i + 1) for i, row in enumerate(rows[2:])]
    assert run(rest, dict(run(rows[:4]).progress)).events == {"c": 2}


def test_redelivered_rows_of_a_long_statement_are_detected_by_row_number() -> None:
    rows = [DecodedEvent("c", 3, 10, row=i, content=i) for i in range(200)]
    for start in (0, 1, 50, 150, 199):
        first = run(rows)
        assert run([*rows[start:], *changes(20)], dict(first.progress)).events == {"u": 1}


def test_statement_after_a_long_one_is_new_in_a_compressed_transaction() -> None:
    events = statements(100, 1)
    assert run(events, compressed=True).events == {"c": 101}
    assert run(events[100:], dict(run(events[:100]).progress), compressed=True).events == {"c": 1}
    events = statements(20, 20, 20)
    assert run(events, compressed=True).events == {"c": 60}
    for cut in (20, 30, 40, 50):
        first = run(events[:cut], compressed=True)
        assert run(events[cut:], dict(first.progress), compressed=True).events == {"c": 60 - cut}


def test_long_compressed_transaction_needs_numbers() -> None:
    """Row hashes of so many events are not kept."""
    with pytest.raises(TransactionsNotNumbered):
        run(statements(40, 40), compressed=True)
    assert run(statements(40, 40, numbered=True), compressed=True).events == {"c": 80}


def test_statement_is_counted_when_its_first_row_is_in_another_partition() -> None:
    (row, *more) = (DecodedEvent("c", 3, 10, row=i, content=c) for i, c in [(0, 1), (1, 2), (1, 3), (2, 4)])
    assert run([row, *more]).events == {"c": 4}
    for cut in range(1, 4):
        first = run([row, *more][:cut])
        assert run([row, *more][cut:], dict(first.progress)).events == {"c": 4 - cut}


def test_redelivery_is_detected_when_the_connector_ends_within_a_statement() -> None:
    rows = [DecodedEvent("c", 3, 10, row=i, content=i) for i in range(100)]
    for start in (0, 1, 30, 80):
        again = run([*rows[start : start + 10], *rows[start:], *changes(20)], dict(run(rows).progress))
        assert again.events == {"u": 1}, f"sent again from row {start}"


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
                    place = DecodedEvent(
                        kind, 3, pos, row, ts_ms=1000 + number, content=chance.choice((0, 1))
                    )
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


def again(progress: PartitionProgress) -> HighWater | None:
    """Return the high-water mark after a round trip through a marker."""
    high = progress.high_water
    return None if high is None else HighWater.from_json(json.loads(json.dumps(high.to_json())))


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
