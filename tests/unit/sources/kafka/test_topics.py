"""Topics whose records may be anything, from a broker inside the client library."""

from contextlib import closing

import pytest
from confluent_kafka import Producer

from replicator.config import KafkaLog
from replicator.model.commit_marker import OffsetRange
from replicator.sources.kafka.topics import KafkaTopics
from tests.support.mock_broker import MockBroker


@pytest.fixture(scope="module")
def broker() -> MockBroker:
    return MockBroker()


def kafka(broker: MockBroker) -> KafkaLog:
    return KafkaLog(kind="kafka", bootstrap_servers=broker.servers, topic_prefix="shop")


def test_records_have_key_headers_and_time(broker: MockBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(
        "clicks", b"a", b"k", partition=1, headers={"n": b"\xff", "m": "text"}, timestamp=1_700_000_000_000
    )
    producer.produce("clicks", None, partition=1)
    producer.produce("clicks", b"c", partition=2)
    assert producer.flush(10) == 0
    with closing(KafkaTopics(kafka(broker))) as topics:
        ranges = [OffsetRange("clicks", 1, 0, 2), OffsetRange("clicks", 2, 0, 1)]
        found = topics.fetch(ranges, 1_000)
        assert found is not None
        rows = sorted(found.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
        assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
            (1, 0, b"k", b"a"),
            (1, 1, None, None),
            (2, 0, None, b"c"),
        ]
        assert rows[0]["timestamp"] == 1_700_000_000_000
        assert rows[0]["headers"] == [{"key": "n", "value": b"\xff"}, {"key": "m", "value": b"text"}]
        assert topics.fetch(ranges, 1) is None
        again = topics.fetch(ranges[:1], 1_000)
        assert again is not None
        assert again.num_rows == 2
