"""The view of the source if some servers do not respond."""

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from replicator.config import Config
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.sources.connector.policy import MISSING, UNREACHABLE
from replicator.sources.kafka.admin import KafkaAdmin
from replicator.sources.mysql import connection
from replicator.sources.source_reader import read_source
from replicator.sources.source_view import SourceView
from tests.support.config import minimal_config
from tests.support.kafka_connect import Connect, serving
from tests.support.mock_broker import MockBroker

FIND = "GET /connectors?expand=info&expand=status"


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2-secret")


@pytest.fixture
def connect() -> Iterator[Connect]:
    with serving() as server:
        yield server


def config(connect_url: str | None) -> Config:
    """Return a configuration whose MySQL and Kafka do not respond."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    log = {"kind": "kafka", "bootstrap_servers": address, "topic_prefix": "shop"}
    return minimal_config(
        source={
            "url": f"mysql://cdc@{address}/shop",
            "password": {"env": "SHOP_PASSWORD"},
            "tables": ["shop.*"],
        },
        log=log | ({"connect_url": connect_url} if connect_url else {}),
    )


def test_read_source_records_each_server_that_does_not_respond(connect: Connect) -> None:
    connect.reply(FIND, 200, {})
    found = read_source(config(connect.url), kafka_timeout_s=1)
    assert "cannot reach MySQL" in (found.source_problem or "")
    assert "cannot reach Kafka" in (found.log_problem or "")
    assert found.connector is not None
    assert found.connector.state == MISSING
    assert found.log_is_complete is None
    found = read_source(config("http://127.0.0.1:9"), kafka_timeout_s=1)
    assert found.connector is not None
    assert found.connector.state == UNREACHABLE


def test_read_source_reads_the_connector_when_mysql_is_unavailable(connect: Connect) -> None:
    task = {"id": 0, "state": "FAILED", "trace": "a.B: Connection refused hunter2-secret"}
    info: dict[str, Any] = {"config": {"topic.prefix": "shop"}}
    connect.reply(
        FIND, 200, {"mine": {"info": info, "status": {"connector": {"state": "RUNNING"}, "tasks": [task]}}}
    )
    offset = {"file": "b.000001", "pos": 4}
    connect.reply("GET /connectors/mine/offsets", 200, {"offsets": [{"offset": offset}]})
    found = read_source(config(connect.url), kafka_timeout_s=1)
    assert found.offset == ConnectorOffset("b.000001", 4)
    assert found.connector is not None
    assert (found.connector.state, found.connector.reason) == ("FAILED", "Connection refused ***")


def test_what_the_topics_have_is_read_after_the_position_of_the_connector_and_that_after_the_end_of_the_binlog(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MockBroker()
    broker.send("shop.shop.orders", b"1")
    read = config(connect.url)
    log = read.log.model_copy(update={"bootstrap_servers": broker.servers})
    offsets = "GET /connectors/mine/offsets"
    connect.reply(FIND, 200, {"mine": {"info": {"config": {"topic.prefix": "shop"}}}})
    connect.reply(offsets, 200, {"offsets": [{"offset": {"file": "b.000001", "pos": 4}}]})

    def ask(statement: str) -> list[tuple[object, ...]]:
        assert connect.count(offsets) == ("EXISTS" in statement)
        if "information_schema" in statement:
            return [("shop", "orders"), ("shop", "a:b"), ("shop", "c%d")]
        answers: dict[str, list[tuple[object, ...]]] = {
            "SELECT VERSION()": [("8.4.1-log",)],
            "SHOW BINARY LOG STATUS": [("b.000001", 4, "", "", "")],
            "SELECT EXISTS (SELECT 1 FROM `shop`.`a:b`)": [(0,)],
            "SELECT EXISTS (SELECT 1 FROM `shop`.`c%d`)": [(1,)],
        }
        return answers[statement]

    def end_offsets(self: KafkaAdmin, partitions: Any) -> dict[tuple[str, int], int]:
        assert connect.count(offsets) == 1
        return ends(self, partitions)

    ends = KafkaAdmin.end_offsets
    monkeypatch.setattr(KafkaAdmin, "end_offsets", end_offsets)
    monkeypatch.setattr(connection, "asking", lambda *_, **__: nullcontext(ask))
    found = read_source(read.model_copy(update={"log": log}))
    assert found.log_is_complete
    assert found.ends is not None
    assert found.ends["shop.shop.orders", 0] == 1
    assert (found.log_problem, found.source_problem) == (None, None)
    assert (found.empty, found.unread) == (("shop.a:b",), ("shop.c%d",))


@pytest.mark.parametrize(("pos", "complete"), [(499, False), (500, True)])
def test_log_is_complete_when_the_offset_covers_the_end(pos: int, complete: bool) -> None:
    end, offset = BinlogEnd("b.000001", 500), ConnectorOffset("b.000001", pos)
    assert SourceView("p.", is_asked=True, end=end, offset=offset).log_is_complete is complete
