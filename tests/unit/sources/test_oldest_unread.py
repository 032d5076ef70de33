"""When the oldest unread changes were made. The log is a real broker without disks."""

import time
from dataclasses import replace

import pytest

from replicator.config import Config, KafkaLog
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.sources.binlog import download
from replicator.sources.kafka.first_events import first_times
from replicator.sources.oldest_unread import read_oldest
from replicator.sources.source_view import SourceView
from tests.support.config import minimal_config
from tests.support.mock_broker import MockBroker

BEHIND = SourceView(
    "p.",
    ends={},
    is_asked=True,
    end=BinlogEnd("mysql-bin.000002", 500),
    offset=ConnectorOffset("mysql-bin.000002", 100),
)


@pytest.fixture(scope="module")
def broker() -> MockBroker:
    return MockBroker()


def config(broker: MockBroker) -> Config:
    return minimal_config(
        source={"url": "mysql://u@h/shop", "tables": ["shop.*"]},
        log={"kind": "kafka", "bootstrap_servers": broker.servers, "topic_prefix": "p"},
    )


def test_first_unread_event_of_each_partition_tells_when_the_source_made_it(broker: MockBroker) -> None:
    event = b'{"before":null,"source":{"version":"3","ts_ms":%d,"file":"b.1"},"ts_ms":9}'
    broker.send("p.shop.a", event % 1_700_000_000_001, event % 1_700_000_000_002, event % 1_700_000_000_003)
    broker.send("p.shop.b", b"not JSON", partition=2)
    log = config(broker).log
    assert isinstance(log, KafkaLog)
    found = first_times(log, {("p.shop.a", 0): 1, ("p.shop.b", 2): 0})
    assert found["p.shop.a", 0] == 1_700_000_000_002
    # Without a time of the source, it is that of the broker.
    assert abs(found["p.shop.b", 2] / 1000 - time.time()) < 60
    assert first_times(log, {}) == {}


def test_first_transaction_after_what_is_known_to_be_read(
    broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def first_commit(_: object, file: str, pos: int) -> int | None:
        asked.append((file, pos))
        return 7

    monkeypatch.setattr(download, "first_commit_s", first_commit)
    # The lake has a change that the connector has not confirmed yet.
    seen = ("mysql-bin.000002", 300)
    assert read_oldest(config(broker), BEHIND, {}, seen).in_source_ms == 7_000
    assert asked == [seen]
    complete = replace(BEHIND, offset=ConnectorOffset("mysql-bin.000002", 500))
    assert read_oldest(config(broker), complete, {}, seen).in_source_ms is None
    assert len(asked) == 1
