"""Lake tables that others roll back or replace: the marker goes back to what the rows show, or the table pauses."""

from collections.abc import Callable

import pytest

from replicator.config import Config
from replicator.errors import MirrorRolledBack
from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.runner.scheduler import Scheduler
from tests.oracle.model import Record, SourceTable
from tests.spark.test_quarantine import CREATED, NARROW, mirrored, row
from tests.spark.test_quarantine import event as number_event
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import assert_exact, changes, table
from tests.support.orders_table import DEFINITION, ORDERS, created, event, snapshot_read
from tests.support.recreated_topic import recreate_topic, with_topic_id
from tests.support.reread_lake import LakeReread

ROLL_BACK = "CALL lake.system.rollback_to_snapshot('{table}', {snapshot})"
SET_CURRENT = "CALL lake.system.set_current_snapshot('{table}', {snapshot})"
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
}
NAMESPACES = {"mirror": ("shop",), "changelog": ("shop_changes",), "both": ("shop", "shop_changes")}


def small(lake: LakeHarness) -> Config:
    return lake.config(maintenance={"enabled": False})


def ends(batches: list[list[Record]]) -> list[int]:
    found, end = [], 0
    for batch in batches:
        end += len(batch)
        found.append(end)
    return found


def run(mirror: Scheduler, statements: tuple[str, ...], namespace: str, snapshot: int | None) -> None:
    for statement in statements:
        mirror.context.spark.sql(statement.format(table=f"{namespace}.orders", snapshot=snapshot)).collect()


@pytest.mark.fault(
    "A mirror, a changelog or both are rolled back, also with a compaction and an expiry after it",
    area="Lake",
    on="Iceberg; events by hand",
    outcome="the marker goes back with the rows, and the changes are applied again",
)
@pytest.mark.parametrize("new_process", [True, False], ids=["new process", "same process"])
@pytest.mark.parametrize("tables", NAMESPACES)
@pytest.mark.parametrize("action", ACTIONS)
def test_rolled_back_tables_get_their_changes_again(
    lake: LakeHarness, action: str, tables: str, new_process: bool
) -> None:
    batches = changes(13, batches=6)
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
    mirror = lake.mirror(small(lake))
    stops = ends(batches)
    for end in stops[:2]:
        mirror.advance({ORDERS: {0: end}})
    snapshots = {n: table(lake, n).metadata.current_snapshot_id for n in ("shop", "shop_changes")}
    for end in stops[2:4]:
        mirror.advance({ORDERS: {0: end}})
    for namespace in NAMESPACES[tables]:
        run(mirror, ACTIONS[action], namespace, snapshots[namespace])
    following = lake.mirror(small(lake)) if new_process else mirror
    for end in (stops[4], stops[5], stops[5]):
        following.advance({ORDERS: {0: end}})
    assert following.summary().paused == {}
    assert_exact(lake, batches)


def test_table_that_gets_no_events_is_right_after_the_next_start(lake: LakeHarness) -> None:
    batches = changes(14, batches=3)
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
    mirror = lake.mirror(small(lake))
    mirror.advance({ORDERS: {0: ends(batches)[0]}})
    snapshot = table(lake).metadata.current_snapshot_id
    mirror.advance({ORDERS: {0: ends(batches)[2]}})
    run(mirror, (ROLL_BACK,), "shop", snapshot)
    assert lake.catch_up(small(lake)).summary().paused == {}
    assert_exact(lake, batches)


def test_rollback_that_is_undone_after_the_table_went_back_loses_nothing(lake: LakeHarness) -> None:
    batches = changes(16, batches=5)
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
    mirror = lake.mirror(small(lake))
    stops, snapshots = ends(batches), []
    for end in stops[:3]:
        mirror.advance({ORDERS: {0: end}})
        snapshots.append(table(lake).metadata.current_snapshot_id)
    run(mirror, (ROLL_BACK,), "shop", snapshots[0])
    mirror.advance({ORDERS: {0: stops[3]}})
    # Without a further event, no batch would be made for the changes that it lacks again.
    assert mirror.tables.take_resumed()
    run(mirror, (SET_CURRENT,), "shop", snapshots[2])
    for end in (stops[3], stops[4], stops[4]):
        mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}
    assert_exact(lake, batches)


