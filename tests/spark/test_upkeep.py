"""A mirror that maintains its tables between its batches stays equal to the source, with few files and snapshots."""

from typing import Any

import pyarrow as pa
import pytest

from replicator import failpoints
from replicator.config import Config
from replicator.lake.rewritten_files import rewritten_files
from replicator.lake.row_search import read_unread
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import apply, assert_exact, changes, located, table, total
from tests.support.orders_table import DEFINITION, ORDERS, event

MAINTENANCE: dict[str, Any] = {"merge_files": 4, "max_snapshots": 8, "max_lag": "100000 days"}
"""The events are old, so that a mirror of them always counts as far behind its source."""


def config(lake: LakeHarness, maintenance: dict[str, Any] | None = None, **sections: Any) -> Config:
    return lake.config(maintenance=MAINTENANCE | (maintenance or {}), **sections)


def assert_small(lake: LakeHarness) -> None:
    for namespace in ("shop", "shop_changes"):
        found = table(lake, namespace)
        assert total(found, "data-files") < 10
        assert total(found, "delete-files") < 10
        # Iceberg's branches of a merge leave snapshots too.
        assert len(found.metadata.snapshots) < 20


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_tables_stay_small_and_exact_over_many_commits(lake: LakeHarness, driver_max_events: int) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(1)
    apply(lake, config(lake), batches)
    assert_exact(lake, batches)
    assert_small(lake)


def test_maintenance_continues_over_several_slices_when_each_may_rewrite_few_bytes(lake: LakeHarness) -> None:
    batches = changes(8, batches=16)
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
    mirror, end = lake.mirror(config(lake, {"enabled": False})), 0
    for batch in batches[:12]:
        end += len(batch)
        mirror.advance({ORDERS: {0: end}})
    assert total(table(lake, "shop_changes"), "data-files") == 12
    mirror, files = lake.mirror(config(lake, {"slice_bytes": "1 B"})), []
    for batch in batches[12:]:
        end += len(batch)
        mirror.advance({ORDERS: {0: end}})
        files.append(total(table(lake, "shop_changes"), "data-files"))
    assert files == [10, 8, 6, 4]
    assert_exact(lake, batches)


def test_partitioned_table_stays_exact_when_files_are_merged(lake: LakeHarness) -> None:
    batches = changes(2, batches=14)
    apply(lake, config(lake, table=[{"name": "shop.orders", "partition": ["bucket(2, id)"]}]), batches)
    assert_exact(lake, batches)
    assert total(table(lake), "data-files") < 20


@pytest.mark.parametrize("strategy", ["merge", "copy-on-write"])
def test_table_stays_exact_with_other_write_strategies_when_files_are_merged(
    lake: LakeHarness, strategy: str
) -> None:
    batches = changes(3, batches=10)
    apply(lake, config(lake, apply={"strategy": strategy}), batches)
    assert_exact(lake, batches)


def test_deleted_rows_are_removed_from_data_files_when_they_are_many(lake: LakeHarness) -> None:
    rows = [event("c", 100 + n, after={"id": n, "name": "new"}) for n in range(20)]
    gone = [event("d", 200 + n, before={"id": n, "name": "new"}) for n in range(12)]
    batches = [rows, *(gone[i : i + 3] for i in range(0, 12, 3))]
    apply(lake, config(lake), batches)
    assert_exact(lake, batches)
    assert (total(table(lake), "records"), total(table(lake), "position-deletes")) == (8, 0)


def test_tables_are_not_maintained_when_it_is_disabled(lake: LakeHarness) -> None:
    batches = changes(4, batches=9)
    apply(lake, config(lake, {"enabled": False}), batches)
    assert_exact(lake, batches)
    assert total(table(lake, "shop_changes"), "data-files") == 9


def test_locations_of_rows_stay_known_when_their_files_are_merged(lake: LakeHarness) -> None:
    batches = changes(5, batches=9)
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
    mirror = lake.mirror(config(lake, {"max_snapshots": 100}))
    end, rewritten = 0, 0
    for batch in batches:
        end += len(batch)
        mirror.advance({ORDERS: {0: end}})
        loaded = mirror.context.lake.load("shop", "orders")
        assert loaded is not None
        rewritten += loaded.java.currentSnapshot().operation() == "replace"
        known = mirror.context.row_locations.of(loaded, ("id",))
        read_unread(mirror.context.lake, loaded, known)
        assert known.head == loaded.snapshot_id
        assert known.is_complete
        ids = pa.table({"k0": pa.array(range(200), pa.int64())})
        found, searched = known.find(ids)
        assert not len(searched)
        expected = located(mirror.context.lake, loaded)
        assert {(f.file.path, int(at)) for f in found for at in f.positions} == expected
    assert rewritten
    assert_exact(lake, batches)


def test_rows_are_not_located_when_another_commit_changed_rows_meanwhile(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *(record for batch in changes(9, batches=2) for record in batch)])
    mirror = lake.mirror(config(lake, {"enabled": False}))
    mirror.advance({ORDERS: {0: 6}})
    before = mirror.context.lake.load("shop", "orders")
    assert before is not None
    assert before.snapshot_id is not None
    mirror.advance({ORDERS: {0: 12}})
    after = mirror.context.lake.load("shop", "orders")
    assert after is not None
    assert rewritten_files(after, before.snapshot_id) is None


@pytest.mark.parametrize("crash", [1, 2, 4])
def test_mirror_stays_exact_when_the_process_ends_between_maintenance_steps(
    lake: LakeHarness, crash: int
) -> None:
    batches = changes(6, batches=12)
    reached = 0

    def reach(point: str) -> None:
        nonlocal reached
        reached += point == "after-maintenance-step"
        if reached == crash:
            raise PowerCut

    with pytest.raises(PowerCut), failpoints.on_reach(reach):
        apply(lake, config(lake), batches)
    lake.catch_up(config(lake))
    assert_exact(lake, batches)


def test_snapshot_with_a_tag_is_kept_when_others_expire(lake: LakeHarness) -> None:
    batches = changes(7, batches=12)
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
    mirror = lake.mirror(config(lake, {"max_snapshots": 2}))
    mirror.advance({ORDERS: {0: 12}})
    mirror.context.spark.sql("ALTER TABLE lake.shop.orders CREATE TAG audit")
    tagged = mirror.context.spark.sql("SELECT * FROM lake.shop.orders VERSION AS OF 'audit'").collect()
    for end in range(18, 73, 6):
        mirror.advance({ORDERS: {0: end}})
    again = mirror.context.spark.sql("SELECT * FROM lake.shop.orders VERSION AS OF 'audit'").collect()
    assert sorted(again) == sorted(tagged)
    assert len(table(lake).metadata.snapshots) < 8
    assert_exact(lake, batches)
