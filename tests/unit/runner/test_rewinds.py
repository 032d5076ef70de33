"""Which tables wait for lost events that are sent again, and when they continue. The real servers are in tests/e2e."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replicator.errors import EventsLost, EventsWrong, MissingKey
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.rewind import REWIND_KEY, Rewind, RewindPhase
from replicator.model.table import TableId
from replicator.runner.rewinds import Rewinds
from tests.support.kafka_connect import Connect, serving
from tests.support.scheduler_harness import SchedulerHarness

ORDERS = TableId("shop", "orders")
TOPIC = "shop.shop.orders"
SENDING = Rewind(
    ORDERS, "the log begins at 4", "binlog.000007", 9, 5, RewindPhase.SENDING, "binlog.000009", 600
)
LOST = EventsLost("the log begins at 4")


class Mirror:
    """The rewinds of a mirror whose log lacks an event of a table, with a server in place of Kafka Connect."""

    def __init__(self, folder: Path, connect: Connect, **heal: Any) -> None:
        self.connect = connect
        log = {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic_prefix": "shop"}
        self.harness = SchedulerHarness(
            folder,
            source={"url": "mysql://mirror@127.0.0.1:1/shop", "tables": ["shop.*"]},
            log=log | {"connect_url": connect.url},
            heal=heal,
        )
        self.log, self.lake = self.harness.log, self.harness.lake
        self.harness.ledger.lasting_pauses.return_value = {}
        self.log.topic_id.return_value = None
        self.tables, scheduler = self.harness.mirror.tables, self.harness.mirror
        high = HighWater(SourcePosition("binlog.000008", 500, server_id=1), 1, 1)
        marker = CommitMarker("shop", 1, 1, {TOPIC: {0: PartitionProgress(3, high)}})
        self.harness.markers["orders"] = marker
        self.rewinds = Rewinds(scheduler.context, self.tables, scheduler.stopping)
        self.tables.on_pause = self.rewinds.note

    def answer(self, **options: str) -> None:
        status = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}
        found = {"info": {"config": {"topic.prefix": "shop", **options}}, "status": status}
        self.connect.reply("GET /connectors?expand=info&expand=status", 200, {"shop": found})

    def offset(self, file: str, pos: int) -> None:
        offset = {"partition": {"server": "shop"}, "offset": {"file": file, "pos": pos}}
        self.connect.answers.pop("GET /connectors/shop/offsets", None)
        self.connect.reply("GET /connectors/shop/offsets", 200, {"offsets": [offset]})

    def load(self) -> None:
        self.lake.namespace_properties.return_value = {f"{REWIND_KEY}shop.orders": SENDING.to_json()}
        self.connect.reply("PUT /connectors/shop/resume", 202)
        self.rewinds.load()

    def recorded(self) -> list[Rewind]:
        calls = self.lake.set_namespace_property.call_args_list
        return [Rewind.from_json(call.args[2]) for call in calls]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with serving() as server:
        yield server


def test_table_waits_until_it_is_decided_how_it_gets_its_events(tmp_path: Path, connect: Connect) -> None:
    mirror = Mirror(tmp_path, connect)
    mirror.tables.pause(ORDERS, LOST)
    assert mirror.rewinds.any_left
    assert mirror.rewinds.wants(ORDERS)
    mirror.answer(**{"signal.data.collection": "shop.signals"})
    mirror.rewinds.decide({ORDERS: "lost"}, {TOPIC: {0: 4}})
    assert not mirror.rewinds.any_left
    assert not mirror.rewinds.wants(ORDERS)
    assert mirror.recorded() == []


def test_decision_waits_for_kafka_connect(tmp_path: Path, connect: Connect) -> None:
    mirror = Mirror(tmp_path, connect)
    mirror.tables.pause(ORDERS, LOST)
    connect.reply("GET /connectors?expand=info&expand=status", 500)
    mirror.rewinds.decide({ORDERS: "lost"}, {TOPIC: {0: 4}})
    assert mirror.rewinds.wants(ORDERS)


@pytest.mark.parametrize(
    ("cause", "heal"),
    [(MissingKey("no key"), {}), (LOST, {"max_binlog": 0}), (LOST, {"mode": "ask"})],
)
def test_other_tables_do_not_wait(
    tmp_path: Path, connect: Connect, cause: EventsLost | MissingKey, heal: dict[str, Any]
) -> None:
    mirror = Mirror(tmp_path, connect, **heal)
    mirror.tables.pause(ORDERS, cause)
    assert not mirror.rewinds.any_left
    assert not mirror.rewinds.wants(ORDERS)


def test_table_continues_once_all_events_were_sent(tmp_path: Path, connect: Connect) -> None:
    mirror = Mirror(tmp_path, connect)
    mirror.load()
    assert mirror.tables.paused == {ORDERS: SENDING.reason}
    mirror.answer()
    mirror.offset("binlog.000009", 599)
    mirror.rewinds.step()
    assert connect.count("PUT /connectors/shop/resume") == 1
    assert ORDERS in mirror.tables.paused
    mirror.offset("binlog.000009", 600)
    mirror.log.offsets.return_value = ({TOPIC: {0: 3}}, {TOPIC: {0: 9}})
    mirror.rewinds._due_at = 0.0
    mirror.rewinds.step()
    assert mirror.tables.paused == {}
    assert mirror.tables.retries.due()
    (done,) = mirror.recorded()
    assert replace(done, ended_ms=None) == replace(SENDING, phase=RewindPhase.DONE, events=6)
    assert not mirror.rewinds.any_left


def test_table_is_read_again_if_the_log_lost_the_events_again(tmp_path: Path, connect: Connect) -> None:
    mirror = Mirror(tmp_path, connect)
    mirror.load()
    mirror.answer()
    mirror.offset("binlog.000010", 4)
    mirror.log.offsets.return_value = ({TOPIC: {0: 4}}, {TOPIC: {0: 9}})
    mirror.rewinds.step()
    assert not mirror.rewinds.any_left
    assert not mirror.rewinds.wants(ORDERS)
    assert "the log has lost events again" in mirror.tables.paused[ORDERS]
    # Only once the re-read is requested, no restart may forget the gap.
    assert mirror.recorded() == []
    mirror.rewinds.replaced(ORDERS)
    (failed,) = mirror.recorded()
    assert (failed.phase, failed.problem) == (RewindPhase.FAILED, "the log has lost events again")


def test_table_that_pauses_for_another_reason_is_read_again(tmp_path: Path, connect: Connect) -> None:
    """The events that are sent again do not show its rows; the connector continues in any case."""
    mirror = Mirror(tmp_path, connect)
    mirror.load()
    mirror.tables.pause(ORDERS, EventsWrong("a statement changed rows without events"))
    assert not mirror.rewinds.wants(ORDERS)
    assert not mirror.rewinds.any_left
    mirror.answer()
    mirror.offset("binlog.000010", 4)
    mirror.log.offsets.return_value = ({TOPIC: {0: 3}}, {TOPIC: {0: 9}})
    mirror.rewinds.step()
    assert connect.count("PUT /connectors/shop/resume") == 1
    assert mirror.tables.paused == {ORDERS: "a statement changed rows without events"}
    mirror.rewinds.replaced(ORDERS)
    (failed,) = mirror.recorded()
    assert (failed.phase, failed.problem) == (RewindPhase.FAILED, "a statement changed rows without events")


def test_pause_that_lasts_is_kept_at_a_restart(tmp_path: Path, connect: Connect) -> None:
    mirror = Mirror(tmp_path, connect)
    mirror.harness.ledger.lasting_pauses.return_value = {ORDERS: ("wrong", "heal it")}
    mirror.load()
    mirror.harness.ledger.pause.assert_not_called()
    mirror.tables.keep_lasting_pauses()
    assert mirror.tables.paused == {ORDERS: "wrong"}
    assert not mirror.rewinds.wants(ORDERS)
    mirror.answer()
    mirror.offset("binlog.000010", 4)
    mirror.log.offsets.return_value = ({TOPIC: {0: 3}}, {TOPIC: {0: 9}})
    mirror.rewinds.step()
    assert connect.count("PUT /connectors/shop/resume") == 1
    assert mirror.tables.paused == {ORDERS: "wrong"}
