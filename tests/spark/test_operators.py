"""What operators and other engines may do to the lake tables of a running mirror; docs/how-to/maintain-tables.md.

Each action is done by hand with Spark, between two batches and in the middle of one: there the batch has written its
files, and has not committed them.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from replicator import failpoints
from replicator.config import Config
from replicator.errors import FencedError
from replicator.operations.status.read import read_status
from replicator.runner.scheduler import Scheduler
from tests.oracle.equality_deletes import has_equality_deletes
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import assert_exact, changes, ends, state_after, table, total, write
from tests.support.orders_table import DEFINITION, ORDERS, created

NAMESPACES = ("shop", "shop_changes")
NOW = "TIMESTAMP '2100-01-01 00:00:00'"

REWRITE_DATA = (
    "CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
)
SORT_DATA = (
    "CALL lake.system.rewrite_data_files(table => '{table}', strategy => 'sort', "
    "sort_order => 'name DESC', options => map('rewrite-all', 'true'))"
)
REWRITE_DELETES = (
    "CALL lake.system.rewrite_position_delete_files("
    "table => '{table}', options => map('rewrite-all', 'true'))"
)
EXPIRE = f"CALL lake.system.expire_snapshots(table => '{{table}}', older_than => {NOW}, retain_last => 1)"
MERGES = {"merge data files", "merge small files"}
IN_FILES = "SELECT name FROM lake.shop.orders ORDER BY _file, _pos"
ACTIONS: dict[str, tuple[str, ...]] = {
    "rewrite data files": (REWRITE_DATA,),
    "sort data files": (SORT_DATA,),
    "rewrite position deletes": (REWRITE_DELETES,),
    "rewrite manifests": ("CALL lake.system.rewrite_manifests(table => '{table}')",),
    "expire snapshots": (EXPIRE,),
    "rewrite and expire": (REWRITE_DATA, EXPIRE),
    "add a partition field": ("ALTER TABLE lake.{table} ADD PARTITION FIELD bucket(4, id)",),
    "add a partition field and rewrite": (
        "ALTER TABLE lake.{table} ADD PARTITION FIELD bucket(4, id)",
        REWRITE_DATA,
    ),
    "replace the partition spec": (
        "ALTER TABLE lake.{table} ADD PARTITION FIELD bucket(4, id)",
        REWRITE_DATA,
        "ALTER TABLE lake.{table} DROP PARTITION FIELD bucket(4, id)",
    ),
    "set a sort order": ("ALTER TABLE lake.{table} WRITE ORDERED BY name, id DESC",),
    "set a sort order and a distribution": (
        "ALTER TABLE lake.{table} ADD PARTITION FIELD bucket(2, id)",
        "ALTER TABLE lake.{table} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY name",
    ),
    "set properties": (
        "ALTER TABLE lake.{table} SET TBLPROPERTIES ('write.parquet.compression-codec' = 'gzip')",
        "ALTER TABLE lake.{table} SET TBLPROPERTIES ('commit.retry.num-retries' = '4')",
    ),
    "create a tag and a branch": (
        "ALTER TABLE lake.{table} CREATE OR REPLACE TAG audit",
        "ALTER TABLE lake.{table} CREATE OR REPLACE BRANCH trial",
    ),
}


def operate(spark: SparkSession, statements: Sequence[str]) -> None:
    """Run the statements on the mirror and on the changelog."""
    for namespace in NAMESPACES:
        for statement in statements:
            spark.sql(statement.format(table=f"{namespace}.orders")).collect()


def started(lake: LakeHarness, settings: Config, batches: list[list[Record]]) -> Scheduler:
    write(lake, batches)
    return lake.mirror(settings)


def config(lake: LakeHarness, **sections: Any) -> Config:
    return lake.config(maintenance={"enabled": False}, **sections)


def once(point: str, act: Callable[[], None]) -> failpoints.Hook:
    """Return a hook that calls `act` the first time that `point` is reached."""
    reached: list[str] = []

    def reach(at: str) -> None:
        if at == point and not reached:
            reached.append(at)
            act()

    return reach


@pytest.mark.fault(
    "A user compacts, sorts, expires, partitions or tags lake tables between batches",
    area="Other writers",
    on="Iceberg; events by hand",
    outcome="the mirror continues",
)
@pytest.mark.parametrize("driver_max_events", [0, 10_000])
@pytest.mark.parametrize("action", ACTIONS)
def test_mirror_stays_exact_when_an_operator_acts_between_its_batches(
    lake: LakeHarness, action: str, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(11, batches=6, keys=15)
    mirror = started(lake, config(lake), batches)
    for number, end in enumerate(ends(batches)):
        mirror.advance({ORDERS: {0: end}})
        if number in (2, 4):
            operate(mirror.context.spark, ACTIONS[action] if number == 2 else (REWRITE_DATA,))
    assert mirror.summary().paused == {}
    assert_exact(lake, batches)


@pytest.mark.fault(
    "The same between writing files and committing them",
    area="Other writers",
    on="Iceberg; events by hand",
    outcome="the batch is repeated",
)
@pytest.mark.parametrize("point", ["after-data-files", "before-commit"])
@pytest.mark.parametrize(
    "action",
    [
        "rewrite data files",
        "rewrite position deletes",
        "rewrite manifests",
        "expire snapshots",
        "rewrite and expire",
        "replace the partition spec",
        "set a sort order",
    ],
)
def test_mirror_stays_exact_when_an_operator_acts_in_the_middle_of_a_batch(
    lake: LakeHarness, action: str, point: str
) -> None:
    # Spark's executors search the rows, in the files of the state with which the batch began.
    lake.driver_max_events = 0
    batches = changes(12, batches=5, keys=15)
    mirror = started(lake, config(lake), batches)
    mirror.advance({ORDERS: {0: ends(batches)[2]}})
    spark, acted = mirror.context.spark, list[str]()

    def act() -> None:
        acted.append(action)
        operate(spark, ACTIONS[action])

    with failpoints.on_reach(once(point, act)):
        mirror.advance({ORDERS: {0: ends(batches)[3]}})
    assert acted
    assert mirror.summary().paused == {}
    # A batch whose files were deleted is tried again.
    lake.catch_up(config(lake))
    assert_exact(lake, batches)


def test_old_orphan_files_are_removed_and_those_of_a_running_batch_are_not(lake: LakeHarness) -> None:
    batches = changes(15, batches=3)
    mirror = started(lake, config(lake), batches)
    mirror.advance({ORDERS: {0: ends(batches)[1]}})
    orphan = Path(table(lake).location().removeprefix("file:")) / "data" / "orphan.parquet"
    orphan.write_bytes(b"no snapshot has this file")
    os.utime(orphan, (time.time() - 4 * 86_400,) * 2)
    # With the procedure's own default, three days.
    remove = "CALL lake.system.remove_orphan_files(table => '{table}')"

    def act() -> None:
        operate(mirror.context.spark, (remove,))

    with failpoints.on_reach(once("before-commit", act)):
        mirror.advance({ORDERS: {0: ends(batches)[2]}})
    assert not orphan.exists()
    assert mirror.summary().paused == {}
    assert_exact(lake, batches)


@pytest.mark.long
def test_mirror_maintains_tables_whose_layout_an_operator_changed(lake: LakeHarness) -> None:
    batches = changes(16, batches=12, keys=15)
    mirror = started(lake, lake.config(maintenance={"merge_files": 3, "max_lag": "100000 days"}), batches)
    for number, end in enumerate(ends(batches)):
        mirror.advance({ORDERS: {0: end}})
        if number == 3:
            operate(mirror.context.spark, ("ALTER TABLE lake.{table} ADD PARTITION FIELD bucket(2, id)",))
        if number == 6:
            operate(mirror.context.spark, ACTIONS["set a sort order"])
        if number == 8:
            operate(mirror.context.spark, ("ALTER TABLE lake.{table} DROP PARTITION FIELD bucket(2, id)",))
    assert mirror.summary().paused == {}
    assert total(table(lake), "data-files") < 12
    assert_exact(lake, batches)


@pytest.mark.fault(
    "A user removes the marker of a table",
    area="Other writers",
    on="Iceberg; events by hand",
    outcome="the mirror ends with an error",
)
def test_mirror_stops_when_its_marker_was_removed(lake: LakeHarness) -> None:
    batches = changes(18, batches=2)
    mirror = started(lake, config(lake), batches)
    mirror.advance({ORDERS: {0: ends(batches)[0]}})
    operate(mirror.context.spark, ("ALTER TABLE lake.{table} UNSET TBLPROPERTIES ('replicator.marker')",))
    with pytest.raises(FencedError, match="it carries no marker"):
        mirror.advance({ORDERS: {0: ends(batches)[1]}})


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_new_files_are_sorted_by_the_order_that_an_operator_set(
    lake: LakeHarness, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    lake.write([DEFINITION, created(1), *(created(number, f"n{number * 7 % 10}") for number in range(2, 9))])
    mirror = lake.mirror(config(lake))
    mirror.advance({ORDERS: {0: 1}})
    operate(mirror.context.spark, ACTIONS["set a sort order"])
    mirror.advance({ORDERS: {0: 8}})
    names = [row.name for row in mirror.context.spark.sql(IN_FILES).collect() if row.name != "new"]
    assert len(names) == 7
    assert names == sorted(names)


def test_properties_of_operators_stay_and_those_of_the_configuration_return(lake: LakeHarness) -> None:
    settings = config(
        lake, table=[{"name": "shop.orders", "properties": {"write.parquet.row-group-limit": "7"}}]
    )
    lake.write([DEFINITION, created(1), created(2)])
    mirror = lake.mirror(settings)
    mirror.advance({ORDERS: {0: 1}})
    by_hand = "SET TBLPROPERTIES ('write.parquet.row-group-limit' = '9', 'team' = 'me')"
    operate(mirror.context.spark, (f"ALTER TABLE lake.{{table}} {by_hand}",))
    mirror.advance({ORDERS: {0: 2}})
    found = table(lake).properties
    assert (found["write.parquet.row-group-limit"], found["team"]) == ("7", "me")


FORMAT_3 = "ALTER TABLE lake.{table} SET TBLPROPERTIES ('format-version' = '3')"


@pytest.mark.parametrize(
    ("strategy", "driver_max_events"),
    [("split", 0), ("split", 10_000), ("merge", 10_000), ("copy-on-write", 10_000), ("equality", 10_000)],
)
@pytest.mark.long
def test_mirror_continues_after_an_upgrade_to_format_version_3(
    lake: LakeHarness, driver_max_events: int, strategy: str
) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(14, batches=8, keys=15)
    maintenance = {"merge_files": 2, "max_snapshots": 3, "max_lag": "100000 days"}
    mirror = started(lake, config(lake, apply={"strategy": strategy}), batches)
    mirror.advance({ORDERS: {0: ends(batches)[2]}})
    operate(mirror.context.spark, (FORMAT_3,))
    for end in ends(batches)[3:5]:
        mirror.advance({ORDERS: {0: end}})
    operate(mirror.context.spark, (REWRITE_DELETES,))
    again = lake.mirror(lake.config(apply={"strategy": strategy}, maintenance=maintenance))
    for end in ends(batches)[5:7]:
        again.advance({ORDERS: {0: end}})
    operate(again.context.spark, (REWRITE_DATA,))
    again.advance({ORDERS: {0: ends(batches)[7]}})
    assert mirror.summary().paused == again.summary().paused == {}
    for namespace in NAMESPACES:
        assert table(lake, namespace).metadata.format_version == 3
    assert MERGES & {step for found in read_status(config(lake)).maintenance for step in found.steps}
    assert_same(lake, batches)


def assert_same(lake: LakeHarness, batches: list[list[Record]]) -> None:
    """Assert that all rows are those of the source; with equality deletes, their number is not known."""
    if has_equality_deletes(table(lake)):
        assert {row["id"]: row["name"] for row in lake.rows("orders")} == state_after(batches)
    else:
        assert_exact(lake, batches)
