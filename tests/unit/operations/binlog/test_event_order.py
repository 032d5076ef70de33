"""Events that Debezium writes twice during an import are noticed."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.decode.json.parser import JsonParser
from replicator.errors import BinlogError
from replicator.operations.binlog import checks
from replicator.operations.binlog.checks import EventOrder
from replicator.sources.archive.format import Event, PartitionKey
from replicator.sources.archive.pending import Records
from replicator.sources.binlog.scan import BinlogFile, scan
from tests.support.binlog_files import write_file

TABLE = "shop.shop.t"
KEY = b'{"id":1}'
UNREADABLE = b"{"


class Topics:
    """The topics of an import of two files, which are checked `at_once` events at a time."""

    def __init__(self, files: tuple[BinlogFile, ...], at_once: int) -> None:
        self.order = EventOrder(files, "shop", JsonParser(flattened=False).sources)
        self.at_once = at_once
        self.events: list[Event] = []
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
        self.events.append(replace(Event(topic, 0, self.offset, 0, key, value, headers), **other))
        self.offset += 1

    def check(self) -> None:
        for partition, run in groupby(self.events, partition_of):
            events = list(run)
            for start in range(0, len(events), self.at_once):
                self.order.check(partition, records_of(events[start : start + self.at_once]))
        self.events.clear()


def partition_of(event: Event) -> PartitionKey:
    return event.topic, event.partition


def records_of(events: Sequence[Event]) -> Records:
    return Records(
        [e.offset for e in events],
        [0] * len(events),
        [e.key for e in events],
        [e.value for e in events],
        [e.headers for e in events],
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[BinlogFile, ...]:
    return scan([write_file(tmp_path, number) for number in (1, 2)]).files


@pytest.fixture(params=[(1, 1), (7, 1), (1000, 1), (1000, 1001)])
def topics(
    files: tuple[BinlogFile, ...], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Topics:
    at_once, many = request.param
    monkeypatch.setattr(checks, "_MANY", many)
    return Topics(files, at_once)


def test_events_in_the_order_of_the_files_are_accepted(topics: Topics) -> None:
    for row in range(3):
        topics.add(100, row)
    topics.add(4000)
    topics.add(0, value=None)
    topics.add(100, file=2)
    topics.add(0, value=UNREADABLE)
    topics.add(100, topic="shop.shop.u")
    topics.add(100, partition=1)
    topics.check()


def test_rows_that_come_again_within_a_transaction_are_refused(topics: Topics) -> None:
    for row in range(99):
        topics.add(2987, row)
    topics.add(2987, 0)
    with pytest.raises(BinlogError, match=r"twice, at shop\.shop\.t-0 offset 99: ") as caught:
        topics.check()
    assert "repeat the command" in str(caught.value.hint)


@pytest.mark.parametrize(("pos", "file"), [(100, 1), (99, 2)])
@pytest.mark.parametrize("between", [None, UNREADABLE])
def test_an_earlier_position_is_refused(topics: Topics, pos: int, file: int, between: bytes | None) -> None:
    topics.add(100, file=2)
    topics.add(0, value=between)
    topics.add(pos, 7, file=file)
    with pytest.raises(BinlogError, match=f"offset 2: .*:{pos} comes after mysql-bin.000002:100"):
        topics.check()


def test_a_row_that_comes_again_at_once_is_refused(topics: Topics) -> None:
    topics.add(100)
    topics.add(100)
    with pytest.raises(BinlogError, match="twice"):
        topics.check()


def test_a_statement_may_have_several_schema_changes(topics: Topics) -> None:
    for row in (0, 0, 1, 0):
        topics.add(100, row, topic="shop")
    topics.check()
    topics.add(99, topic="shop")
    with pytest.raises(BinlogError, match="twice, at shop-0 offset 4"):
        topics.check()


def test_a_changed_key_is_a_delete_and_a_create_of_one_row(topics: Topics) -> None:
    topics.add(100)
    topics.add(0, value=None)
    topics.add(100, key=b'{"id":2}')
    topics.check()


def test_statements_of_a_compressed_transaction_share_a_position(files: tuple[BinlogFile, ...]) -> None:
    compressed = Topics((files[0], replace(files[1], compressed=True)), 10)
    compressed.add(100, 5, file=2)
    compressed.add(100, 0, file=2)
    compressed.add(100, 0, file=2)
    compressed.check()
    compressed.add(99, file=2)
    with pytest.raises(BinlogError, match="twice"):
        compressed.check()


def test_events_of_a_second_start_of_the_connector_are_refused(topics: Topics) -> None:
    topics.add(100)
    topics.add(150, headers=())
    topics.add(200, topic="shop.shop.u", run=b"2")
    with pytest.raises(BinlogError, match="offset 2: the connector was started a second time"):
        topics.check()


PLACES = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.sampled_from([KEY, b"2"]))


@given(st.lists(PLACES, max_size=8), st.integers(1, 8))
def test_an_event_is_refused_if_it_does_not_follow_the_one_before_it(
    places: list[tuple[int, int, int, bytes]], at_once: int
) -> None:
    wrong = [
        second
        for second, ((pos, file, row, key), (pos2, file2, row2, key2)) in enumerate(pairwise(places), start=1)
        if (file2, pos2) < (file, pos)
        or ((file2, pos2) == (file, pos) and (row2 < row or (row2 == row and key2 == key)))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_MANY", 2)
        topics = Topics((), at_once)
        for pos, file, row, key in places:
            topics.add(pos, row, file=file, key=key)
        with pytest.raises(BinlogError, match=f"offset {wrong[0]}: ") if wrong else nullcontext():
            topics.check()
