"""The scheduler if the work of one table fails, and if log, lake or all tables fail."""

import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.batch import MirrorContext, TableTask
from replicator.errors import (
    CommitConflict,
    FencedError,
    LakeUnavailable,
    LogUnavailable,
    MissingSchema,
    Remedy,
    ReplicatorError,
    SourceUnavailable,
    UnsupportedChange,
)
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.model.events import BadRecord, RawRecord
from replicator.model.table import TableId
from replicator.sources.change_log import Offsets
from replicator.telemetry import Stopwatch
from tests.support.scheduler_harness import ENDS, SchedulerHarness, spark_error


@pytest.fixture
def harness(tmp_path: Path) -> SchedulerHarness:
    return SchedulerHarness(tmp_path)


def test_scheduler_pauses_only_the_table_that_fails_three_times_in_a_row(harness: SchedulerHarness) -> None:
    harness.broken["shop.orders"] = spark_error()
    for tries in (1, 2, 3):
        harness.mirror.advance(ENDS)
        assert bool(harness.mirror.failing) is (tries < 3)
    assert harness.mirror.summary().paused == {"shop.orders": "this file is odd"}
    ((table, reason, hint), _) = harness.ledger.pause.call_args
    assert (table, reason) == (TableId("shop", "orders"), "this file is odd")
    assert "start the mirror again" in hint
    assert harness.done == ["shop.users"]
    assert harness.mirror.advance(ENDS) is None


def test_scheduler_pauses_a_table_whose_topic_is_compacted(harness: SchedulerHarness) -> None:
    asked: list[set[str]] = []

    def compacted(topics: Collection[str]) -> frozenset[str]:
        asked.append(set(topics))
        return frozenset({"shop.shop.orders"}.intersection(topics))

    harness.log.compacted = compacted
    for _ in range(2):
        harness.mirror.check_log()
        harness.mirror.advance(ENDS)
    assert asked == [set(ENDS), set()]
    assert harness.done == ["shop.users"]
    (reason,) = harness.mirror.summary().paused.values()
    assert reason.startswith("the topic shop.shop.orders is compacted")
    assert harness.ledger.pause.call_args.kwargs == {"stays": True}


def noted(causes: list[Exception], _table: TableId, cause: Exception) -> None:
    causes.append(cause)


def test_pause_that_stays_is_healed_unless_its_cause_is_there_again(tmp_path: Path) -> None:
    for still, healed in ((False, True), (True, False)):
        harness = SchedulerHarness(tmp_path)
        table, causes = TableId("shop", "orders"), list[Exception]()
        harness.ledger.lasting_pauses.return_value = {table: ("a reason", None)}
        harness.log.compacted.return_value = frozenset({"shop.shop.orders"} if still else ())
        harness.mirror.tables.on_pause(partial(noted, causes))
        harness.mirror.tables.keep_lasting_pauses()
        assert causes == []
        harness.mirror.check_log()
        assert [isinstance(c, ReplicatorError) and c.remedy is Remedy.REREAD for c in causes] == [healed]
        assert table in harness.mirror.tables.paused


