"""Events from before a followed statement that come after it do not bring back the rows that it removed."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from replicator.model.quarantine import ReplayResult
from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.operations.rebuild.rebuild import rebuild_tables
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Record, SourceTable
from tests.spark.test_consumer_followed import copied
from tests.spark.test_followed_partitions import (
    AFTER,
    DROP,
    N,
    applied,
    configured,
    pairs,
    partitioned,
    rebuilt,
)
from tests.spark.test_quarantine import LARGE, replayed
from tests.support.consumers import StoredConsumer
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.reread_lake import LakeReread
from tests.support.scenario import ID, Scenario, rows

WIDE = ColumnSpec("n", "bigint")


def with_quarantined_row(lake: LakeHarness) -> Scenario:
    """Return a table with rows in each partition; one of p1 is in quarantine, because its definition is late."""
    scenario = partitioned()
    for number in (1, 10, 19, 20, 30):
        scenario.insert(id=number, n=number)
    scenario.insert(id=15, n=LARGE)
    scenario.insert(id=11, n=11)
    assert applied(lake, scenario, "once").summary().paused == {}
    assert pairs(lake).keys() == {1, 10, 11, 19, 20, 30}
    now, scenario.pos = scenario.pos, 250
    scenario.define("ALTER TABLE orders MODIFY n BIGINT", [ID, WIDE])
    scenario.pos = now
    return scenario


def dropped(scenario: Scenario) -> Scenario:
    scenario.define(DROP, [ID, WIDE])
    scenario.insert(id=12, n=12)
    scenario.change("u", before={"id": 20, "n": 20}, after={"id": 20, "n": 21})
    return scenario


def assert_refused(done: ReplayResult) -> None:
    ((_, reason),) = done.refused
    assert "from before its partitions were dropped or truncated" in reason
    assert done.taken == []


@pytest.mark.fault(
    "An event in quarantine is replayed after its partition was dropped, followed as configured",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the replay refuses it, and the row does not come back, also in a mirror that was rebuilt meanwhile",
)
@pytest.mark.parametrize("rebuilds", [False, True])
def test_replayed_event_of_a_dropped_partition_is_refused(lake: LakeHarness, rebuilds: bool) -> None:
    scenario = dropped(with_quarantined_row(lake))
    mirror = applied(lake, scenario, "once")
    assert mirror.summary().paused == {}
    assert pairs(lake) == AFTER
    if rebuilds:
        mirror.context.lake.drop("shop", "orders")
        rebuild_tables(configured(lake), mirror.context.lake)
    assert_refused(replayed(lake, configured(lake)))
    assert pairs(lake) == AFTER
    assert len(lake.rows("orders", "shop_changes")) == 6 + 3


@pytest.mark.long
def test_events_are_not_replayed_before_the_mirror_has_passed_a_statement(lake: LakeHarness) -> None:
    """Otherwise the mirror would delete rows before it has all of them."""
    scenario = with_quarantined_row(lake)
    scenario.insert(id=16, n=16)
    lake.write(dropped(scenario).records)
    scenario.records.clear()
    ((_, reason),) = replayed(lake, configured(lake)).refused
    assert "changed since the mirror ran last" in reason
    assert pairs(lake).keys() == {1, 10, 11, 19, 20, 30}
    assert lake.catch_up(configured(lake)).summary().paused == {}
    assert pairs(lake) == AFTER
    assert_refused(replayed(lake, configured(lake)))


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_events_that_are_delivered_again_after_the_statement_are_left_out(
    lake: LakeHarness, driver_max_events: int
) -> None:
    lake = LakeHarness(lake.base, lake.folder, driver_max_events)
    scenario = partitioned()
    for number in (1, 10, 15, 19, 20, 30):
        scenario.insert(id=number, n=number)
    again: list[Record] = list(scenario.records)
    scenario.define(DROP, [ID, N])
    scenario.insert(id=12, n=12)
    again += scenario.records[-2:]
    scenario.records += again
    scenario.change("u", before={"id": 20, "n": 20}, after={"id": 20, "n": 21})
    assert applied(lake, scenario, "once").summary().paused == {}
    assert pairs(lake) == AFTER


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_event_that_the_mirror_never_had_pauses_the_table(lake: LakeHarness, driver_max_events: int) -> None:
    lake = LakeHarness(lake.base, lake.folder, driver_max_events)
    scenario = partitioned()
    scenario.insert(id=1, n=1)
    scenario.insert(id=15, n=15)
    late = scenario.records.pop()
    scenario.define(DROP, [ID, N])
    assert applied(lake, scenario, "once").summary().paused == {}
    scenario.records.append(late)
    scenario.insert(id=12, n=12)
    (reason,) = applied(lake, scenario, "once").summary().paused.values()
    assert "from before its partitions were dropped or truncated" in reason
    assert pairs(lake) == {1: 1}


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.long
def test_reread_of_a_mirror_that_has_not_passed_a_statement_is_exact(
    lake: LakeHarness, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a row that is in the partition again with the same values, and if the changelog follows the statement.

    The process was killed then, before the mirror followed it.
    """
    scenario, config = partitioned(), configured(lake)
    for number in (1, 11, 15):
        scenario.insert(id=number, n=number)
    applied(lake, scenario, "once")
    scenario.define("ALTER TABLE orders TRUNCATE PARTITION p1", [ID, N])
    scenario.insert(id=15, n=15)
    lake.write(scenario.records)
    if decided:
        monkeypatch.setattr("replicator.batch.evolution.roles.MirrorSide.apply", Mock(side_effect=PowerCut))
        with pytest.raises(PowerCut):
            lake.catch_up(config)
        monkeypatch.undo()
    live = StoredConsumer("shop.orders", "changelog")
    live.read(config)
    source = SourceTable("orders", ("id",), [ID, N], {(i,): {"id": i, "n": i} for i in (1, 15)})
    request = replace(new_request(TableId("shop", "orders"), "heal"), held=True)
    began = ("mysql-bin.000001", scenario.pos + 1, 1_800_000_000_000)
    read = LakeReread(lake.mirror(config), source, request, began)
    read.read([source])
    read.complete()
    assert read.publish() == 1
    assert lake.catch_up(config).summary().paused == {}
    assert pairs(lake) == {1: 1, 15: 15}
    assert rebuilt(lake) == rows(lake)
    live.read(config)
    assert ["removed" in step for step in live.steps] == [True] * decided
    assert copied(lake.session(config), live.image, live.changes, live.steps) == pairs(lake)
