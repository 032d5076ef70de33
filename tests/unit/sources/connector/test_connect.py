"""The client of Kafka Connect, with a small server with configured answers."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from replicator.config import KafkaLog
from replicator.errors import ConnectError
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.state import (
    ConnectorState,
    cause,
    failure_hint,
    lost_binlog,
    lost_connection,
)
from tests.support.kafka_connect import Connect, serving

FIND = "GET /connectors?expand=info&expand=status"
STATUS = "GET /connectors/shop/status"
OFFSETS = "GET /connectors/shop/offsets"


@pytest.fixture
def connect() -> Iterator[Connect]:
    with serving() as server:
        yield server


def known(prefix: str, state: str = "RUNNING") -> dict[str, Any]:
    status = {"connector": {"state": state}, "tasks": [{"id": 0, "state": state, "trace": "a.B: no\n"}]}
    return {"info": {"config": {"topic.prefix": prefix}}, "status": status}


def test_connector_is_found_by_its_topic_prefix(connect: Connect) -> None:
    connect.reply(FIND, 200, {"other": known("o"), "by-hand": known("shop", "FAILED")})
    found = KafkaConnect(connect.url + "/").find("shop")
    assert found is not None
    assert (found.name, found.state.summary) == ("by-hand", "FAILED")
    assert found.state.failures == ("no",)
    assert KafkaConnect(connect.url).find("nobody") is None


@pytest.mark.parametrize(
    ("connector", "tasks", "summary"),
    [
        ("RUNNING", ["RUNNING"], "RUNNING"),
        ("RUNNING", [], "UNASSIGNED"),
        ("RUNNING", ["RESTARTING"], "RESTARTING"),
        ("PAUSED", ["PAUSED"], "PAUSED"),
        ("STOPPED", [], "STOPPED"),
        ("RUNNING", ["RUNNING", "FAILED"], "FAILED"),
        ("FAILED", [], "FAILED"),
    ],
)
def test_connector_summary_is_the_worst_state(connector: str, tasks: list[str], summary: str) -> None:
    assert ConnectorState("shop", connector, dict(enumerate(tasks))).summary == summary


def test_connector_offset_is_that_of_its_present_topic_prefix(connect: Connect) -> None:
    offsets = [
        {"partition": {"server": name}, "offset": {"file": name, "pos": 4}} for name in ("a", "shop", "z")
    ]
    connect.reply(OFFSETS, 200, {"offsets": offsets})
    connect.reply("GET /connectors/shop/config", 200, {"topic.prefix": "shop"})
    assert KafkaConnect(connect.url).offset("shop") == {"file": "shop", "pos": 4}


def test_cause_of_a_statement_that_cannot_be_parsed_is_the_statement() -> None:
    trace = """org.apache.kafka.connect.errors.ConnectException: An exception occurred in the change event producer.
