"""A table with a backlog is read in rounds, and the other tables do not wait for it."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.batch import TableTask
from replicator.errors import LogUnavailable, SchemaError
from replicator.model.batch_stats import BatchStats
from replicator.model.table import TableId
from replicator.runner.rounds import Rounds
from replicator.sources.change_log import Offsets
from tests.support.scheduler_harness import SchedulerHarness, spark_error

ORDERS, USERS = "shop.shop.orders", "shop.shop.users"


class Backlog(SchedulerHarness):
    """A mirror whose rounds have at most 10 events. `read` is each task's table and the range of its events."""

    def __init__(self, tmp_path: Path, **options: Any) -> None:
        apply = {"max_events": 10, "driver_max_events": 2, "trigger": "continuous", "parallel_tables": 1}
        super().__init__(tmp_path, apply=apply, **options)
        self.read: list[tuple[str, int, int]] = []
        self.users_end = 1
        self.log.readable_ends = self.ends
        self.log.offsets = lambda: ({ORDERS: {0: 0}, USERS: {0: 0}}, self.ends())
        process = self.work

        def work(context: Any, task: TableTask, watch: Any) -> BatchStats:
            stats = process(context, task, watch)
            self.read += [(task.table.name, r.start, r.end) for r in task.ranges]
            return stats

        self.work = work

    def ends(self) -> Offsets:
        """Return the ends of the log: `users` gets an event whenever the log is queried."""
        self.users_end += 1
        return {ORDERS: {0: 25}, USERS: {0: self.users_end}}

    def of(self, table: str) -> list[tuple[int, int]]:
        return [(start, end) for name, start, end in self.read if name == table]


@pytest.fixture
def backlog(tmp_path: Path) -> Backlog:
    return Backlog(tmp_path)


def assert_whole(parts: list[tuple[int, int]], end: int) -> None:
    """Assert that each event up to `end` was read once, in order."""
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == end


def test_other_tables_get_their_new_events_in_each_round_of_a_backlog(backlog: Backlog) -> None:
    Rounds(backlog.mirror, follows=True).advance({ORDERS: {0: 25}, USERS: {0: 1}})
    assert_whole(backlog.of("orders"), 25)
    assert_whole(backlog.of("users"), backlog.users_end)
    rounds = len(backlog.of("orders"))
    assert rounds >= 3
    assert len(backlog.of("users")) == rounds
    assert all(end - start <= 10 for start, end in backlog.of("orders"))


def test_rounds_stop_between_two_slices(backlog: Backlog) -> None:
    backlog.mirror._on_batch = lambda _report: backlog.mirror.stopping.set()
    Rounds(backlog.mirror, follows=True).advance({ORDERS: {0: 25}})
    assert backlog.of("orders") == [(0, 10)]


def test_rounds_end_when_a_table_with_a_backlog_fails(backlog: Backlog) -> None:
    backlog.broken["shop.orders"] = spark_error()
    rounds = Rounds(backlog.mirror, follows=False)
    rounds.advance({ORDERS: {0: 25}, USERS: {0: 1}})
    assert backlog.of("users") == [(0, 1)]
    assert backlog.mirror.retry_due()
    backlog.broken.clear()
    rounds.idle()
    assert_whole(backlog.of("orders"), 25)


def test_events_that_came_during_a_reread_are_applied_after_it(backlog: Backlog) -> None:
    """No event may come afterwards that would start a batch."""
    held = {TableId("shop", "orders")}
    recovery = Mock(holds=held.__contains__, is_busy=False)
    backlog.mirror.recovery = recovery
    rounds = Rounds(backlog.mirror, follows=False)
    rounds.advance({ORDERS: {0: 25}, USERS: {0: 1}})
    assert backlog.of("orders") == []

    def publish(_first: Offsets, *, publishes: bool) -> None:
        assert publishes
        while held:
            backlog.mirror.tables.resume(held.pop())

    recovery.step = publish
    rounds.idle()
    assert_whole(backlog.of("orders"), 25)
    read = list(backlog.read)
    rounds.idle()
    assert backlog.read == read


def test_rounds_read_nothing_of_a_paused_table(backlog: Backlog) -> None:
    backlog.mirror.tables.pause(TableId("shop", "orders"), SchemaError("a reason"))
    Rounds(backlog.mirror, follows=True).advance({ORDERS: {0: 25}, USERS: {0: 1}})
    assert backlog.of("orders") == []
    assert backlog.of("users") == [(0, 1)]


def test_rounds_end_with_an_outage(backlog: Backlog) -> None:
    """A batch of the old stream that still waits must not write beside the next stream."""
    backlog.broken["shop.orders"] = LogUnavailable("no broker")
    rounds = Rounds(backlog.mirror, follows=True)
    with pytest.raises(LogUnavailable):
        rounds.advance({ORDERS: {0: 25}})
    backlog.broken.clear()
    rounds.advance({ORDERS: {0: 25}})
    assert backlog.read == []
    Rounds(backlog.mirror, follows=False).advance({ORDERS: {0: 25}})
    assert_whole(backlog.of("orders"), 25)


def test_few_events_are_applied_before_many_and_their_plans_are_not_compiled(tmp_path: Path) -> None:
    harness = SchedulerHarness(tmp_path, apply={"driver_max_events": 10_000})
    compiled: list[str] = []
    harness.mirror.context.spark.conf.set.side_effect = lambda _name, value: compiled.append(value)  # type: ignore[attr-defined]
    process = harness.work
    seen: dict[str, str] = {}

    def work(context: Any, task: TableTask, watch: Any) -> BatchStats:
        seen[task.table.name] = compiled[-1]
        return process(context, task, watch)

    harness.work = work
    harness.mirror.advance({ORDERS: {0: 50_000}, USERS: {0: 5}})
    # The first few events of a new table make it.
    assert harness.done == ["shop.users", "shop.orders", "shop.orders"]
    assert seen["users"] != seen["orders"]
