"""Others write the same tables: a second mirror is refused, maintenance is planned around."""

from typing import Any
from unittest.mock import patch

import pytest

from replicator.apply.publish import Staged, publish
from replicator.apply.stage import matching_positions
from replicator.errors import CommitConflict, FencedError
from replicator.model.commit import MARKER_KEY, CommitMarker
from tests.spark.batches import DEFINITION, ORDERS, created, event
from tests.spark.conftest import Lab


def test_a_second_mirror_is_fenced_off(lab: Lab) -> None:
    lab.write([DEFINITION, *map(created, range(6))])
    first, second = lab.mirror(), lab.mirror()
    first.advance({ORDERS: {0: 3}})
    with pytest.raises(FencedError, match="another process writes"):
        second.advance({ORDERS: {0: 5}})
    first.advance({ORDERS: {0: 6}})
    assert sorted(r["id"] for r in lab.rows("orders")) == list(range(6))
    assert len(lab.rows("orders", "shop_changes")) == 6


def test_fencing_and_conflicts_of_one_commit(lab: Lab) -> None:
    lab.write([DEFINITION, created(1)])
    mirror = lab.catch_up()
    lake = mirror.engine.lake
    table, stale = lake.load("shop", "orders"), lake.load("shop", "orders")
    assert table is not None
    assert stale is not None
    base = table.marker()
    assert base is not None
    following = CommitMarker("shop", base.sequence + 1, 9, base.progress)
    with pytest.raises(FencedError):
        publish(lake, table, None, following, Staged())
    lake.set_properties(table, {"somebody": "else"})
    with pytest.raises(CommitConflict):
        publish(lake, stale, base, following, Staged())
    publish(lake, table, base, following, Staged())
    now = lake.load("shop", "orders")
    assert now is not None
    assert now.marker() == following
    # The very same commit again, as after an answer that was lost: it is known to have happened.
    with pytest.raises(FencedError):
        publish(lake, now, base, following, Staged())


def test_a_commit_from_elsewhere_in_between_is_planned_around(lab: Lab) -> None:
    """Maintenance from outside commits while a batch is at work."""
    lab.write([DEFINITION, created(1), created(2)])
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 1}})
    disturbed: list[str] = []

    def reach(point: str) -> None:
        if point == "before-commit" and not disturbed:
            disturbed.append(point)
            for namespace in ("shop", "shop_changes"):
                table = mirror.engine.lake.load(namespace, "orders")
                assert table is not None
                mirror.engine.lake.set_properties(table, {"somebody": "else"})

    with patch("replicator.apply.publish.reach", reach):
        mirror.advance({ORDERS: {0: 2}})
    assert disturbed
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2]
    assert len(lab.rows("orders", "shop_changes")) == 2


def test_compaction_from_elsewhere_keeps_the_ledger(lab: Lab) -> None:
    lab.write(
        [DEFINITION, created(1), created(2), event("d", 150, before={"id": 1, "name": "new"}), created(60)]
    )
    mirror = lab.mirror()
    for end in (1, 2, 3):
        mirror.advance({ORDERS: {0: end}})
    mirror.engine.spark.sql(
        "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
    ).collect()
    again = lab.mirror()
    again.advance({ORDERS: {0: 4}})
    assert sorted(r["id"] for r in lab.rows("orders")) == [2, 60]
    assert len(lab.rows("orders", "shop_changes")) == 4


def test_rows_that_others_moved_are_found_again(lab: Lab) -> None:
    """A process remembers where it put its rows; a compaction in between puts them elsewhere."""
    updates = [
        event("u", 200 + n, before={"id": n, "name": "new"}, after={"id": n, "name": "2"}) for n in (1, 2)
    ]
    gone = [event("d", 300 + n, before={"id": n, "name": "2"}) for n in (1, 2)]
    again = event("c", 400, after={"id": 1, "name": "again"})
    lab.write([DEFINITION, created(1), created(2), *updates, *gone, again])
    mirror = lab.mirror()
    for end in range(1, 8):
        mirror.advance({ORDERS: {0: end}})
        assert len({r["id"] for r in lab.rows("orders")}) == len(lab.rows("orders"))
        if end in (2, 5):
            mirror.engine.spark.sql(
                "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
            ).collect()
    assert lab.rows("orders") == [{"id": 1, "name": "again"}]


def test_small_batches_search_only_the_base(lab: Lab) -> None:
    """However many small files there are, only what was there before them is searched, and for unknown keys only."""
    searched: list[int] = []

    def search(lake: Any, table: Any, snapshot_id: int, names: Any, keys: Any) -> Any:
        searched.append(keys.count())
        return matching_positions(lake, table, snapshot_id, names, keys)

    updates = [
        event("u", pos, before={"id": 1, "name": "new"}, after={"id": 1, "name": "2"}) for pos in (150, 170)
    ]
    lab.write([DEFINITION, created(1), created(2), updates[0], created(60), updates[1]])
    lab.mirror().advance({ORDERS: {0: 2}})
    mirror = lab.mirror()
    with patch("replicator.apply.strategy.matching_positions", search):
        for end in (3, 4, 5):
            mirror.advance({ORDERS: {0: end}})
    assert searched == [1, 1], "key 1 in the base, the new key 60, and then key 1 is known"
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2, 60]


def test_a_table_is_searched_as_it_was(lab: Lab) -> None:
    lab.write([DEFINITION, created(1), created(2)])
    mirror = lab.mirror()
    lake, found = mirror.engine.lake, []
    keys = mirror.engine.spark.createDataFrame([(1,), (2,)], "k0 bigint")
    for end in (1, 2):
        mirror.advance({ORDERS: {0: end}})
        table = lake.load("shop", "orders")
        assert table is not None
        found.append((table, table.snapshot_id))
    (_, first), (table, second) = found
    counts = [matching_positions(lake, table, at, ["id"], keys).count() for at in (first, second) if at]
    assert counts == [1, 2]


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write"])
def test_every_commit_has_its_marker_in_the_snapshot_too(lab: Lab, strategy: str) -> None:
    """Tools that read a table's history read snapshots; properties have the newest marker only."""
    lab.write([DEFINITION, created(1), created(2), event("d", 150, before={"id": 1, "name": "new"})])
    mirror = lab.mirror(lab.config(apply={"strategy": strategy}))
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 3}})
    with lab.catalog() as catalog:
        table = catalog.load_table(("shop", "orders"))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary[MARKER_KEY] == table.properties[MARKER_KEY]
    assert [r["id"] for r in lab.rows("orders")] == [2]
