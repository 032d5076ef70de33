"""Mirrors of partitioned tables in small batches: their files, and where the process knows the rows to be."""

from typing import Any

import pyarrow as pa
import pytest

from replicator.runner.scheduler import Scheduler
from tests.support.lake_harness import LakeHarness
from tests.support.logs import captured_logs
from tests.support.order_changes import advance, assert_exact, changes, located, total, write
from tests.support.order_changes import table as orders
from tests.support.orders_table import ORDERS, created, event


@pytest.mark.parametrize("format_version", [2, 3])
def test_rows_with_null_and_with_the_text_null_are_in_different_partitions(
    lake: LakeHarness, format_version: int
) -> None:
    """A delete file applies to the data files of its own partition only; Iceberg names both partitions `null`."""
    rows: list[dict[str, Any]] = [{"id": 1, "name": None}, {"id": 2, "name": "null"}, {"id": 3, "name": None}]
    batches = [
        [event("c", 100 + n, after=row) for n, row in enumerate(rows)],
        [event("d", 200 + n, before=row) for n, row in enumerate(rows[:2])],
    ]
    write(lake, batches)
    settings = lake.config(
        apply={"format_version": format_version},
        table=[{"name": "shop.orders", "partition": ["identity(name)"]}],
    )
    mirror = lake.mirror(settings)
    mirror.advance({ORDERS: {0: 3}})
    mirror.advance({ORDERS: {0: 5}})
    assert mirror.summary().paused == {}
    assert total(orders(lake), "delete-files") == 2
    assert_exact(lake, batches)


BUCKETS = [{"name": "shop.orders", "partition": ["bucket(3, id)"]}]
QUIET = {"merge_files": 1000, "max_snapshots": 1000, "max_lag": "100000 days"}
"""Maintenance with nothing to do."""


def jobs(mirror: Scheduler) -> int:
    """Return the number of Spark jobs so far."""
    context: Any = mirror.context.spark.sparkContext._jsc.sc()
    return int(context.dagScheduler().nextJobId())


def summary(lake: LakeHarness, key: str) -> int:
    snapshot = orders(lake).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary.additional_properties.get(key) or 0)


def assert_located(mirror: Scheduler) -> None:
    """Compare the locations that the process knows, without reading a file, with those of all rows."""
    loaded = mirror.context.lake.load("shop", "orders")
    assert loaded is not None
    known = mirror.context.row_locations.of(loaded, ("id",))
    assert (known.head, known.is_complete, known.unread) == (loaded.snapshot_id, True, [])
    found, searched = known.find(pa.table({"k0": pa.array(range(100), pa.int64())}))
    assert not len(searched)
    assert {(f.file.path, int(at)) for f in found for at in f.positions} == located(
        mirror.context.lake, loaded
    )


@pytest.mark.parametrize("format_version", [2, 3])
def test_small_batches_run_no_spark_job_and_write_one_data_file_for_each_partition(
    lake: LakeHarness, format_version: int
) -> None:
    lake.format_version = format_version
    batches = changes(51, batches=8)
    write(lake, batches)
    mirror = lake.mirror(lake.config(table=BUCKETS, maintenance=QUIET))
    advance(mirror, batches, 0, 1)
    for number in range(1, 8):
        before = jobs(mirror)
        advance(mirror, batches, number, number + 1)
        assert jobs(mirror) == before
        assert summary(lake, "added-data-files") <= 3
        assert_located(mirror)
    assert_exact(lake, batches)


def test_small_files_of_a_partition_are_merged_without_spark(lake: LakeHarness) -> None:
    """Batches of inserts into one partition: their commits are appends, which absorb nothing."""
    name = "ALTER TABLE lake.shop_changes.orders ADD PARTITION FIELD truncate(1, name)"
    batches = [[created(n, f"{'ab'[n % 4 == 0]}{n}")] for n in range(1, 13)]
    write(lake, batches)
    settings = lake.config(
        table=[{"name": "shop.orders", "partition": ["truncate(1, name)"]}],
        maintenance=QUIET | {"merge_files": 4},
    )
    mirror = lake.mirror(settings)
    with captured_logs() as logs:
        advance(mirror, batches, 0, 1)
        mirror.context.spark.sql(name)
        before = jobs(mirror)
        advance(mirror, batches, 1, 12)
    maintained = [line for line in logs if line["event"] == "maintained"]
    assert {step for line in maintained for step in line["steps"]} == {"merge small files"}
    assert jobs(mirror) == before
    # The changelog's first file is of its earlier spec.
    for namespace, most in (("shop", 2 * 3), ("shop_changes", 1 + 2 * 3)):
        assert total(orders(lake, namespace), "data-files") <= most
    assert_located(mirror)
    assert_exact(lake, batches)


@pytest.mark.fault(
    "A user changes the partition spec twice",
    area="Other writers",
    on="Iceberg; events by hand",
    outcome="the mirror continues",
)
@pytest.mark.parametrize("merge_files", [4, 1000], ids=["merged", "absorbed"])
@pytest.mark.parametrize(
    ("partition", "changed"),
    [
        ([], ["ADD PARTITION FIELD bucket(3, id)", "DROP PARTITION FIELD bucket(3, id)"]),
        (["bucket(3, id)"], ["DROP PARTITION FIELD bucket(3, id)", "ADD PARTITION FIELD truncate(2, name)"]),
        (["bucket(3, id)"], ["REPLACE PARTITION FIELD id_bucket WITH bucket(2, id)", "WRITE ORDERED BY id"]),
    ],
    ids=["first field", "last field", "replaced field"],
)
def test_mirror_stays_exact_when_the_partition_spec_is_changed_by_hand(
    lake: LakeHarness, partition: list[str], changed: list[str], merge_files: int
) -> None:
    batches = changes(53, batches=18, size=8)
    write(lake, batches)
    settings = lake.config(
        table=[{"name": "shop.orders", "partition": partition}],
        maintenance=QUIET | {"merge_files": merge_files},
    )
    mirror = lake.mirror(settings)
    for number in range(18):
        if number in (6, 12):
            mirror.context.spark.sql(f"ALTER TABLE lake.shop.orders {changed[number // 6 - 1]}")
        advance(mirror, batches, number, number + 1)
        if number in (5, 6, 11, 12, 17):
            assert_exact(lake, batches[: number + 1])
    specs = {
        row.spec_id
        for row in mirror.context.spark.sql("SELECT spec_id FROM lake.shop.orders.files").collect()
    }
    assert len(specs) <= 3
