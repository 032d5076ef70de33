"""Recording, without a real broker."""

import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from replicator.config import Config
from replicator.errors import ArchiveError, BinlogError, ConfigError, DataLossError, LogUnavailable
from replicator.operations.record import (
    RecordProgress,
    RecordTimes,
    RewrittenTopics,
    encoding_of,
    record,
    recorded_topics,
)
from replicator.sources.archive.format import PartitionKey
from replicator.sources.archive.pending import Records
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import open_storage
from replicator.sources.archive.writer import ArchiveWriter
from replicator.sources.kafka.admin import KafkaAdmin
from tests.support.config import minimal_config
from tests.support.mirror import until
from tests.support.mock_broker import MockBroker
from tests.support.s3 import s3_bucket


@pytest.fixture(autouse=True)
def topic_ids(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return topic → id, as the broker inside the client library cannot be asked; other topics have an invented one."""
    ids: dict[str, str] = {}

    def ask(_admin: KafkaAdmin, topics: Collection[str]) -> dict[str, str]:
        return {topic: ids.get(topic, f"id of {topic}") for topic in topics}

    monkeypatch.setattr(KafkaAdmin, "topic_ids", ask)
    return ids


def config(tmp_path: Path, log: Mapping[str, object]) -> Config:
    source = {"url": "mysql://u@h:3306/shop", "tables": ["shop.*"]}
    return minimal_config(tmp_path, source=source, log=log)


def test_recorded_topics_are_data_topics_and_the_schema_change_topic() -> None:
    names = [
        "shop.shop.orders",
        "shop.shop.a.b",
        "shop",
        "shop.transaction",
        "shopping.shop.orders",
        "__debezium-heartbeat.shop",
        "__debezium-schema-history.shop",
        "other.shop.orders",
    ]
    assert recorded_topics(names, "shop") == ["shop", "shop.shop.a.b", "shop.shop.orders"]
    assert recorded_topics(["a.b.db.t", "a.b", "a.db.t", "a.b.transaction"], "a.b") == ["a.b", "a.b.db.t"]


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (b'{"before":null,"after":{"id":1},"op":"c"}', "json"),
        (b'{"schema":{},"payload":{"op":"c"}}', "json-schemas"),
        (b"\x00\x00\x00\x00\x01", "json"),
        (b"", "json"),
        (b"[1]", "json"),
    ],
)
def test_encoding_of_recognizes_events_with_schemas(value: bytes, encoding: str) -> None:
    assert encoding_of(value) == encoding


def test_record_refuses_an_archive_as_the_log(tmp_path: Path) -> None:
    ArchiveWriter(tmp_path / "a", topic_prefix="shop", encoding="json").close()
    with pytest.raises(ConfigError, match="needs the topics of a broker"):
        record(config(tmp_path, {"kind": "archive", "path": "a"}), tmp_path / "to", until_caught_up=True)


def test_record_writes_no_archive_when_the_broker_is_unavailable(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        log = {"kind": "kafka", "bootstrap_servers": servers, "topic_prefix": "shop"}
        settings = config(tmp_path, log)
        with pytest.raises(LogUnavailable, match=servers) as caught:
            record(settings, tmp_path / "to", until_caught_up=True, times=RecordTimes(request=0.5))
    assert caught.value.hint
    assert not (tmp_path / "to").exists()


def test_record_stores_each_event_of_the_broker_once(tmp_path: Path) -> None:
    broker = MockBroker()
    log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    broker.send("shop.shop.t", b'{"a":1}', b'{"a":2}', partition=3)
    broker.send("shop.transaction", b"{}")
    done = record(config(tmp_path, log), tmp_path / "to", until_caught_up=True)
    assert (done.events, done.remaining) == (2, 0)
    broker.send("shop.shop.t", b'{"a":3}', partition=3)
    assert record(config(tmp_path, log), tmp_path / "to", until_caught_up=True).events == 1
    assert ArchiveReader(tmp_path / "to").end_offsets()["shop.shop.t", 3] == 3


def test_record_notes_the_ids_of_topics_and_refuses_recreated_ones(
    tmp_path: Path, topic_ids: dict[str, str]
) -> None:
    broker = MockBroker()
    log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    broker.send("shop.shop.t", b'{"a":1}')
    record(config(tmp_path, log), tmp_path / "to", until_caught_up=True)
    assert ArchiveReader(tmp_path / "to").manifest.topic_ids == {"shop.shop.t": "id of shop.shop.t"}
    broker.send("shop.shop.t", b'{"a":2}')
    topic_ids["shop.shop.t"] = "another"
    with pytest.raises(DataLossError, match=r"shop\.shop\.t was deleted and recreated"):
        record(config(tmp_path, log), tmp_path / "to", until_caught_up=True)
    assert ArchiveReader(tmp_path / "to").manifest.events == 1


def test_record_notes_how_many_partitions_a_topic_had_at_first(tmp_path: Path) -> None:
    broker = MockBroker()
    log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    broker.send("shop.shop.t", b'{"a":1}')
    record(config(tmp_path, log), tmp_path / "to", until_caught_up=True)
    first = ArchiveReader(tmp_path / "to").manifest.partition_counts
    assert first["shop.shop.t"] > 1
    broker.send("shop.shop.t", b'{"a":2}')
    record(config(tmp_path, log), tmp_path / "to", until_caught_up=True)
    assert ArchiveReader(tmp_path / "to").manifest.partition_counts == first


def test_record_archives_nothing_of_a_topic_that_is_recreated_meanwhile(
    tmp_path: Path, topic_ids: dict[str, str]
) -> None:
    broker = MockBroker()
    log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    broker.send("shop.shop.t", b'{"a":1}')

    def recreate(_: RecordProgress) -> None:
        topic_ids["shop.shop.t"] = "another"

    with pytest.raises(DataLossError, match="recreated"):
        record(config(tmp_path, log), tmp_path / "to", until_caught_up=True, on_progress=recreate)
    assert not (tmp_path / "to" / "manifest.json").exists()


def test_record_refuses_rewritten_topics_with_fewer_events_than_the_archive(tmp_path: Path) -> None:
    topics = RewrittenTopics(lambda *_: None, from_beginning=True)
    for events in (2, 1):
        broker = MockBroker()
        log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
        broker.send("shop.shop.t", *[b'{"a":1}'] * events)
        settings = config(tmp_path, log)
        if events == 2:
            record(settings, tmp_path / "to", until_caught_up=True, rewritten=topics)
    with pytest.raises(
        ArchiveError, match="archive ends at offset 2, but the import ends at offset 1"
    ) as caught:
        record(settings, tmp_path / "to", until_caught_up=True, rewritten=topics)
    assert "Import all files" in str(caught.value.hint)


def test_record_checks_all_events_of_rewritten_topics_and_appends_the_new_ones(tmp_path: Path) -> None:
    seen: list[int] = []

    def check(partition: PartitionKey, records: Records) -> None:
        assert partition == ("shop.shop.t", 0)
        seen.extend(records.offsets)
        if b"bad" in records.values:
            raise BinlogError("refused", "repeat")

    topics = RewrittenTopics(check, from_beginning=True)
    broker = MockBroker()
    log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    settings = config(tmp_path, log)
    broker.send("shop.shop.t", b'{"a":1}', b'{"a":2}')
    assert record(settings, tmp_path / "to", until_caught_up=True, rewritten=topics).events == 2
    broker.send("shop.shop.t", b'{"a":3}')
    assert record(settings, tmp_path / "to", until_caught_up=True, rewritten=topics).events == 1
    assert seen == [0, 1, 0, 1, 2]
    broker.send("shop.shop.t", b"bad")
    with pytest.raises(BinlogError, match="refused"):
        record(settings, tmp_path / "to", until_caught_up=True, rewritten=topics)
    later = replace(topics, from_beginning=False)
    with pytest.raises(BinlogError, match="refused"):
        record(settings, tmp_path / "to", until_caught_up=True, rewritten=later)
    assert seen[5:] == [0, 1, 2, 3, 3]
    found = ArchiveReader(tmp_path / "to")
    assert [event.value for event in found.events("shop.shop.t", 0)] == [b'{"a":1}', b'{"a":2}', b'{"a":3}']


@contextmanager
def following(tmp_path: Path, broker: MockBroker) -> Iterator[None]:
    """Record the broker's events while the block runs, in a thread."""
    log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(
            record,
            config(tmp_path, log),
            tmp_path / "to",
            until_caught_up=False,
            stop=stop,
            times=RecordTimes(segment=0.01),
        )
        try:
            yield
        finally:
            stop.set()
        recording.result(30)


def test_record_completes_segments_by_time(tmp_path: Path) -> None:
    broker = MockBroker()
    broker.send("shop.shop.t", b"{}")
    with following(tmp_path, broker):
        for events in (1, 2):
            until(partial(has_archived, tmp_path / "to", events), seconds=30, doing="a segment")
            broker.send("shop.shop.t", b"{}")
    assert len(ArchiveReader(tmp_path / "to").entries) >= 2


def test_record_notices_the_first_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, waits = MockBroker(), threading.Event()

    class Waiting(Consumer):
        def consume(self, *args: Any, **options: Any) -> Any:
            waits.set()
            return super().consume(*args, **options)

    monkeypatch.setattr("replicator.operations.record.Consumer", Waiting)
    with following(tmp_path, broker):
        assert waits.wait(30)
        broker.send("shop.shop.t", b'{"schema":{},"payload":{}}')
        until(partial(has_archived, tmp_path / "to", 1), seconds=30, doing="recording")


def has_archived(path: Path, events: int) -> bool:
    return (path / "manifest.json").exists() and ArchiveReader(path).manifest.events == events


def test_record_writes_to_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICATOR_CACHE", str(tmp_path / "cache"))
    broker = MockBroker()
    log = {"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "shop"}
    source = {"url": "mysql://u@h:3306/shop", "tables": ["shop.*"]}
    with s3_bucket() as bucket:
        lake = {
            "catalog": "jdbc",
            "uri": "jdbc:sqlite:lake/catalog.db",
            "warehouse": "lake",
            "namespace": "shop",
            "options": bucket.configured(monkeypatch),
        }
        settings = minimal_config(tmp_path, source=source, log=log, lake=lake)
        for value in (b'{"a":1}', b'{"a":2}'):
            broker.send("shop.shop.t", value)
            assert record(settings, f"{bucket.url}/to", until_caught_up=True).events == 1
        reader = ArchiveReader(open_storage(f"{bucket.url}/to", lambda: bucket.options))
        assert [event.value for event in reader.events("shop.shop.t", 0)] == [b'{"a":1}', b'{"a":2}']
