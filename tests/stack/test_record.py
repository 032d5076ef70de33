"""Recording from a real broker: each committed event once, in order, and no others."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from replicator.config import Config
from replicator.errors import ConfigError, DataLossError
from replicator.operations.record import RecordProgress, RecordTimes, record
from replicator.operations.stack import LocalStack
from replicator.sources.archive.format import Event
from replicator.sources.archive.reader import ArchiveReader
from tests.support.config import minimal_config

pytestmark = pytest.mark.stack


class Broker:
    """Topics of one prefix on the real broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.prefix = f"rec{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.topics: list[str] = []

    def topic(self, name: str, partitions: int = 1) -> str:
        self.topics.append(name)
        for future in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        return name

    def send(self, topic: str, values: list[bytes | None], partition: int = 0, **fields: Any) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number, value in enumerate(values):
            options: dict[str, Any] = {
                "key": b"%d" % number,
                "timestamp": 1_700_000_000_000 + number,
            } | fields
            producer.produce(topic, value, partition=partition, **options)
        assert producer.flush(30) == 0

    def transaction(self, topic: str, values: list[bytes], *, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def config(self, folder: Path) -> Config:
        return minimal_config(
            folder,
            source={"url": "mysql://u@h:3306/shop", "tables": ["shop.*"]},
            log={"kind": "kafka", "bootstrap_servers": self.servers, "topic_prefix": self.prefix},
        )


@pytest.fixture
def broker(running_stack: LocalStack) -> Iterator[Broker]:
    """Provide a topic prefix for one test. Its topics are deleted afterwards."""
    broker = Broker(running_stack.endpoints.bootstrap_servers)
    yield broker
    if broker.topics:
        for future in broker.admin.delete_topics(broker.topics).values():
            future.result(30)


def events(path: Path, topic: str, partition: int = 0) -> list[Event]:
    return list(ArchiveReader(path).events(topic, partition))


def test_record_writes_all_events_of_the_prefix_and_no_others(broker: Broker, tmp_path: Path) -> None:
    orders = broker.topic(f"{broker.prefix}.shop.orders", partitions=2)
    schema = broker.topic(broker.prefix)
    for other in (
        f"{broker.prefix}.transaction",
        f"{broker.prefix}x.shop.orders",
        f"x.{broker.prefix}.orders",
    ):
        broker.send(broker.topic(other), [b"{}"])
    headers = [("__debezium.newkey", b"\x00\xff"), ("empty", None)]
    broker.send(orders, [b"a", None, b""], headers=headers)
    broker.send(orders, [b"b"], partition=1, key=None)
    broker.send(schema, [b"ddl"])
    shown: list[RecordProgress] = []
    done = record(broker.config(tmp_path), tmp_path / "a", until_caught_up=True, on_progress=shown.append)
    assert (done.events, done.remaining) == (5, 0)
    assert shown[-1] == done
    assert ArchiveReader(tmp_path / "a").topics() == sorted([schema, orders])
    assert events(tmp_path / "a", orders) == [
        Event(orders, 0, n, 1_700_000_000_000 + n, b"%d" % n, value, tuple(headers))
        for n, value in enumerate([b"a", None, b""])
    ]
    assert events(tmp_path / "a", orders, 1) == [Event(orders, 1, 0, 1_700_000_000_000, None, b"b")]
    groups = broker.admin.list_consumer_groups().result(30)
    assert "replicator-record" not in {group.group_id for group in groups.valid}


def test_record_continues_an_existing_archive(broker: Broker, tmp_path: Path) -> None:
    orders = broker.topic(f"{broker.prefix}.shop.orders")
    broker.send(orders, [b"a", b"b"])
    config = broker.config(tmp_path)
    assert record(config, tmp_path / "a", until_caught_up=True).events == 2
    assert record(config, tmp_path / "a", until_caught_up=True).events == 0
    broker.send(orders, [b"c"])
    items = broker.topic(f"{broker.prefix}.shop.items")
    broker.send(items, [b"x"])
    assert record(config, tmp_path / "a", until_caught_up=True).events == 2
    assert [e.value for e in events(tmp_path / "a", orders)] == [b"a", b"b", b"c"]
    assert [e.value for e in events(tmp_path / "a", items)] == [b"x"]


def test_record_writes_only_committed_events(broker: Broker, tmp_path: Path) -> None:
    orders = broker.topic(f"{broker.prefix}.shop.orders")
    broker.transaction(orders, [b"a", b"b"], commit=True)
    broker.transaction(orders, [b"no", b"no"], commit=False)
    config = broker.config(tmp_path)
    assert record(config, tmp_path / "a", until_caught_up=True).remaining == 0
    assert [e.value for e in events(tmp_path / "a", orders)] == [b"a", b"b"]
    # Two events, the commit, two events, the abort.
    assert ArchiveReader(tmp_path / "a").end_offsets() == {(orders, 0): 6}
    broker.transaction(orders, [b"c"], commit=True)
    record(config, tmp_path / "a", until_caught_up=True)
    assert [e.offset for e in events(tmp_path / "a", orders)] == [0, 1, 6]


def test_record_includes_topics_that_are_created_while_it_runs(broker: Broker, tmp_path: Path) -> None:
    orders = broker.topic(f"{broker.prefix}.shop.orders")
    broker.send(orders, [b"a"])
    stop, seen = threading.Event(), threading.Semaphore(0)
    result: list[RecordProgress] = []
    counted = 0

    def count(progress: RecordProgress) -> None:
        nonlocal counted
        for _ in range(progress.events - counted):
            seen.release()
        counted = progress.events

    def run() -> None:
        config = broker.config(tmp_path)
        times = RecordTimes(segment=0, refresh=0.5)
        result.append(
            record(config, tmp_path / "a", until_caught_up=False, on_progress=count, stop=stop, times=times)
        )

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert seen.acquire(timeout=30)
        broker.send(orders, [b"b"])
        items = broker.topic(f"{broker.prefix}.shop.items")
        broker.send(items, [b"x"])
        assert seen.acquire(timeout=30)
        assert seen.acquire(timeout=30)
    finally:
        stop.set()
        thread.join(30)
    assert result[0].events == 3
    assert [e.value for e in events(tmp_path / "a", orders)] == [b"a", b"b"]
    assert [e.value for e in events(tmp_path / "a", items)] == [b"x"]


@pytest.mark.fault(
    "Kafka deletes events before they are recorded",
    area="Archive",
    on="Kafka",
    outcome="recording ends with an error",
    lost="the deleted events",
)
def test_record_fails_when_unrecorded_events_were_deleted(broker: Broker, tmp_path: Path) -> None:
    orders = broker.topic(f"{broker.prefix}.shop.orders")
    broker.send(orders, [b"a", b"b"])
    config = broker.config(tmp_path)
    record(config, tmp_path / "a", until_caught_up=True)
    broker.send(orders, [b"c", b"d"])
    for future in broker.admin.delete_records([TopicPartition(orders, 0, 3)]).values():
        future.result(30)
    with pytest.raises(DataLossError, match="ends at offset 2, the broker has 3 to 4"):
        record(config, tmp_path / "a", until_caught_up=True)
    assert record(config, tmp_path / "b", until_caught_up=True).events == 1


def test_record_fails_when_the_prefix_has_no_topics(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no topic"):
        record(broker.config(tmp_path), tmp_path / "a", until_caught_up=True)