def test_scheduler_pauses_a_table_whose_batches_apply_changes_and_advance_no_marker(
    harness: SchedulerHarness,
) -> None:
    """It would read the same events again and again, and seem to be current."""

    def stalled(context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats:
        stats = harness.process(context, task, watch)
        if task.table.name == "orders":
            del harness.markers["orders"]
        return stats

    harness.work = stalled
    for tries in (1, 2, 3):
        harness.mirror.advance(ENDS)
        assert bool(harness.mirror.failing) is (tries < 3)
    (reason,) = harness.mirror.summary().paused.values()
    assert "1 change of shop.orders applied, and no commit contains them" in reason
    assert "was read to offset 5, the lake has it to 0" in reason
    ((_, _, hint), _) = harness.ledger.pause.call_args
    assert "replicator heal shop.orders" in hint


def test_scheduler_pauses_only_the_table_whose_lake_table_is_unavailable(harness: SchedulerHarness) -> None:
    harness.broken["shop.orders"] = LakeUnavailable("its metadata are broken", "check [lake]")
    for tries in (1, 2, 3):
        harness.mirror.advance(ENDS)
        assert bool(harness.mirror.failing) is (tries < 3)
    assert harness.mirror.summary().paused == {"shop.orders": "its metadata are broken"}
    ((_, _, hint), _) = harness.ledger.pause.call_args
    assert "start the mirror again" in hint
    assert harness.done == ["shop.users"]


def test_check_log_fails_only_when_no_lake_table_can_be_read(harness: SchedulerHarness) -> None:
    harness.ledger.load.return_value = {TableId("shop", "orders"): LakeUnavailable("no files")}
    harness.ledger.knows.side_effect = lambda table: table.name == "users"
    harness.ledger.is_empty = False
    harness.mirror.check_log()
    assert harness.mirror.failing
    harness.ledger.is_empty = True
    with pytest.raises(LakeUnavailable, match="no files"):
        harness.mirror.check_log()


@pytest.mark.parametrize(
    ("first", "end", "reason"), [(4, 9, "the log begins at 4"), (0, 1, "has lost its newest events")]
)
def test_scheduler_pauses_only_the_table_whose_events_were_deleted(
    harness: SchedulerHarness, first: int, end: int, reason: str
) -> None:
    topic = "shop.shop.orders"
    harness.markers["orders"] = CommitMarker("shop", 1, 1, {topic: {0: PartitionProgress(2)}})
    ends: Offsets = {topic: {0: end}, "shop.shop.users": {0: 5}}
    harness.log.offsets.return_value = ({topic: {0: first}, "shop.shop.users": {0: 0}}, ends)
    harness.mirror.check_log()
    harness.mirror.advance(ends)
    (found,) = harness.mirror.summary().paused.values()
    assert reason in found
    assert harness.done == ["shop.users"]


def test_scheduler_continues_when_schema_changes_cannot_be_quarantined(harness: SchedulerHarness) -> None:
    bad = BadRecord(RawRecord("shop", 0, 3, 0, None, b"garbage"), "no JSON")
    quarantine: Any = harness.mirror.context.quarantine
    harness.mirror.context.schemas.add_schema_changes = Mock(side_effect=[[bad], []])  # type: ignore[method-assign]
    quarantine.add_records.side_effect = LakeUnavailable("its metadata are broken")
    harness.mirror.advance(ENDS)
    assert sorted(harness.done) == ["shop.orders", "shop.users"]
    quarantine.add_records.side_effect = lambda bad, _: list(bad)
    harness.mirror.advance({"shop.shop.orders": {0: 6}})
    assert harness.mirror.summary().quarantined == 1


def test_scheduler_delays_the_retry_of_a_failing_table(tmp_path: Path) -> None:
    harness = SchedulerHarness(tmp_path, retry_delays=(1000.0, 1000.0))
    harness.broken["shop.orders"] = spark_error()
    harness.mirror.advance(ENDS)
    assert harness.mirror.advance(ENDS) is None
    assert harness.mirror.failing
    assert not harness.mirror.retry_due()


def test_scheduler_pauses_no_table_when_the_lake_refuses_every_table(harness: SchedulerHarness) -> None:
    harness.broken = dict.fromkeys(("shop.orders", "shop.users"), LakeUnavailable("no disk"))
    for _ in range(4):
        with pytest.raises(LakeUnavailable, match="no disk"):
            harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {}


def test_tables_that_fail_are_no_outage_if_another_table_shows_that_the_lake_answers(
    harness: SchedulerHarness,
) -> None:
    harness.broken = dict.fromkeys(("shop.orders", "shop.users"), LakeUnavailable("its metadata are broken"))
    harness.ledger.probe.return_value = True
    for _ in range(3):
        harness.mirror.advance(ENDS)
    assert set(harness.mirror.summary().paused) == {"shop.orders", "shop.users"}


def test_scheduler_retries_at_once_when_the_source_supplies_a_definition(tmp_path: Path) -> None:
    """The log has no definition of the table, so no new record would cause a retry."""
    harness = SchedulerHarness(tmp_path, source={"tables": ["*.*"], "url": "mysql://cdc@127.0.0.1/shop"})
    harness.broken["shop.orders"] = MissingSchema("no definition")
    for _ in range(3):
        harness.mirror.advance(ENDS)
    assert harness.mirror.failing
    assert harness.mirror.retry_due()
    harness.mirror.advance(ENDS)
    assert sorted(harness.done) == ["shop.orders", "shop.users"]
    assert not harness.mirror.failing


def test_scheduler_pauses_a_table_only_when_the_lake_records_the_pause(harness: SchedulerHarness) -> None:
    """Otherwise `status` would not show the pause, and the table would not be retried."""
    harness.broken["shop.orders"] = UnsupportedChange("odd", "look")
    harness.ledger.pause.side_effect = LakeUnavailable("no catalog")
    with pytest.raises(LakeUnavailable):
        harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {}
    harness.ledger.pause.side_effect = None
    harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {"shop.orders": "odd"}


SAME_NAME: Offsets = {"shop.crm.orders": {0: 5}, "shop.shop.orders": {0: 5}}


def test_scheduler_pauses_the_second_table_of_one_lake_name(harness: SchedulerHarness) -> None:
    harness.mirror.advance(SAME_NAME)
    assert harness.done == ["crm.orders"]
    (reason,) = harness.mirror.summary().paused.values()
    assert reason == "shop.orders and crm.orders would both be orders in the lake, which mirrors crm.orders"
    ((table, _, hint), _) = harness.ledger.pause.call_args
    assert table == TableId("shop", "orders")
    assert "source.tables" in hint
    assert "namespace" in hint


def test_scheduler_keeps_progress_when_the_topic_prefix_changes(harness: SchedulerHarness) -> None:
    progress = {"old.shop.orders": {0: PartitionProgress(2)}}
    harness.markers["orders"] = CommitMarker("shop", 1, 1, progress)
    harness.mirror.advance({"shop.shop.orders": {0: 5}})
    assert harness.done == ["shop.orders"]


@pytest.mark.parametrize("gone", ["log", "lake"])
def test_scheduler_stops_when_the_log_or_the_catalog_is_unavailable(
    harness: SchedulerHarness, gone: str
) -> None:
    harness.broken["shop.orders"] = spark_error()
    harness.mirror.tags.begin(ENDS)
    error: Exception
    if gone == "log":
        error = harness.log.offsets.side_effect = LogUnavailable("no broker")
    else:
        error = harness.lake.namespace_properties.side_effect = LakeUnavailable("no catalog")
    for _ in range(4):
        with pytest.raises(type(error)):
            harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {}
    assert harness.done == ["shop.users"]


@pytest.mark.parametrize("error", [LogUnavailable("x"), FencedError("x")])
def test_scheduler_raises_an_error_that_concerns_no_table_at_once(
    harness: SchedulerHarness, error: Exception
) -> None:
    harness.broken["shop.orders"] = error
    with pytest.raises(type(error)):
        harness.mirror.advance(ENDS)
    assert not harness.mirror.failing


def test_scheduler_raises_if_java_is_gone(harness: SchedulerHarness) -> None:
    gone = ConnectionRefusedError("no JVM")
    harness.broken["shop.orders"] = gone
    harness.lake.namespace_properties.side_effect = gone
    with pytest.raises(ConnectionRefusedError):
        harness.mirror.advance(ENDS)
    assert not harness.mirror.failing


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("odd"), "KeyError: 'odd'"),
        (OverflowError("date value out of range"), "OverflowError: date value out of range"),
    ],
)
def test_unexpected_errors_of_a_table_stop_that_table_only(
    harness: SchedulerHarness, error: Exception, reason: str
) -> None:
    harness.broken["shop.orders"] = error
    for _ in range(3):
        harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {"shop.orders": reason}
    assert harness.done == ["shop.users"]


