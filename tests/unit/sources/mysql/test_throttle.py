"""When reading waits: for the rate, and for replicas."""

import threading
import time

import pytest

from replicator.config import Config
from replicator.model.table import TableId
from replicator.sources.mysql.replication import ReplicaLag, watched_servers
from replicator.sources.mysql.throttle import ReplicaWatch, StopSignal, Throttle, lag_reason
from tests.support.config import minimal_config

TABLE = TableId("shop", "orders")


def configured(**bootstrap: object) -> Config:
    source = {"url": "mysql://u@h/shop", "password": {"env": "SOURCE_PASSWORD"}, "tables": ["shop.*"]}
    return minimal_config(source=source, bootstrap=bootstrap)


def test_pace_limits_rows_that_are_read_from_now_on() -> None:
    pace = Throttle(1_000, ReplicaWatch([], 0.0, TABLE, print))
    stopping = StopSignal(threading.Event(), threading.Event())
    began = time.monotonic()
    assert not pace.wait(50_000, stopping)
    assert time.monotonic() - began < 0.5, "rows of an earlier process do not count"
    assert not pace.wait(50_600, stopping)
    assert time.monotonic() - began >= 0.6
    stopping.cancelled.set()
    assert pace.wait(10**9, stopping)


@pytest.mark.parametrize(
    ("lag", "is_replica", "reason"),
    [
        (None, False, None),
        (None, True, "db:3306 is no replica"),
        (ReplicaLag(5), True, None),
        (ReplicaLag(6), False, "db:3306 is more than 5 s behind"),
        (ReplicaLag(None), False, "the replication of db:3306 does not run"),
    ],
)
def test_reading_waits_for_replicas_that_are_behind_or_unknown(
    lag: ReplicaLag | None, is_replica: bool, reason: str | None
) -> None:
    assert lag_reason("db:3306", lag, 5.0, is_replica=is_replica) == reason


def test_watched_servers_are_the_source_and_the_configured_replicas() -> None:
    urls = ["mysql://a@r1", "mysql://b@r2:3307"]
    assert watched_servers(configured()) == []
    (source,) = watched_servers(configured(max_replica_lag="5 s"))
    assert (source.server.name, source.is_replica) == ("h:3306", False)
    _, first, second = watched_servers(configured(max_replica_lag="5 s", replica_urls=urls))
    assert (first.server.name, second.server.name, first.is_replica) == ("r1:3306", "r2:3307", True)
    assert first.server.password == source.server.password
    own = configured(max_replica_lag="5 s", replica_urls=urls, replica_password={"env": "REPLICA_PASSWORD"})
    password = watched_servers(own)[1].server.password
    assert password is not None
    assert password.env == "REPLICA_PASSWORD"


def test_reading_waits_for_a_replica_that_cannot_be_reached_until_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    waits: list[str | None] = []
    told, stop = threading.Event(), StopSignal(threading.Event(), threading.Event())

    def on_wait(reason: str | None) -> None:
        waits.append(reason)
        told.set()

    # Nothing listens on port 1.
    config = minimal_config(
        source={
            "url": "mysql://u@127.0.0.1:1",
            "password": {"env": "SOURCE_PASSWORD"},
            "tables": ["shop.*"],
        },
        bootstrap={"max_replica_lag": "5 s"},
    )
    ended: list[bool] = []
    throttle = Throttle.of(config, TABLE, on_wait, rows_per_second=None)
    thread = threading.Thread(target=lambda: ended.append(throttle.wait(0, stop)))
    thread.start()
    assert told.wait(30)
    began = time.monotonic()
    stop.stopping.set()
    thread.join(10)
    assert (ended, time.monotonic() - began < 5) == ([True], True)
    assert len(waits) == 2
    assert "cannot reach MySQL at 127.0.0.1:1" in str(waits[0])
    assert waits[1] is None
