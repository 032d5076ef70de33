"""What a mirror does where one table's work fails, and where more than that fails."""

import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from replicator.batch import Work
from replicator.config import parse
from replicator.decode.schema_book import SchemaBook
from replicator.errors import LakeUnavailable, LogUnavailable, MissingSchema, TablePaused, UnsupportedChange
from replicator.ledger import Progress
from replicator.mirror import Mirror, retries
from replicator.mirror import mirror as module
from replicator.model.census import Census
from replicator.model.commit import CommitMarker, PartitionProgress
from replicator.model.record import BadRecord, RawRecord
from replicator.model.table import TableId
from replicator.source.log import Offsets

ENDS: Offsets = {"shop.shop.orders": {0: 5}, "shop.shop.users": {0: 5}}


class Scene:
    """A mirror on a log and a lake that are made up; `broken` has the tables whose work fails, and how."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        settings = {
            "mirror": {"name": "shop"},
            "source": {"tables": ["*.*"]},
            "log": {"kind": "archive", "path": "archive"},
            "lake": {"catalog": "jdbc", "uri": "jdbc:sqlite:c.db", "warehouse": "lake", "namespace": "shop"},
        }
        self.broken: dict[str, Exception] = {}
        self.done: list[str] = []
        self.markers: dict[str, CommitMarker] = {}
        self.ledger = Mock()
        self.ledger.progress = self._progress
        self.ledger.load.return_value = {}
        self.ledger.is_another_topic.return_value = False
        self.ledger.reached = lambda table, _topic: self._progress(table).behind
        self.log = Mock(topic_prefix="shop", schema_changes=lambda: ())
        self.log.offsets.return_value = ({topic: {0: 0} for topic in ENDS}, ENDS)
        self.lake = Mock()
        engine: Any = SimpleNamespace(
            spark=Mock(),
            config=parse(settings, base=tmp_path),
            log=self.log,
            lake=self.lake,
            ledger=self.ledger,
            book=SchemaBook(),
            quarantine=Mock(),
        )
        monkeypatch.setattr(module, "process", self._process)
        monkeypatch.setattr(module, "fetched", lambda _, works: works)
        monkeypatch.setattr(retries, "RETRY_S", (0.0, 0.0))
        self.mirror = Mirror(engine, None)

    def _progress(self, table: TableId) -> Progress:
        marker = self.markers.get(table.name)
        return Progress(marker, marker, True)

    def _process(self, _engine: Any, work: Work, _watch: Any) -> Census:
        if error := self.broken.get(str(work.table)):
            raise error
        self.done.append(str(work.table))
        progress = {r.partition: PartitionProgress(r.end) for r in work.ranges}
        self.markers[work.table.name] = CommitMarker("shop", 1, 1, {work.topic: progress})
        return Census({"c": 1}, (), 0, 0, (), progress, None, None)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Scene:
    return Scene(monkeypatch, tmp_path)


def spark_error(text: str = "this file is odd\nand so on") -> PySparkException:
    return PySparkException(text)


def test_a_table_that_fails_three_times_in_a_row_is_paused_alone(scene: Scene) -> None:
    scene.broken["shop.orders"] = spark_error()
    for tries in (1, 2, 3):
        scene.mirror.advance(ENDS)
        assert bool(scene.mirror.failing) is (tries < 3)
    assert scene.mirror.summary().paused == {"shop.orders": "this file is odd"}
    ((table, reason, hint), _) = scene.ledger.pause.call_args
    assert (table, reason) == (TableId("shop", "orders"), "this file is odd")
    assert "start the mirror again" in hint
    assert scene.done == ["shop.users"]
    assert scene.mirror.advance(ENDS) is None


def test_a_table_that_the_lake_cannot_read_or_write_is_paused_alone(scene: Scene) -> None:
    scene.broken["shop.orders"] = LakeUnavailable("its metadata are broken", "check [lake]")
    for tries in (1, 2, 3):
        scene.mirror.advance(ENDS)
        assert bool(scene.mirror.failing) is (tries < 3)
    assert scene.mirror.summary().paused == {"shop.orders": "its metadata are broken"}
    ((_, _, hint), _) = scene.ledger.pause.call_args
    assert "start the mirror again" in hint
    assert scene.done == ["shop.users"]


def test_where_no_table_can_be_read_it_is_not_the_tables(scene: Scene) -> None:
    scene.ledger.load.return_value = {TableId("shop", "orders"): LakeUnavailable("no files")}
    scene.ledger.knows.side_effect = lambda table: table.name == "users"
    scene.ledger.knows_nothing = False
    scene.mirror.check_log(*scene.log.offsets())
    assert scene.mirror.failing
    scene.ledger.knows_nothing = True
    with pytest.raises(LakeUnavailable, match="no files"):
        scene.mirror.check_log(*scene.log.offsets())


@pytest.mark.parametrize(
    ("first", "end", "reason"), [(4, 9, "the log begins at 4"), (0, 1, "has lost its newest events")]
)
def test_a_table_whose_events_are_gone_is_paused_alone(
    scene: Scene, first: int, end: int, reason: str
) -> None:
    topic = "shop.shop.orders"
    scene.markers["orders"] = CommitMarker("shop", 1, 1, {topic: {0: PartitionProgress(2)}})
    ends: Offsets = {topic: {0: end}, "shop.shop.users": {0: 5}}
    scene.mirror.check_log({topic: {0: first}, "shop.shop.users": {0: 0}}, ends)
    scene.mirror.advance(ends)
    (found,) = scene.mirror.summary().paused.values()
    assert reason in found
    assert scene.done == ["shop.users"]


def test_schema_changes_that_cannot_go_to_quarantine_stop_nothing(scene: Scene) -> None:
    bad = BadRecord(RawRecord("shop", 0, 3, 0, None, b"garbage"), "no JSON")
    quarantine: Any = scene.mirror.engine.quarantine
    scene.mirror.engine.book.add_schema_changes = Mock(side_effect=[[bad], []])  # type: ignore[method-assign]
    quarantine.add_records.side_effect = LakeUnavailable("its metadata are broken")
    scene.mirror.advance(ENDS)
    assert sorted(scene.done) == ["shop.orders", "shop.users"]
    quarantine.add_records.side_effect = lambda bad, _: list(bad)
    scene.mirror.advance({"shop.shop.orders": {0: 6}})
    assert scene.mirror.summary().quarantined == 1


def test_success_in_between_starts_the_count_anew(scene: Scene) -> None:
    ends: dict[str, dict[int, int]] = {"shop.shop.orders": {0: 0}}
    for broken in (True, True, False, True, True, False):
        ends["shop.shop.orders"][0] += 1
        scene.broken = {"shop.orders": spark_error()} if broken else {}
        scene.mirror.advance(ends)
    assert scene.mirror.summary().paused == {}
    assert scene.done == ["shop.orders"] * 2
    assert not scene.mirror.failing


def test_a_failing_table_waits_a_while(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_S", (1000.0, 1000.0))
    scene.broken["shop.orders"] = spark_error()
    scene.mirror.advance(ENDS)
    assert scene.mirror.advance(ENDS) is None
    assert scene.mirror.failing
    assert not scene.mirror.retry_due()


def test_where_every_table_fails_it_is_not_the_tables(scene: Scene) -> None:
    scene.broken = {"shop.orders": spark_error(), "shop.users": spark_error()}
    for _ in range(4):
        with pytest.raises(LakeUnavailable, match="this file is odd"):
            scene.mirror.advance(ENDS)
    assert scene.mirror.summary().paused == {}


def test_a_definition_from_the_source_is_tried_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has nothing of the table, so nothing else would wake it."""
    scene.broken["shop.orders"] = MissingSchema("no definition")
    monkeypatch.setattr(
        scene.mirror.tables, "defined_by_source", lambda _: scene.broken.pop("shop.orders", None) is not None
    )
    for _ in range(3):
        scene.mirror.advance(ENDS)
    assert scene.mirror.failing
    assert scene.mirror.retry_due()
    scene.mirror.advance(ENDS)
    assert sorted(scene.done) == ["shop.orders", "shop.users"]
    assert not scene.mirror.failing


