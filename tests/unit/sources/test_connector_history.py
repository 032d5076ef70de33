"""Which binlog file a connector can read from its beginning."""

import json

import pytest

from replicator.config import KafkaLog
from replicator.sources.connector_history import TOPIC_SETTING, first_known_file, newest_snapshot
from tests.support.mock_broker import MockBroker


def record(file: str | None, snapshot: object = None) -> bytes:
    position = {"pos": 4} | ({} if file is None else {"file": file})
    return json.dumps(
        {"position": position | ({} if snapshot is None else {"snapshot": snapshot}), "ddl": "x"}
    ).encode()


@pytest.mark.parametrize(
    ("records", "newest"),
    [
        ([], None),
        ([None, b"no json", b"[]", record(None, True), record("nonsense", True)], None),
        ([record("binlog.000003"), record("binlog.000005")], 3),
        ([record("binlog.000003", True), record("binlog.000005", False), record("binlog.000009")], 3),
        ([record("binlog.000003", "INITIAL"), record("binlog.000005", "INITIAL")], 5),
    ],
)
def test_newest_snapshot_of_a_history_is_found(records: list[bytes | None], newest: int | None) -> None:
    assert newest_snapshot(records) == newest


def test_connector_knows_the_tables_from_the_file_after_its_snapshot_on() -> None:
    broker = MockBroker()
    broker.send("history", record("binlog.000003", True), record("binlog.000004"))
    log = KafkaLog(kind="kafka", bootstrap_servers=broker.servers, topic_prefix="shop")
    assert first_known_file(log, {TOPIC_SETTING: "history"}) == 4
    assert first_known_file(log, {TOPIC_SETTING: "nothing"}) is None
    assert first_known_file(log, {}) is None
