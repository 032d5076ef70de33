"""Which tables' records the driver fetches: the few and small ones, and no others twice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.batch import TableTask, prefetch_records
from replicator.batch import prefetch as fetch
from replicator.batch.driver_limits import RecordSizes
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId
from replicator.sources.archive import ArchiveWriter, Event
from replicator.sources.archive.change_log import ArchiveChangeLog

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


def task(topic: str, start: int, end: int) -> TableTask:
    table = TableId("shop", topic.rpartition(".")[2])
    return TableTask(table, topic, None, (OffsetRange(topic, 0, start, end),), 1)


def with_records(context: Any, *tasks: TableTask) -> dict[str, int]:
    """Topic → number of records fetched, of those that were."""
    return {w.topic: len(w.records) for w in prefetch_records(context, tasks) if w.records is not None}


def test_all_small_tables_are_fetched_together(log: CountingLog) -> None:
    context = SimpleNamespace(log=log, sizes=RecordSizes())
    assert with_records(context, task(SMALL, 0, 5), task(LARGE, 2, 5)) == {SMALL: 5, LARGE: 3}
    assert log.asked == [{SMALL, LARGE}]


def test_a_table_with_large_rows_does_not_spoil_the_others(
    log: CountingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "DRIVER_MAX_BYTES", 5_000)
    context = SimpleNamespace(log=log, sizes=RecordSizes())
    assert with_records(context, task(SMALL, 0, 10), task(LARGE, 0, 10)) == {SMALL: 10}
    assert log.asked == [{SMALL, LARGE}, {SMALL}]


def test_large_rows_are_fetched_once_to_know_them(log: CountingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "DRIVER_MAX_BYTES", 5_000)
    context: Any = SimpleNamespace(log=log, sizes=RecordSizes())
    prefetch_records(context, [task(LARGE, 0, 10)])
    log.asked.clear()
    assert with_records(context, task(SMALL, 0, 10), task(LARGE, 10, 20)) == {SMALL: 10}
    assert with_records(context, task(LARGE, 10, 13)) == {LARGE: 3}
    assert log.asked == [{SMALL}, {LARGE}]