def test_a_table_is_paused_only_where_the_lake_says_so(scene: Scene) -> None:
    """Else `status` would not know, and nothing would try it again."""
    scene.broken["shop.orders"] = UnsupportedChange("odd", "look")
    scene.ledger.pause.side_effect = LakeUnavailable("no catalog")
    with pytest.raises(LakeUnavailable):
        scene.mirror.advance(ENDS)
    assert scene.mirror.summary().paused == {}
    scene.ledger.pause.side_effect = None
    scene.mirror.advance(ENDS)
    assert scene.mirror.summary().paused == {"shop.orders": "odd"}


def test_all_events_that_pause_a_table_are_counted(scene: Scene) -> None:
    scene.broken["shop.orders"] = TablePaused("3 events", "look", quarantined=3)
    scene.mirror.advance(ENDS)
    assert scene.mirror.summary().quarantined == 3


SAME_NAME: Offsets = {"shop.crm.orders": {0: 5}, "shop.shop.orders": {0: 5}}


def test_two_tables_never_share_one_in_the_lake(scene: Scene) -> None:
    scene.mirror.advance(SAME_NAME)
    assert scene.done == ["crm.orders"]
    (reason,) = scene.mirror.summary().paused.values()
    assert reason == "shop.orders and crm.orders would both be orders in the lake, which mirrors crm.orders"
    ((table, _, hint), _) = scene.ledger.pause.call_args
    assert table == TableId("shop", "orders")
    assert "source.tables" in hint
    assert "namespace" in hint


