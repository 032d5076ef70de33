"""The driver side fetches the records of tables with few and small events, and no others twice."""

from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.batch import TableTask, divided
from replicator.batch.plan.prefetch import fetched_late, prefetch_plans, prefetch_records
from replicator.batch.state.driver_limits import DriverLimits, RecordSizes
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import Event
from replicator.sources.archive.writer import ArchiveWriter
from replicator.sources.change_log import ChangeLog
from tests.support.archived_events import append_event

SMALL, LARGE = "shop.shop.small", "shop.shop.large"
EVENTS = 20


class CountingLog(ArchiveChangeLog):
    """An archive that records the topics of each fetch."""

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
            append_event(writer, Event(SMALL, 0, offset, 0, b"k", b"v"))
            append_event(writer, Event(LARGE, 0, offset, 0, b"k", b"v" * 1000))
    return CountingLog(tmp_path)


def task(topic: str, start: int, end: int) -> TableTask:
    table = TableId("shop", topic.rpartition(".")[2])
    return TableTask(table, topic, None, (OffsetRange(topic, 0, start, end),), 1)


def prefetching(log: ChangeLog, limits: DriverLimits | None = None) -> Any:
    """Return a context with the services that `prefetch_records` uses."""
    return SimpleNamespace(log=log, driver_limits=limits or DriverLimits(), sizes=RecordSizes())


def with_records(context: Any, *tasks: TableTask) -> dict[str, int]:
    """Return topic → number of fetched records, without the topics that were not fetched."""
    return {w.topic: len(w.records) for w in prefetch_records(context, tasks) if w.records is not None}


def test_prefetch_fetches_all_small_tables_together(log: CountingLog) -> None:
    context = prefetching(log)
    assert with_records(context, task(SMALL, 0, 5), task(LARGE, 2, 5)) == {SMALL: 5, LARGE: 3}
    assert log.asked == [{SMALL, LARGE}]


def test_prefetch_leaves_tables_with_many_events_to_spark(log: CountingLog) -> None:
    limits = DriverLimits(table_events=8, batch_events=10)
    assert with_records(prefetching(log, limits), task(SMALL, 0, 9), task(LARGE, 0, 8)) == {LARGE: 8}
    assert with_records(prefetching(log, limits), task(SMALL, 0, 5), task(LARGE, 0, 6)) == {SMALL: 5}


def test_prefetch_fetches_large_rows_only_once(log: CountingLog) -> None:
    context = prefetching(log, DriverLimits(batch_bytes=5_000))
    prefetch_records(context, [task(LARGE, 0, 10)])
    log.asked.clear()
    assert with_records(context, task(SMALL, 0, 10), task(LARGE, 10, 20)) == {SMALL: 10}
    assert with_records(context, task(LARGE, 10, 13)) == {LARGE: 3}
    assert log.asked == [{SMALL}, {LARGE}]


def test_last_records_of_other_tables_are_fetched_too_if_their_events_may_have_no_schema(
    log: CountingLog,
) -> None:
    log.grows = True
    context = prefetching(log, DriverLimits(table_events=5))
    discovery = SimpleNamespace(needs_definitions=lambda table: table.name == "large")
    context.schemas = SimpleNamespace(discovery=discovery)
    first, second = task(LARGE, 0, 10), task(LARGE, 10, 20)
    ((small,), (large, later)) = prefetch_plans(context, [[task(SMALL, 0, 5)], [first, second]])
    assert (small.records is None, small.tail) == (False, None)
    assert [t.tail and t.tail.column("offset").to_pylist() for t in (large, later)] == [
        list(range(12, 20)),
        list(range(12, 20)),
    ]
    ((without,),) = prefetch_plans(context, [[task(SMALL, 0, 20)]])
    assert (without.records, without.tail) == (None, None)
    assert log.asked == [{SMALL}, {LARGE}]


def test_records_that_were_not_fetched_with_others_are_fetched_when_their_task_begins(
    log: CountingLog,
) -> None:
    limits = DriverLimits(table_events=8, batch_events=10)
    plans = prefetch_plans(
        prefetching(log, limits), [[task(SMALL, 0, 8), task(SMALL, 8, 12)], [task(LARGE, 2, 9)]]
    )
    late = [fetched_late(prefetching(log, limits), each) for each in chain(*plans)]
    assert [each.records.column("offset").to_pylist() for each in late if each.records is not None] == [
        list(range(8)), list(range(8, 12)), list(range(2, 9))
    ]  # fmt: skip
    assert log.asked == [{LARGE}]
    assert fetched_late(prefetching(log, limits), late[0]) is late[0]


