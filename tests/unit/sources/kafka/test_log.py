"""The Kafka log, on a broker inside the client library."""

from collections.abc import Collection
from typing import Any

import confluent_kafka
import pytest

from replicator.config import KafkaLog
from replicator.model.commit_marker import OffsetRange
from replicator.sources.kafka.admin import KafkaAdmin
from replicator.sources.kafka.log import KafkaChangeLog
from tests.support.mock_broker import MockBroker


class AdminWithIds(KafkaAdmin):
    """Returns invented topic ids: the broker inside the client library has none."""

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: f"id of {topic}" for topic in topics}


@pytest.fixture
def broker() -> MockBroker:
    return MockBroker()


@pytest.fixture
def log(broker: MockBroker) -> KafkaChangeLog:
    settings = KafkaLog(kind="kafka", bootstrap_servers=broker.servers, topic_prefix="shop")
    return KafkaChangeLog(settings, AdminWithIds(settings, timeout_s=20))


def test_kafka_log_offsets_are_those_of_data_topics(log: KafkaChangeLog, broker: MockBroker) -> None:
    broker.send("shop.shop.t", b"1", b"2", partition=2)
    broker.send("shop", b"ddl")
    first, end = log.offsets()
    assert first == {"shop.shop.t": dict.fromkeys(range(4), 0)}
    assert end == {"shop.shop.t": {0: 0, 1: 0, 2: 2, 3: 0}}
    assert log.topic_id("shop.shop.t") == "id of shop.shop.t"
    assert log.topic_id("shop") is None


def test_kafka_log_returns_only_new_schema_changes(log: KafkaChangeLog, broker: MockBroker) -> None:
    assert list(log.schema_changes()) == []
    broker.send("shop", b"a", b"b")
    assert [record.value for record in log.schema_changes()] == [b"a", b"b"]
    broker.send("shop", b"c")
    assert [record.value for record in log.schema_changes()] == [b"c"]
    assert list(log.schema_changes()) == []


def test_kafka_log_asks_for_a_topic_that_is_new_to_its_client(
    log: KafkaChangeLog, broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the question, the first read of the topic takes a second."""
    asked: list[Any] = []

    class Consumer(confluent_kafka.Consumer):
        def list_topics(self, *args: Any, **options: Any) -> Any:
            asked.append(options.get("topic"))
            return super().list_topics(*args, **options)

    monkeypatch.setattr("replicator.sources.kafka.log.Consumer", Consumer)
    broker.send("shop", b"ddl")
    broker.send("shop.shop.t", b"1", b"2")
    assert [record.value for record in log.schema_changes()] == [b"ddl"]
    for _ in range(2):
        found = log.fetch([OffsetRange("shop.shop.t", 0, 0, 2)], 1_000)
        assert isinstance(found, dict)
        assert found["shop.shop.t"].column("value").to_pylist() == [b"1", b"2"]
    assert asked == ["shop.shop.t"]