def test_the_table_that_is_in_the_lake_keeps_its_place(scene: Scene) -> None:
    progress = {"shop.shop.orders": {0: PartitionProgress(2)}}
    scene.markers["orders"] = CommitMarker("shop", 1, 1, progress)
    scene.mirror.advance(SAME_NAME)
    assert scene.done == ["shop.orders"]
    assert list(scene.mirror.summary().paused) == ["crm.orders"]
    scene.mirror.advance({"shop.crm.orders": {0: 9}, "shop.shop.orders": {0: 9}})
    assert scene.done == ["shop.orders"] * 2


def test_a_table_keeps_its_place_under_another_topic_prefix(scene: Scene) -> None:
    progress = {"old.shop.orders": {0: PartitionProgress(2)}}
    scene.markers["orders"] = CommitMarker("shop", 1, 1, progress)
    scene.mirror.advance({"shop.shop.orders": {0: 5}})
    assert scene.done == ["shop.orders"]


@pytest.mark.parametrize("gone", ["log", "lake"])
def test_what_all_tables_need_stops_the_stream(scene: Scene, gone: str) -> None:
    scene.broken["shop.orders"] = spark_error()
    error: Exception
    if gone == "log":
        error = scene.log.offsets.side_effect = LogUnavailable("no broker")
    else:
        error = scene.lake.namespace_properties.side_effect = LakeUnavailable("no catalog")
    for _ in range(4):
        with pytest.raises(type(error)):
            scene.mirror.advance(ENDS)
    assert scene.mirror.summary().paused == {}
    assert scene.done == ["shop.users"]


@pytest.mark.parametrize("error", [LogUnavailable("x"), ConnectionRefusedError()])
def test_errors_that_are_no_tables_leave_at_once(scene: Scene, error: Exception) -> None:
    scene.broken["shop.orders"] = error
    with pytest.raises(type(error)):
        scene.mirror.advance(ENDS)
    assert not scene.mirror.failing


def test_no_table_is_at_work_any_more_when_a_batch_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller tries again, and two threads must never write one table."""
    failed, done = threading.Event(), threading.Event()

    def work(_engine: Any, work: Work, _watch: Any) -> Census:
        if work.table.name == "orders":
            failed.set()
            raise LogUnavailable("no broker")
        assert failed.wait(10)
        # Long enough for a caller that does not wait to be back.
        done.wait(0.3)
        done.set()
        return Census({}, (), 0, 0, (), {}, None, None)

    monkeypatch.setattr(module, "process", work)
    with pytest.raises(LogUnavailable):
        scene.mirror.advance(ENDS)
    assert done.is_set()


@pytest.mark.parametrize(("grows", "tries"), [(True, 3), (False, 1)])
def test_a_definition_that_is_missing_may_still_come(scene: Scene, grows: bool, tries: int) -> None:
    """A connector writes it first, but after an outage of the broker the events may be there before it."""
    scene.log.grows = grows
    scene.broken["shop.orders"] = MissingSchema("no definition of shop.orders", "write it")
    for _ in range(tries):
        assert scene.mirror.summary().paused == {}
        scene.mirror.advance(ENDS)
    assert scene.mirror.summary().paused == {"shop.orders": "no definition of shop.orders"}
    assert scene.done == ["shop.users"]


def test_a_table_whose_definition_came_goes_on(scene: Scene) -> None:
    scene.log.grows = True
    scene.broken["shop.orders"] = MissingSchema("no definition of shop.orders")
    scene.mirror.advance(ENDS)
    scene.broken.clear()
    scene.mirror.advance(ENDS)
    assert scene.done == ["shop.users", "shop.orders"]
    assert scene.mirror.summary().paused == {}
