"""When the first row of a re-read may be read. Reading itself is in tests/e2e."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.config import SourceConfig
from replicator.errors import SourceUnavailable
from replicator.model.reread import new_request
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG
from replicator.recovery.reader import table_reader
from replicator.recovery.reader.commit_fence import TopicEnd
from replicator.recovery.reader.table_reader import TableReader
from replicator.sources.mysql.throttle import StopSignal
from tests.support.config import minimal_config
from tests.support.kafka_connect import Connect, serving

CONNECTORS = "GET /connectors?expand=info&expand=status"
OFFSETS = "GET /connectors/shop/offsets"
AT = {"file": "binlog.000007", "pos": 4}
NO_POSITION = "it has no known position in the binlog yet, or takes a snapshot"


@pytest.fixture
def connect() -> Iterator[Connect]:
    with serving() as server:
        server.reply(CONNECTORS, 200, {"shop": {"info": {"config": {"topic.prefix": "shop"}}, "status": {}}})
        yield server


@pytest.fixture
def polls_before_reading(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let MySQL be unavailable, and count how often the connector's offset was asked for before."""
    polls: list[int] = []

    def unavailable(_source: SourceConfig) -> contextlib.AbstractContextManager[Any]:
        polls.append(connect.count(OFFSETS))
        raise SourceUnavailable("no MySQL here")

    monkeypatch.setattr(table_reader, "connect", unavailable)
    monkeypatch.setattr(table_reader, "_POLL_S", 0.0)
    return polls


def reader(
    folder: Path,
    connect: Connect,
    key: tuple[str, ...],
    reasons: list[str | None],
    cancelled: threading.Event,
) -> TableReader:
    """Return the reader of a table of which nothing was read yet, and whose topic has no new partitions."""
    log = {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic_prefix": "shop"}
    source = {"url": "mysql://mirror@127.0.0.1:1/shop", "tables": ["shop.*"]}
    config = minimal_config(folder, source=source, log=log | {"connect_url": connect.url})
    staging: Any = Mock()
    staging.state.return_value = None
    unused: Any = Mock()
    unchanged: Any = Mock()
    unchanged.has.return_value = False
    return TableReader(
        config=config,
        staging=staging,
        request=new_request(TableId("shop", "orders"), "lost"),
        topic="shop.shop.orders",
        columns=TableSchema((Column("id", LONG),)),
        key=key,
        on_rows=unused,
        on_wait=reasons.append,
        throttle=unused,
        new_partitions=unchanged,
        prepared=unused,
        stopping=StopSignal(threading.Event(), cancelled),
    )


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    end = TopicEnd("shop.shop.orders", None, {0: 0}, None)
    monkeypatch.setattr(TableReader, "_topic_end", lambda _self: end)


@pytest.mark.parametrize("key", [("id",), ()], ids=["with key", "without key"])
def test_rows_are_read_once_the_connector_has_a_position_and_takes_no_snapshot(
    tmp_path: Path, connect: Connect, polls_before_reading: list[int], key: tuple[str, ...]
) -> None:
    """A change from before the position is in no event; the topic of a snapshot lacks rows until its end."""
    connect.reply(OFFSETS, 200, {"offsets": []})
    for offset in (AT | {"snapshot": "INITIAL"}, AT):
        connect.reply(OFFSETS, 200, {"offsets": [{"partition": {"server": "shop"}, "offset": offset}]})
    reasons: list[str | None] = []
    with pytest.raises(SourceUnavailable):
        reader(tmp_path, connect, key, reasons, threading.Event()).run()
    assert polls_before_reading == [3]
    assert reasons == [NO_POSITION, None]


def test_a_reread_that_is_cancelled_does_not_wait_for_the_connector(
    tmp_path: Path, connect: Connect, polls_before_reading: list[int]
) -> None:
    connect.reply(OFFSETS, 200, {"offsets": []})
    cancelled = threading.Event()
    cancelled.set()
    assert reader(tmp_path, connect, ("id",), [], cancelled).run() is False
    assert polls_before_reading == []
