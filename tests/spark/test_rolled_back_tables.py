"""Lake tables that others roll back or replace: the table pauses; a mirror is read again, or the rollback is undone."""

import pytest

from replicator.config import Config
from replicator.errors import MirrorRolledBack
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import assert_exact, changes, ends, table, write
from tests.support.orders_table import ORDERS

SET_CURRENT = "CALL lake.system.set_current_snapshot('{table}', {snapshot})"
ROLL_BACK = "CALL lake.system.rollback_to_snapshot('{table}', {snapshot})"
REWRITE = "CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
EXPIRE = (
    "CALL lake.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01 00:00:00', "
    "retain_last => 1)"
)
ACTIONS: dict[str, tuple[str, ...]] = {
    "rollback": (ROLL_BACK,),
    "set current": (SET_CURRENT,),
    "rollback and compaction": (ROLL_BACK, REWRITE),
    "rollback, compaction and expiry": (ROLL_BACK, REWRITE, EXPIRE),
    "replacement": ("CREATE OR REPLACE TABLE lake.{table} (id bigint NOT NULL, name string)",),
    "replacement with rows": (
        "CREATE OR REPLACE TABLE lake.{table} AS SELECT cast(1 as bigint) id, 'mine' name",
    ),
}


def small(lake: LakeHarness) -> Config:
    return lake.config(maintenance={"enabled": False})


@pytest.mark.fault(
    "A lake table is rolled back, also with a compaction and an expiry after it, or replaced",
    area="Lake",
    on="Iceberg; events by hand",
    outcome="the table pauses; a mirror is read again",
)
@pytest.mark.parametrize("namespace", ["shop", "shop_changes"])
@pytest.mark.parametrize("action", ACTIONS)
def test_table_that_was_rolled_back_or_replaced_pauses(
    lake: LakeHarness, action: str, namespace: str
) -> None:
    batches = changes(15, batches=3)
    write(lake, batches)
    mirror, stops = lake.mirror(small(lake)), ends(batches)
    causes: list[Exception] = []
    mirror.tables.on_pause(lambda _table, cause: causes.append(cause))
    mirror.advance({ORDERS: {0: stops[0]}})
    snapshot = table(lake, namespace).metadata.current_snapshot_id
    mirror.advance({ORDERS: {0: stops[1]}})
    for statement in ACTIONS[action]:
        mirror.context.spark.sql(statement.format(table=f"{namespace}.orders", snapshot=snapshot)).collect()
    mirror.advance({ORDERS: {0: stops[2]}})
    # Also without an event, and in another process.
    for paused in (mirror.summary().paused, lake.catch_up(small(lake)).summary().paused):
        (reason,) = paused.values()
        assert reason.startswith(f"{namespace}.orders was rolled back or replaced")
    assert isinstance(causes[-1], MirrorRolledBack) is (namespace == "shop")


def test_rollback_that_is_undone_loses_nothing(lake: LakeHarness) -> None:
    batches = changes(16, batches=5)
    write(lake, batches)
    mirror, snapshots = lake.mirror(small(lake)), []
    stops = ends(batches)
    for end in stops[:3]:
        mirror.advance({ORDERS: {0: end}})
        snapshots.append(table(lake).metadata.current_snapshot_id)
    for snapshot, paused in ((snapshots[0], True), (snapshots[2], False)):
        mirror.context.spark.sql(SET_CURRENT.format(table="shop.orders", snapshot=snapshot)).collect()
        assert bool(lake.catch_up(small(lake)).summary().paused) is paused
    assert_exact(lake, batches)
