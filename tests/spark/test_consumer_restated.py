"""Consumers, when the changelog gets changes with earlier offsets: replays of quarantined events, recreated topics."""

import pytest

from replicator import failpoints
from replicator.errors import CursorExpired, Unsettled
from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.changelog import RESTATED_KEY, Restatement, restated
from tests.spark.test_quarantine import AFTERWARDS, CHANGES, CREATED, EVENTS, WIDENED, event, replayed, row
from tests.support.consumers import StoredConsumer
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, created, snapshot_read
from tests.support.recreated_topic import recreate_topic, with_topic_id


def consumer(start: str) -> StoredConsumer:
    return StoredConsumer("shop.orders", start)


def got(found: StoredConsumer) -> list[tuple[int, str, int]]:
    return sorted((r["_change"]["offset"], r["_change"]["kind"], r["number"]) for r in found.changes)


def restatements(lake: LakeHarness) -> tuple[Restatement | None, Restatement | None]:
    with lake.catalog() as catalog:
        tables = [catalog.load_table((namespace, "orders")) for namespace in ("shop", "shop_changes")]
        mirror, changelog = (restated(table.properties.get(RESTATED_KEY)) for table in tables)
        return mirror, changelog


def expire(lake: LakeHarness) -> None:
    with lake.catalog() as catalog:
        table = catalog.load_table(("shop_changes", "orders"))
        newest = table.current_snapshot()
        old = [s.snapshot_id for s in table.snapshots() if newest and s.snapshot_id != newest.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()


def test_replayed_events_reach_live_and_new_consumers_once(lake: LakeHarness) -> None:
    lake.write([CREATED, *EVENTS])
    lake.catch_up()
    live, from_mirror, late = consumer("changelog"), consumer("mirror"), consumer("changelog")
    for each in (live, from_mirror, late):
        each.read(lake.config())
    assert {r["id"]: r["number"] for r in from_mirror.image} == {1: 12, 2: 20, 3: 31}
    lake.write([WIDENED])
    replayed(lake)
    mirror, changelog = restatements(lake)
    assert mirror == changelog
    assert changelog is not None
    assert changelog.kind == "replay-0:3-8"
    with lake.catalog() as catalog:
        marker = newest_marker(catalog.load_table(("shop_changes", "orders")))
        assert marker is not None
        assert marker.sequence == changelog.commit
    for each in (live, from_mirror):
        each.read(lake.config())
    assert got(live) == CHANGES
    assert got(from_mirror) == [change for change in CHANGES if 3 <= change[0] <= 7]
    fresh = consumer("mirror")
    fresh.read(lake.config())
    assert {r["id"]: r["number"] for r in fresh.image} == AFTERWARDS
    lake.write([event("u", 111, before=row(4, 5_000_000_001), after=row(4, 1))])
    lake.catch_up()
    expire(lake)
    for each in (live, from_mirror, fresh):
        each.read(lake.config())
        assert each.changes[-1]["number"] == 1
    assert len(got(live)) == len(CHANGES) + 2
    # It was away during the replay, and the snapshots since then are gone.
    with pytest.raises(CursorExpired, match="a replay"):
        list(late.batches(lake.config()))


@pytest.mark.long
def test_no_consumer_starts_with_a_mirror_that_lacks_replayed_events(lake: LakeHarness) -> None:
    lake.write([CREATED, *EVENTS])
    lake.catch_up()
    lake.write([WIDENED])

    def reach(point: str) -> None:
        if point == "between-commits":
            raise PowerCut

    with pytest.raises(PowerCut), failpoints.on_reach(reach):
        replayed(lake)
    mirror, changelog = restatements(lake)
    assert mirror != changelog
    with pytest.raises(Unsettled, match="lacks changes"):
        consumer("mirror").read(lake.config())
    live = consumer("changelog")
    live.read(lake.config())
    replayed(lake)
    mirror, changelog = restatements(lake)
    assert mirror == changelog
    live.read(lake.config())
    assert got(live) == CHANGES
    fresh = consumer("mirror")
    fresh.read(lake.config())
    assert {r["id"]: r["number"] for r in fresh.image} == AFTERWARDS


def test_recreated_topic_ends_the_order_of_offsets(lake: LakeHarness) -> None:
    topic_id = with_topic_id(lake)
    lake.write([DEFINITION, created(1), created(2)])
    lake.catch_up()
    live, late = consumer("changelog"), consumer("changelog")
    live.read(lake.config())
    late.read(lake.config())
    recreate_topic(lake, topic_id)
    lake.write([DEFINITION, snapshot_read(2, 500), snapshot_read(7, 500, "last")])
    lake.catch_up()
    mirror, changelog = restatements(lake)
    assert mirror == changelog
    assert changelog is not None
    assert (changelog.kind, changelog.topics) == ("topic", 1)
    live.read(lake.config())
    assert [(r["_change"]["op"], r["id"]) for r in live.changes] == [("c", 1), ("c", 2), ("r", 2), ("r", 7)]
    everything = consumer("changelog")
    everything.read(lake.config())
    assert everything.changes == live.changes
    expire(lake)
    with pytest.raises(CursorExpired, match="not certain"):
        list(consumer("changelog").batches(lake.config()))
    with pytest.raises(CursorExpired):
        list(late.batches(lake.config()))
    lake.write([created(9)])
    lake.catch_up()
    live.read(lake.config())
    assert live.changes[-1]["id"] == 9