def test_records_of_large_tasks_are_not_fetched(log: CountingLog) -> None:
    context = prefetching(log, DriverLimits(table_events=8, batch_bytes=5_000))
    for large in (task(SMALL, 0, 9), task(SMALL, 3, 3), task(LARGE, 0, 8)):
        assert fetched_late(context, large) is large
    # The size of its records is known now.
    context.log = None
    assert fetched_late(context, task(LARGE, 8, 16)).records is None


def dividing(
    log: CountingLog, *, is_new: bool = False, begun: tuple[OffsetRange, ...] = (), **apply: int
) -> Any:
    context = prefetching(log, DriverLimits(table_events=10))
    context.ahead = SimpleNamespace(ranges=lambda _: begun)
    context.config = SimpleNamespace(apply=SimpleNamespace(**apply))
    known = SimpleNamespace(resume_marker=None if is_new else "a marker")
    context.ledger = SimpleNamespace(progress=lambda _: known)
    return context


@pytest.mark.parametrize(("max_size", "pieces"), [(2_000_000_000, [20]), (7_100, [6, 7, 7]), (10, [1] * 20)])
def test_tasks_with_many_events_are_divided_by_size(
    log: CountingLog, max_size: int, pieces: list[int]
) -> None:
    context = dividing(log, max_events=100, max_size=max_size)
    large, small = divided(context, [task(LARGE, 0, EVENTS), task(SMALL, 0, 5)])
    assert [piece.count for piece in large] == pieces
    assert [piece.count for piece in small] == [5]
    assert log.asked == [{LARGE}], "a small task is not measured"


def test_tasks_whose_records_are_lost_are_divided_by_events(log: CountingLog) -> None:
    context = dividing(log, max_events=50, max_size=1)
    (pieces,) = divided(context, [task(LARGE, 100, 200)])
    assert [piece.count for piece in pieces] == [50, 50]


@pytest.mark.parametrize(
    ("max_events", "pieces"), [(100, [10, 10]), (12, [10, 10]), (10, [10, 10]), (8, [6, 7, 7])]
)
def test_a_new_table_begins_with_few_events(log: CountingLog, max_events: int, pieces: list[int]) -> None:
    """They make its tables on the driver; workers write the files of the others."""
    context = dividing(log, is_new=True, max_events=max_events, max_size=2_000_000_000)
    (found,) = divided(context, [task(LARGE, 0, EVENTS)])
    assert [piece.count for piece in found] == pieces
    assert found[0].ranges[0].start == 0
    assert [piece.ranges[0].start for piece in found[1:]] == [piece.ranges[0].end for piece in found[:-1]]


def test_each_task_has_the_ranges_that_follow_it(log: CountingLog) -> None:
    context = dividing(log, max_events=8, max_size=2_000_000_000)
    (found,) = divided(context, [task(LARGE, 0, EVENTS)])
    assert [piece.following for piece in found] == [found[1].ranges, found[2].ranges, ()]


@pytest.mark.parametrize(("count", "following"), [(11, 11), (10, 0), (40, 15)])
def test_last_task_has_the_first_of_later_ranges_if_the_driver_does_not_do_them(
    log: CountingLog, count: int, following: int
) -> None:
    context = dividing(log, max_events=15, max_size=2_000_000_000)
    later = (OffsetRange(LARGE, 0, EVENTS, EVENTS + count),)
    (found,) = divided(context, [task(LARGE, 0, EVENTS)], {LARGE: later, "another": later})
    first, last = (sum(r.count for r in piece.following) for piece in found)
    assert (first, last) == (10, following)
    assert all(r.start == EVENTS for r in found[1].following)


@pytest.mark.parametrize(
    ("begun", "pieces"),
    [
        ((OffsetRange(LARGE, 0, 0, 13),), [13, 7]),
        ((OffsetRange(LARGE, 0, 0, EVENTS),), [EVENTS]),
        ((OffsetRange(LARGE, 0, 0, EVENTS + 1),), [6, 7, 7]),
        ((OffsetRange(LARGE, 0, 1, 13),), [6, 7, 7]),
    ],
)
def test_what_workers_have_begun_stays_one_task(
    log: CountingLog, begun: tuple[OffsetRange, ...], pieces: list[int]
) -> None:
    context = dividing(log, begun=begun, max_events=8, max_size=2_000_000_000)
    (found,) = divided(context, [task(LARGE, 0, EVENTS)])
    assert [piece.count for piece in found] == pieces
