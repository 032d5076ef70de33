"""Which tables' records the driver fetches: the few and small ones, and no others twice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.archive import ArchiveWriter, Event
from replicator.batch import Work, fetch, fetched
from replicator.held import RecordSizes
from replicator.model.commit import OffsetRange
from replicator.model.table import TableId
from replicator.source.archive import ArchiveChangeLog

SMALL, LARGE = "shop.shop.small", "shop.shop.large"
EVENTS = 20


class CountingLog(ArchiveChangeLog):
    """An archive that remembers what it was asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[set[str]] = []

    def fetch(self, ranges: Any, max_bytes: int) -> Any:
        self.asked.append({r.topic for r in ranges})
        return super().fetch(ranges, max_bytes)


@pytest.fixture
def log(tmp_path: Path) -> CountingLog:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        for offset in range(EVENTS):
            writer.append(Event(SMALL, 0, offset, 0, b"k", b"v"))
            writer.append(Event(LARGE, 0, offset, 0, b"k", b"v" * 1000))
    return CountingLog(tmp_path)


def work(topic: str, start: int, end: int) -> Work:
    table = TableId("shop", topic.rpartition(".")[2])
    return Work(table, topic, None, (OffsetRange(topic, 0, start, end),), 1)


def with_records(engine: Any, *works: Work) -> dict[str, int]:
    """Topic → number of records fetched, of those that were."""
    return {w.topic: len(w.records) for w in fetched(engine, works) if w.records is not None}


def test_all_small_tables_are_fetched_together(log: CountingLog) -> None:
    engine = SimpleNamespace(log=log, sizes=RecordSizes())
    assert with_records(engine, work(SMALL, 0, 5), work(LARGE, 2, 5)) == {SMALL: 5, LARGE: 3}
    assert log.asked == [{SMALL, LARGE}]


def test_a_table_with_large_rows_does_not_spoil_the_others(
    log: CountingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "FEW_BYTES", 5_000)
    engine = SimpleNamespace(log=log, sizes=RecordSizes())
    assert with_records(engine, work(SMALL, 0, 10), work(LARGE, 0, 10)) == {SMALL: 10}
    assert log.asked == [{SMALL, LARGE}, {SMALL}]


def test_large_rows_are_fetched_once_to_know_them(log: CountingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "FEW_BYTES", 5_000)
    engine = SimpleNamespace(log=log, sizes=RecordSizes())
    fetched(engine, [work(LARGE, 0, 10)])
    log.asked.clear()
    assert with_records(engine, work(SMALL, 0, 10), work(LARGE, 10, 20)) == {SMALL: 10}
    assert with_records(engine, work(LARGE, 10, 13)) == {LARGE: 3}
    assert log.asked == [{SMALL}, {LARGE}]
