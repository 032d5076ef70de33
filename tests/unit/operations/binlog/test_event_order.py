"""Events that Debezium writes twice during an import are noticed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replicator.errors import BinlogError
from replicator.operations.binlog.checks import EventOrder
from replicator.sources.archive.format import Event
from replicator.sources.binlog.scan import BinlogFile, scan
from tests.support.binlog_files import write_file

TABLE = "shop.shop.t"
KEY = b'{"id":1}'


class Topics:
    """The topics of an import of mysql-bin.000001 and mysql-bin.000002, event by event."""

    def __init__(self, files: tuple[BinlogFile, ...]) -> None:
        self.order = EventOrder(files, "shop")
        self.offset = 0

    def add(
        self,
        pos: int,
        row: int = 0,
        *,
        key: bytes | None = KEY,
        file: int = 1,
        topic: str = TABLE,
        run: bytes = b"1",
        **other: Any,
    ) -> None:
        source = {"file": f"mysql-bin.{file:06d}", "pos": pos, "row": row}
        value = json.dumps({"before": None, "after": {"id": 1}, "source": source, "op": "c"}).encode()
        headers = (("__debezium.context.runId", run),)
        event = Event(topic, 0, self.offset, 0, key, value, headers)
        self.offset += 1
        self.order.check(replace(event, **other))


@pytest.fixture
def files(tmp_path: Path) -> tuple[BinlogFile, ...]:
    return scan([write_file(tmp_path, number) for number in (1, 2)]).files


@pytest.fixture
def topics(files: tuple[BinlogFile, ...]) -> Topics:
    return Topics(files)


def test_events_in_the_order_of_the_files_are_accepted(topics: Topics) -> None:
    for row in range(3):
        topics.add(100, row)
    topics.add(4000)
    topics.add(100, file=2)
    topics.add(100, topic="shop.shop.u")
    topics.add(100, partition=1)


def test_rows_that_come_again_within_a_transaction_are_refused(topics: Topics) -> None:
    for row in range(99):
        topics.add(2987, row)
    with pytest.raises(BinlogError, match=r"twice, at shop\.shop\.t-0 offset 99: ") as caught:
        topics.add(2987, 0)
    assert "repeat the command" in str(caught.value.hint)


@pytest.mark.parametrize(("pos", "file"), [(100, 1), (99, 2)])
def test_an_earlier_position_is_refused(topics: Topics, pos: int, file: int) -> None:
    topics.add(100, file=2)
    with pytest.raises(BinlogError, match=f":{pos} comes after mysql-bin.000002:100"):
        topics.add(pos, 7, file=file)


def test_a_row_that_comes_again_at_once_is_refused(topics: Topics) -> None:
    topics.add(100)
    with pytest.raises(BinlogError, match="twice"):
        topics.add(100)


def test_statements_of_a_compressed_transaction_share_a_position(files: tuple[BinlogFile, ...]) -> None:
    compressed = Topics((files[0], replace(files[1], compressed=True)))
    compressed.add(100, 5, file=2)
    compressed.add(100, 0, file=2)
    compressed.add(100, 0, file=2)
    with pytest.raises(BinlogError, match="twice"):
        compressed.add(99, file=2)


def test_events_of_a_second_start_of_the_connector_are_refused(topics: Topics) -> None:
    topics.add(100)
    topics.add(150, headers=())
    with pytest.raises(BinlogError, match="the connector was started a second time"):
        topics.add(200, topic="shop.shop.u", run=b"2")