@pytest.mark.parametrize("to", ["before the re-read", "after the re-read"])
def test_mirror_without_changelog_keeps_what_a_reread_has_corrected(lake: LakeHarness, to: str) -> None:
    """The events show another number than the source has, because a change of it was not logged."""
    settings = lake.config(maintenance={"enabled": False}, apply={"changelog": False})
    numbers = [(101, 10, 20), (102, 20, 30), (103, 7, 8), (104, 8, 9)]
    updates = [number_event("u", pos, before=row(1, old), after=row(1, new)) for pos, old, new in numbers]
    lake.write([CREATED, number_event("c", 100, after=row(1, 10)), *updates[:2]])
    mirror = lake.mirror(settings)
    mirror.advance({ORDERS: {0: 2}})
    before = table(lake).metadata.current_snapshot_id
    mirror.advance({ORDERS: {0: 3}})
    source = SourceTable("orders", ("id",), list(NARROW), {(1,): row(1, 7)})
    began = ("mysql-bin.000001", 102, 1_700_000_000_102)
    reread = LakeReread(lake.mirror(settings), source, new_request(TableId("shop", "orders"), "heal"), began)
    reread.read([source])
    reread.complete()
    assert reread.publish() == 1
    after = table(lake).metadata.current_snapshot_id
    lake.write([updates[2]])
    mirror = lake.catch_up(settings)
    run(mirror, (ROLL_BACK,), "shop", before if to == "before the re-read" else after)
    lake.write([updates[3]])
    paused = lake.catch_up(settings).summary().paused
    if to == "before the re-read":
        assert [reason.split(":")[0] for reason in paused.values()] == [
            "shop.orders was rolled back or replaced"
        ]
    else:
        assert paused == {}
        assert mirrored(lake) == {1: 9}


def test_mirror_without_changelog_does_not_go_back_to_an_earlier_topic(lake: LakeHarness) -> None:
    """The offset of its marker is one of the new topic too, and events before it would be missing."""
    settings, topic_id = lake.config(apply={"changelog": False}), with_topic_id(lake)
    lake.write([DEFINITION, *(created(n) for n in (1, 2, 3))])
    mirror = lake.mirror(settings)
    mirror.advance({ORDERS: {0: 1}})
    snapshot = table(lake).metadata.current_snapshot_id
    mirror.advance({ORDERS: {0: 3}})
    recreate_topic(lake, topic_id)
    reads = [snapshot_read(4, 200, "first"), snapshot_read(5, 200), snapshot_read(6, 200, "last")]
    lake.write([DEFINITION, *reads, event("c", 300, after={"id": 7, "name": "new"})])
    mirror = lake.mirror(settings)
    mirror.advance({ORDERS: {0: 3}})
    run(mirror, (ROLL_BACK,), "shop", snapshot)
    for _ in range(2):
        mirror.advance({ORDERS: {0: 4}})
    (reason,) = mirror.summary().paused.values()
    assert reason.startswith("shop.orders was rolled back or replaced")


REPLACED: dict[str, Callable[[str], str]] = {
    "empty": lambda name: f"CREATE OR REPLACE TABLE lake.{name} (id bigint NOT NULL, name string)",
    "with rows": lambda name: (
        f"CREATE OR REPLACE TABLE lake.{name} AS SELECT cast(1 as bigint) id, 'mine' name"
    ),
}


@pytest.mark.fault(
    "A lake table is replaced (`CREATE OR REPLACE TABLE`)",
    area="Lake",
    on="Iceberg; events by hand",
    outcome="the table pauses; a mirror can be healed",
)
@pytest.mark.parametrize("namespace", ["shop", "shop_changes"])
@pytest.mark.parametrize("kind", REPLACED)
def test_replaced_table_pauses_and_mirrors_can_be_healed(
    lake: LakeHarness, kind: str, namespace: str
) -> None:
    batches = changes(15, batches=3)
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
    mirror = lake.mirror(small(lake))
    causes: list[Exception] = []
    mirror.tables.on_pause = lambda _table, cause: causes.append(cause)
    mirror.advance({ORDERS: {0: ends(batches)[1]}})
    mirror.context.spark.sql(REPLACED[kind](f"{namespace}.orders")).collect()
    mirror.advance({ORDERS: {0: ends(batches)[2]}})
    (reason,) = mirror.summary().paused.values()
    assert reason.startswith(f"{namespace}.orders was rolled back or replaced")
    assert isinstance(causes[-1], MirrorRolledBack) is (namespace == "shop")
    (reason,) = lake.catch_up(small(lake)).summary().paused.values()
    assert reason.startswith(f"{namespace}.orders was rolled back or replaced")
