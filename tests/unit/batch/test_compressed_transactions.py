"""Redelivered events of transactions and statements whose events share one position."""

from dataclasses import replace

import pytest

from replicator.errors import TransactionsNotNumbered
from replicator.model.batch_stats import DuplicateRange
from tests.support.decoded_events import DecodedEvent, again, changes, run


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
    assert "*.000003:10" in raised.value.message
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