Caused by: io.debezium.DebeziumException: Error processing binlog event
Caused by: io.debezium.text.ParsingException: DDL statement couldn't be parsed. Please open a GitHub issue at https://github.com/debezium/dbz/issues with the statement 'CREATE TABLE other.links (id INT PRIMARY KEY, url VARCHAR(300))'
mismatched input 'url' expecting {ACCOUNT_SYMBOL}
Caused by: org.antlr.v4.runtime.InputMismatchException"""  # noqa: E501 - as Debezium writes it
    statement = "'CREATE TABLE other.links (id INT PRIMARY KEY, url VARCHAR(300))'"
    assert cause(trace) == f"the connector cannot parse a statement: {statement}"


def test_kafka_connect_waits_for_a_rebalance(connect: Connect) -> None:
    connect.reply(STATUS, 409, {"message": "rebalance"})
    connect.reply(STATUS, 200, known("shop")["status"])
    state = KafkaConnect(connect.url, patience=20).state("shop")
    assert state is not None
    assert state.summary == "RUNNING"


@pytest.mark.parametrize("body", [[], "text", {"shop": 5}])
def test_kafka_connect_refuses_responses_of_another_server(connect: Connect, body: Any) -> None:
    connect.reply(FIND, 200, body)
    with pytest.raises(ConnectError, match="does not respond like Kafka Connect"):
        KafkaConnect(connect.url).find("shop")


def test_kafka_connect_error_names_the_http_status_without_secrets(connect: Connect) -> None:
    connect.reply(STATUS, 500, {"message": "Request timed out with secret-word"})
    with pytest.raises(ConnectError, match=r"answered 500: Request timed out with \*\*\*"):
        KafkaConnect(connect.url, ["secret-word"]).state("shop")


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Access denied for user 'x' (using password: YES)", "source.password"),
        ("Access denied; you need RELOAD", "REPLICATION SLAVE"),
        ("Cannot replicate because the source purged required binary logs", "new snapshot"),
        ("stopped (Failed to read next byte from position 651)", "MySQL is running"),
        ("Failed to establish connection with the database: (Account is locked)", "unlock the user"),
        ("a column that nobody knows", "replicator connect"),
    ],
)
def test_failure_hint_has_a_next_step_for_usual_failures(text: str, step: str) -> None:
    assert step in failure_hint(text)


def test_lost_connection_excludes_a_refused_login() -> None:
    failed = "Failed to establish connection with the database: ({})"
    assert lost_connection(failed.format("Connection refused"))
    assert not lost_connection(failed.format("Access denied for user 'x'"))
    assert not lost_connection(failed.format("Account is locked"))


def test_reset_waits_until_the_connector_has_stopped(connect: Connect) -> None:
    stop, delete, resume = (
        "PUT /connectors/shop/stop",
        "DELETE /connectors/shop/offsets",
        "PUT /connectors/shop/resume",
    )
    connect.reply(stop, 204)
    connect.reply(
        delete, 400, {"message": "Connectors must be in the STOPPED state before their offsets can be"}
    )
    connect.reply(delete, 200, {"message": "reset"})
    connect.reply(resume, 202)
    KafkaConnect(connect.url).reset("shop")
    assert [asked for asked, _ in connect.asked] == [stop, delete, delete, resume]


def test_reset_fails_if_offsets_cannot_be_deleted(connect: Connect) -> None:
    connect.reply("PUT /connectors/shop/stop", 204)
    connect.reply("DELETE /connectors/shop/offsets", 500, {"message": "no broker"})
    with pytest.raises(ConnectError, match="no broker"):
        KafkaConnect(connect.url).reset("shop")


@pytest.mark.parametrize(
    ("state", "tasks", "stopped"),
    [("STOPPED", [], True), ("STOPPED", ["RUNNING"], False), ("RUNNING", [], False)],
)
def test_connector_has_stopped_once_it_has_no_task(
    connect: Connect, state: str, tasks: list[str], stopped: bool
) -> None:
    found = [{"id": i, "state": of_task} for i, of_task in enumerate(tasks)]
    connect.reply(STATUS, 200, {"connector": {"state": state}, "tasks": found})
    assert KafkaConnect(connect.url).has_stopped("shop") is stopped


@pytest.mark.parametrize(
    ("reason", "lost"),
    [
        ("It is trying to read x, but this is no longer available on the server. Reconfigure it", True),
        ("Could not find first log file name in binary log index; the log was purged", True),
        ("Access denied for user", False),
        ("table orders was purged", False),
    ],
)  # fmt: skip
def test_lost_binlogs_are_told_from_other_failures(reason: str, lost: bool) -> None:
    assert lost_binlog(reason) is lost


def test_a_login_in_the_url_is_sent_and_never_shown(connect: Connect) -> None:
    url = connect.url.replace("://", "://joe:s%40cret@")
    worker = KafkaConnect(url)
    connect.reply(FIND, 200, {"shop": known("shop")})
    found = worker.find("shop")
    assert found is not None
    assert connect.logins == ["Basic " + b64encode(b"joe:s@cret").decode()]
    shown = [worker.url, str(found), str(found.state.address)]
    connect.reply(STATUS, 500, {"message": "no login s@cret or s%40cret"})
    for client in (worker, KafkaConnect(url.replace(connect.url.rpartition(":")[2], "1"))):
        with pytest.raises(ConnectError) as caught:
            client.state("shop")
        shown += [str(caught.value), str(caught.value.hint), repr(caught.value.__cause__)]
    assert not [text for text in shown if "cret" in text or "joe" in text]
    log = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "shop", "connect_url": url}
    assert "cret" not in repr(KafkaLog.model_validate(log))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("call", ["find", "put"])
def test_passwords_do_not_follow_a_redirect(connect: Connect, status: int, call: str) -> None:
    with serving() as other:
        target = other.url.replace("://", "://x:y@") + "/elsewhere?a=b"
        connect.reply(FIND, status, target)
        connect.reply("PUT /connectors/shop/config", status, target)
        worker = KafkaConnect(connect.url.replace("://", "://joe:secret@"))
        settings = {"connector.class": "a.B", "database.password": "secret"}
        calls = {"find": lambda: worker.find("shop"), "put": lambda: worker.put("shop", settings)}
        with pytest.raises(ConnectError, match=rf"redirects to {other.url}/elsewhere$") as caught:
            calls[call]()
        assert caught.value.hint == "set log.connect_url to the address of Kafka Connect itself"
        assert other.asked == []
