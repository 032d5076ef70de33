"""Redelivered events of transactions and statements whose events share one position."""

from dataclasses import replace

import pytest

from replicator.errors import TransactionsNotNumbered
from tests.support.decoded_events import DecodedEvent, changes, run


def statements(*rows: int, pos: int = 10, numbered: bool = True) -> list[DecodedEvent]:
    """Return a compressed transaction of statements that change `rows` rows each, all at one position."""
    places = [row for count in rows for row in range(count)]
    return [
        DecodedEvent("c", 3, pos, row=row, tx_order=i + 1 if numbered else None)
        for i, row in enumerate(places)
    ]


def test_batch_stats_count_all_statements_of_a_compressed_transaction() -> None:
    events = statements(1, 1, 2, 1)
    assert run(events, compressed=True).events == {"c": 5}
    for cut in range(1, len(events)):
        first = run(events[:cut], compressed=True)
        assert run(events[cut:], dict(first.progress), compressed=True).events == {"c": len(events) - cut}


def test_redelivered_compressed_transaction_is_detected_by_its_numbers() -> None:
    events = [*changes(5), *statements(1, 1, 2, 1)]
    assert run(events, compressed=True).events == {"u": 1, "c": 5}
    for start in range(len(events)):
        first = run(events, compressed=True)
        again = run([*events[start:], *changes(20)], dict(first.progress), compressed=True)
        assert again.events == {"u": 1}, f"sent again from event {start}"


def test_second_statement_without_numbers_may_be_a_redelivered_one() -> None:
    events = statements(1, 1, numbered=False)
    with pytest.raises(TransactionsNotNumbered) as raised:
        run(events, compressed=True)
    assert "*.000003:10" in raised.value.message
    assert "log.transactions = true" in str(raised.value.hint)
    first = run(events[:1], compressed=True)
    assert first.events == {"c": 1}
    with pytest.raises(TransactionsNotNumbered):
        run(events[1:], dict(first.progress), compressed=True)


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_events_without_numbers_are_not_dropped_after_numbered_ones(start: int) -> None:
    """The numbered events show that the transaction is compressed, whatever is known of the source."""
    events = statements(1, 1, 2, 1)
    rest = [replace(e, tx_order=None, row=0) for e in events[start:]]
    with pytest.raises(TransactionsNotNumbered):
        run(rest, dict(run(events).progress))


@pytest.mark.parametrize("rows", [1, 3, 200])
def test_replay_from_an_earlier_position_is_detected_whatever_is_compressed(rows: int) -> None:
    """It sends all rows of the position, so the first ones are those that were sent."""
    events = [*changes(5), *statements(rows, numbered=False)]
    again = run([*events, *changes(20)], dict(run(events).progress), compressed=True)
    assert again.events == {"u": 1}


def test_redelivery_is_detected_when_the_connector_ends_within_a_statement() -> None:
    rows = statements(100, numbered=False)
    for start in (0, 1, 30, 80):
        again = run([*rows[start : start + 10], *rows[start:], *changes(20)], dict(run(rows).progress))
        assert again.events == {"u": 1}, f"sent again from row {start}"