@pytest.mark.parametrize("error", [CommitConflict("another commit"), SourceUnavailable("cannot reach MySQL")])
def test_table_is_tried_until_what_ends_by_itself_has_ended(
    harness: SchedulerHarness, error: Exception
) -> None:
    harness.broken["shop.orders"] = error
    for _ in range(9):
        harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {}
    harness.broken.clear()
    harness.mirror.advance(ENDS)
    assert sorted(harness.done) == ["shop.orders", "shop.users"]
    assert not harness.mirror.failing


def test_scheduler_waits_for_all_tables_when_a_batch_fails(harness: SchedulerHarness) -> None:
    """The caller retries, and two threads must never write one table."""
    failed, done = threading.Event(), threading.Event()

    def task(_context: Any, task: TableTask, _watch: Any) -> BatchStats:
        if task.table.name == "orders":
            failed.set()
            raise LogUnavailable("no broker")
        assert failed.wait(10)
        # Long enough for a caller that does not wait to return.
        done.wait(0.3)
        done.set()
        return BatchStats({}, (), 0, 0, (), {}, None, None)

    harness.work = task
    with pytest.raises(LogUnavailable):
        harness.mirror.advance(ENDS)
    assert done.is_set()


@pytest.mark.parametrize(("grows", "tries"), [(True, 3), (False, 1)])
def test_scheduler_retries_a_missing_definition_while_it_may_arrive(
    harness: SchedulerHarness, grows: bool, tries: int
) -> None:
    """A connector writes definitions first, but after an outage of the broker the events may precede them."""
    harness.log.grows = grows
    harness.broken["shop.orders"] = MissingSchema("no definition of shop.orders", "write it")
    for _ in range(tries):
        assert harness.mirror.summary().paused == {}
        harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {"shop.orders": "no definition of shop.orders"}
    assert harness.done == ["shop.users"]


def test_scheduler_continues_when_a_failure_cannot_be_recorded(harness: SchedulerHarness) -> None:
    harness.ledger.note_failure.side_effect = LakeUnavailable("away")
    harness.broken["shop.orders"] = spark_error()
    harness.mirror.advance(ENDS)
    assert harness.mirror.failing


def test_scheduler_does_not_retry_a_paused_table(harness: SchedulerHarness) -> None:
    """A retry would prevent the end of a run with `--until-caught-up`."""
    topic = "shop.shop.orders"
    harness.markers["orders"] = CommitMarker("shop", 1, 1, {topic: {0: PartitionProgress(2)}})
    harness.broken["shop.orders"] = spark_error()
    harness.mirror.advance(ENDS)
    assert harness.mirror.failing
    harness.log.offsets.return_value = ({topic: {0: 4}, "shop.shop.users": {0: 0}}, ENDS)
    harness.mirror.check_log()
    assert list(harness.mirror.summary().paused) == ["shop.orders"]
    assert not harness.mirror.failing


def test_scheduler_maintains_no_table_without_a_batch_or_when_it_must_stop(harness: SchedulerHarness) -> None:
    harness.mirror.advance({})
    harness.mirror.stopping.set()
    harness.mirror.advance(ENDS)
    harness.upkeep.run_slice.assert_not_called()
