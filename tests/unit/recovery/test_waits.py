"""What a re-read waits for: added partitions, and the outcome of prepared transactions."""

import threading
from collections.abc import Callable

import pytest

from replicator.batch.state.partition_counts import LEARNS_S, PartitionCounts
from replicator.batch.state.prepared_transactions import PreparedTransactions
from replicator.model.binlog import BinlogEnd
from replicator.model.table import TableId
from replicator.recovery.reader import waits
from replicator.recovery.reader.waits import NewPartitions, PreparedRows
from replicator.schema.ddl.dml import ChangedTables
from replicator.sources.mysql.throttle import StopSignal

TOPIC = "shop.shop.orders"
A, B = TableId("shop", "a"), TableId("shop", "b")
END = BinlogEnd("mysql-bin.000003", 100)


class Waiting:
    """A re-read of a table that the lake has of `known` partitions, with a clock that waiting advances."""

    def __init__(self, known: int | None) -> None:
        self.now = 0.0
        self.reasons: list[str | None] = []
        counts = PartitionCounts(lambda: self.now)
        table = TableId("shop", "orders")
        self.added = NewPartitions(counts, table, TOPIC, known, self.reasons.append)

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


@pytest.mark.parametrize("known", [None, 2, 3])
def test_reading_does_not_wait_if_no_partition_is_known_to_be_new(known: int | None) -> None:
    waiting = Waiting(known)
    assert not waiting.added.has(2)
    assert waiting.added.wait(lambda: 2, waiting) is False  # type: ignore[arg-type]  # only the clock differs
    assert (waiting.now, waiting.reasons) == (0.0, [])


def test_reading_waits_until_the_connector_knows_the_newest_partitions() -> None:
    waiting = Waiting(1)
    seen = iter([2, 3, 3])
    waiting.added.wait(lambda: next(seen), waiting)  # type: ignore[arg-type]  # only the clock differs
    # The third partition was seen when the wait for the second one was over.
    assert waiting.now == 2 * LEARNS_S
    assert waiting.reasons == ["the connector may still write with fewer than 2 partitions", None]
    assert waiting.added.has(3)
    assert waiting.added.seconds_left(3) == 0


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
    monkeypatch.setattr(waits, "_SHOWN_AFTER", 1)
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
