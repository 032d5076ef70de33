"""A re-read waits for the outcome of prepared transactions."""

import threading
from collections.abc import Callable

import pytest

from replicator.batch.state.prepared_transactions import PreparedTransactions
from replicator.model.binlog import BinlogEnd
from replicator.model.table import TableId
from replicator.recovery.reader import prepared_rows
from replicator.recovery.reader.prepared_rows import PreparedRows
from replicator.schema.ddl.rows import ChangedTables
from replicator.sources.mysql.stop_signal import StopSignal

A, B = TableId("shop", "a"), TableId("shop", "b")
END = BinlogEnd("mysql-bin.000003", 100)


class Steps(StopSignal):  # no slots, so it can have steps
    """Does the next step instead of each wait."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__(threading.Event(), threading.Event())
        object.__setattr__(self, "steps", list(steps))

    def wait(self, seconds: float) -> bool:
        del seconds
        steps: list[Callable[[], object]] = self.steps  # type: ignore[attr-defined]
        steps.pop(0)()
        return self.is_set()


@pytest.fixture
def prepared() -> PreparedTransactions:
    transactions = PreparedTransactions()
    transactions.begin()
    return transactions


def test_it_waits_until_the_binlog_was_watched(prepared: PreparedTransactions) -> None:
    watched = Steps(lambda: prepared.note((3, 99), []), lambda: prepared.note((3, 100), []))
    assert not PreparedRows(prepared, A, lambda _: None).wait(lambda: END, watched)


def test_it_waits_for_the_outcome_and_tells_that_it_did(
    prepared: PreparedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_rows, "_SHOWN_AFTER", 1)
    told: list[str | None] = []
    prepared.note((4, 4), [ChangedTables(frozenset({A}))])
    committed = Steps(lambda: None, lambda: prepared.note((4, 300), []))
    assert PreparedRows(prepared, A, told.append).wait(lambda: END, committed)
    assert told == ["a prepared XA transaction has changed rows of it", None]
    assert not PreparedRows(prepared, B, told.append).wait(lambda: END, Steps())


def test_it_ends_if_reading_must_stop_or_the_watch_has_ended(prepared: PreparedTransactions) -> None:
    stopped = Steps()
    stopped.stopping.set()
    rows = PreparedRows(prepared, A, lambda _: None)
    assert not rows.wait(lambda: END, stopped)
    assert not rows.wait(lambda: END, Steps(prepared.end))


def test_nothing_is_awaited_without_a_watch() -> None:
    assert not PreparedRows(PreparedTransactions(), A, lambda _: None).wait(lambda: END, Steps())
