"""Tables whose events the connector cannot send: left out, and taken in again or paused."""

from types import SimpleNamespace
from typing import cast

import pytest

from replicator.batch import MirrorContext
from replicator.errors import EventsRejected
from replicator.model.table import TableId
from replicator.recovery.noted_failure import NotedFailure
from replicator.recovery.request import Requests
from replicator.sources.connector.failure import Failure, failure_in
from replicator.watch import failed_connector
from replicator.watch.failed_connector import FailedConnector

A, B = TableId("shop", "a"), TableId("shop", "b")
REASON = "(Failed to properly convert data value for 'shop.a.f' of type FLOAT4)"


class Harness:
    """A mirror of two tables, and what was done about failures of its connector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.failure: Failure | None = None
        self.aside: set[TableId] = set()
        self.paused: list[tuple[TableId, Exception]] = []
        self.read: list[TableId] = []
        self.declined: list[Failure] = []
        connector = SimpleNamespace(is_busy=False, aside=self.aside, without_table=self.aside.add)
        requests = SimpleNamespace(
            connector=connector,
            requests=list,
            pause=lambda table, cause: self.paused.append((table, cause)),
            replace=lambda requests: self.read.extend(request.table for request in requests),
        )
        noted = SimpleNamespace(take=self._take, decline=self.declined.append)
        lake = SimpleNamespace(namespace_properties=lambda _: {})
        config = SimpleNamespace(lake=SimpleNamespace(ops_namespace="ops"))
        monkeypatch.setattr("replicator.watch.failed_connector.time.monotonic", lambda: self.now)
        monkeypatch.setattr("replicator.sources.mysql.tables.included_tables", lambda _: [A, B])
        self.failed = FailedConnector(
            cast("MirrorContext", SimpleNamespace(lake=lake, config=config)),
            cast("Requests", requests),
            cast("NotedFailure", noted),
        )

    def _take(self) -> Failure | None:
        failure, self.failure = self.failure, None
        return failure

    def fail(self) -> None:
        """Let the connector fail for an event of `a`, some time later."""
        self.now += failed_connector._POLL_S
        self.failure = failure_in(REASON)
        self.failed.step()


def test_table_whose_events_fail_is_left_out_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(monkeypatch)
    harness.fail()
    assert (harness.aside, harness.read, harness.paused) == ({A}, [A], [])


def test_failure_for_a_table_that_is_left_out_already_is_left_to_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness(monkeypatch)
    harness.fail()
    harness.fail()
    assert [failure.reason for failure in harness.declined] == [REASON]
    assert harness.paused == []


@pytest.mark.parametrize(("later_s", "pauses"), [(3_500, True), (3_700, False)])
def test_table_whose_events_fail_again_within_an_hour_pauses(
    monkeypatch: pytest.MonkeyPatch, later_s: float, pauses: bool
) -> None:
    harness = Harness(monkeypatch)
    harness.fail()
    harness.aside.clear()
    harness.read.clear()
    harness.now += later_s
    harness.fail()
    assert harness.aside == {A}
    assert [table for table, cause in harness.paused if isinstance(cause, EventsRejected)] == [A] * pauses
    assert harness.read == [A] * (not pauses)
