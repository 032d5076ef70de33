"""Watching the servers of a mirror: restarts of the connector, log lines, the goal of a run."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from replicator.config import Config
from replicator.errors import NotCaughtUp
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.recovery.noted_failure import NotedFailure
from replicator.sources.connector.policy import Observation, WaitLimits
from replicator.watch import connector_watch
from replicator.watch.connector_watch import SourceGoal, watching
from tests.support.config import minimal_config
from tests.support.kafka_connect import Connect, serving
from tests.support.mirror import until

FIND = "GET /connectors?expand=info&expand=status"
STATUS = "GET /connectors/shop/status"
RESTART = "POST /connectors/shop/restart?includeTasks=true&onlyFailed=true"
PASSWORD = "hunter2-secret"


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)


@pytest.fixture
def connect() -> Iterator[Connect]:
    with serving() as server:
        yield server


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    # Its queue has room for the connections of all rounds of a test, because none is accepted.
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        yield server


@pytest.fixture
def unavailable() -> Iterator[socket.socket]:
    """Return the socket of a server that refuses connections until the test lets it listen."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as found:
        yield found  # type: ignore[misc]


def config(connect: Connect | None, broker: socket.socket) -> Config:
    """Return a configuration whose MySQL does not respond."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        mysql_port = closed.getsockname()[1]
    kafka = f"127.0.0.1:{broker.getsockname()[1]}"
    log = {"kind": "kafka", "bootstrap_servers": kafka, "topic_prefix": "shop"}
    return minimal_config(
        source={
            "url": f"mysql://cdc@127.0.0.1:{mysql_port}/shop",
            "password": {"env": "SHOP_PASSWORD"},
            "tables": ["shop.*"],
        },
        log=log | ({"connect_url": connect.url} if connect else {}),
    )


@contextlib.contextmanager
def quickly_watching(
    config: Config,
    *,
    until_caught_up: bool,
    noted: NotedFailure | None = None,
) -> Iterator[SourceGoal | None]:
    """Watch in short rounds during the block, and wait until the last round has ended."""
    limits = WaitLimits(source=0.5)
    before = set(threading.enumerate())
    told: dict[str, Any] = {"noted": noted, "interval": 0.02, "limits": limits}
    with watching(config, until_caught_up=until_caught_up, **told) as goal:
        started = [thread for thread in threading.enumerate() if thread not in before]
        yield goal
    for thread in started:
        if thread.name == "watch":
            thread.join(10)
            assert not thread.is_alive()


def status(state: str, trace: str | None = None) -> dict[str, Any]:
    return {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": state, "trace": trace}]}


def registered(connect: Connect) -> None:
    info = {"config": {"topic.prefix": "shop"}}
    connect.reply(FIND, 200, {"shop": {"info": info, "status": status("RUNNING")}})


def event(lines: list[dict[str, Any]], text: str, **fields: str) -> dict[str, Any]:
    """Wait for a log line with this event and these fields, and return the first one."""
    wanted = {"event": text, **fields}.items()
    found: dict[str, Any] = until(
        lambda: next((line for line in list(lines) if wanted <= line.items()), None), seconds=10, doing=text
    )
    return found


def test_watch_restarts_a_failed_task_and_logs_its_cause_without_secrets(
    connect: Connect, broker: socket.socket, lines: list[dict[str, Any]]
) -> None:
    registered(connect)
    trace = (
        f"a.B: stopped\n\tat x\nCaused by: c.D: lost\nCaused by: java.io.EOFException: byte 5 {PASSWORD}\n"
    )
    connect.reply(STATUS, 200, status("FAILED", trace))
    connect.reply(STATUS, 200, status("RUNNING"))
    connect.reply(RESTART, 204)
    with quickly_watching(config(connect, broker), until_caught_up=False) as goal:
        assert goal is None
        failed = event(lines, "the connector failed")
        assert event(lines, "restarting the connector")["attempt"] == 1
        event(lines, "the connector is running again")
    assert failed["reason"] == "stopped (byte 5 ***)"
    assert failed["next"]
    assert connect.count(RESTART) == 1


def test_watch_reports_lost_binlogs_and_does_not_restart_the_task(
    connect: Connect, broker: socket.socket, lines: list[dict[str, Any]]
) -> None:
    registered(connect)
    connect.reply(
        STATUS, 200, status("FAILED", "a.B: reads x, but this is no longer available on the server.\n")
    )
    settings = config(connect, broker)
    noted = NotedFailure(settings)
    with quickly_watching(settings, until_caught_up=False, noted=noted):
        event(lines, "the connector failed")
        until(lambda: noted.lacks_binlogs, seconds=10, doing="the loss is reported")
    assert connect.count(RESTART) == 0


ROW_SIZE = "a.B: Error processing row in a, internal schema size 3, but row size 1 , restart connector\n"


def test_watch_notes_the_failure_for_one_table_and_leaves_others_to_restarts(
    connect: Connect, broker: socket.socket, lines: list[dict[str, Any]]
) -> None:
    registered(connect)
    connect.reply(STATUS, 200, status("FAILED", ROW_SIZE))
    connect.reply(RESTART, 204)
    settings = config(connect, broker)
    noted = NotedFailure(settings)
    with quickly_watching(settings, until_caught_up=False, noted=noted):
        event(lines, "the connector failed")
        found = until(noted.take, seconds=10, doing="the failure is noted")
        assert connect.count(RESTART) == 0
        # The mirror has no such table.
        noted.decline(found)
        event(lines, "restarting the connector")


def test_unexpected_error_does_not_end_the_watch(
    connect: Connect,
    broker: socket.socket,
    lines: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connector_watch, "_LONGEST_PAUSE_S", 0.01)
    registered(connect)
    connect.reply(STATUS, 200, status("FAILED", ROW_SIZE))
    settings = config(connect, broker)
    noted = NotedFailure(settings)
    failures = iter([RuntimeError("unexpected")])
    note = noted.note

    def fails_once(reason: str) -> bool:
        for failure in failures:
            raise failure
        return note(reason)

    monkeypatch.setattr(noted, "note", fails_once)
    with quickly_watching(settings, until_caught_up=False, noted=noted):
        event(lines, "unexpected error of the watch, it goes on")
        assert until(noted.take, seconds=10, doing="the failure is noted").name == "a"


def test_watch_logs_a_failing_connect_worker_once_and_its_recovery(
    connect: Connect, broker: socket.socket, lines: list[dict[str, Any]]
) -> None:
    for _ in range(5):
        connect.reply(FIND, 500, {"message": "starting"})
    registered(connect)
    connect.reply(STATUS, 200, status("RUNNING"))
    with quickly_watching(config(connect, broker), until_caught_up=False):
        until(lambda: connect.count(STATUS) > 5, seconds=10, doing="look at the connector")
    found = [(line["event"], line.get("reason")) for line in lines if line.get("server") != "MySQL"]
    assert found == [
        ("the connector is not running", f"Kafka Connect at {connect.url} answered 500: starting"),
        ("the connector is running again", None),
    ]


def test_watch_logs_an_unavailable_broker_and_its_recovery(
    connect: Connect, unavailable: socket.socket, lines: list[dict[str, Any]]
) -> None:
    registered(connect)
    connect.reply(STATUS, 200, status("RUNNING"))
    unavailable.settimeout(10)
    with quickly_watching(config(connect, unavailable), until_caught_up=False):
        event(lines, "a server does not answer", server="Kafka")
        unavailable.listen(4096)
        event(lines, "a server answers again", server="Kafka")
        for _ in range(3):
            unavailable.accept()[0].close()
    found = [line["event"] for line in lines if line.get("server") == "Kafka"]
    assert found == ["a server does not answer", "a server answers again"]


def test_goal_wait_fails_when_the_source_is_unavailable(
    connect: Connect, broker: socket.socket, lines: list[dict[str, Any]]
) -> None:
    registered(connect)
    connect.reply(STATUS, 200, status("RUNNING"))
    with quickly_watching(config(connect, broker), until_caught_up=True) as goal:
        assert goal is not None
        assert PASSWORD not in str(event(lines, "a server does not answer", server="MySQL"))
        with pytest.raises(NotCaughtUp, match="with the source is unknown: cannot reach MySQL") as caught:
            goal.wait(threading.Event(), 0, 20)
    assert caught.value.exit_code == 1


def offset(pos: int) -> ConnectorOffset:
    return ConnectorOffset("mysql-bin.000001", pos)


def test_goal_wait_fails_when_the_connector_is_stopped() -> None:
    goal = SourceGoal(WaitLimits(settled=0.3))
    goal.set_end(BinlogEnd("mysql-bin.000001", 500))
    goal.connector_observed(Observation("STOPPED", name="shop"), offset(100))
    with pytest.raises(NotCaughtUp) as caught:
        goal.wait(threading.Event(), 0, 20)
    assert caught.value.message == (
        "caught up with the topics, not with the source at mysql-bin.000001:500: "
        "the connector shop is STOPPED, which has read up to mysql-bin.000001:100"
    )
    assert "resume" in (caught.value.hint or "")
