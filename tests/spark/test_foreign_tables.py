"""Tables that are not the mirror's: one that a user made, and one of another mirror, are never written or altered."""

from collections.abc import Sequence

import pytest
from pyiceberg.table import Table

from replicator.config import Config
from replicator.operations.status.read import read_status
from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, created
from tests.support.scenario import ID, other_table, row_of

USERS = "shop.shop.users"
EVERYTHING = {ORDERS: {0: 2}, USERS: {0: 1}}
COLUMNS: Sequence[ColumnSpec] = (ID, ColumnSpec("a", "int"))


def metadata(lake: LakeHarness, name: str, namespace: str = "shop") -> str:
    """Return where the metadata of a table is: it differs after every commit."""
    with lake.catalog() as catalog:
        found: Table = catalog.load_table((namespace, name))
        return found.metadata_location


def write_events(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1), created(2), other_table("users", "CREATE", 400, columns=COLUMNS)])
    lake.write([row_of("users", 500, id=1, a=1)])


@pytest.mark.fault(
    "A user's table has the name of a lake table",
    area="Other writers",
    on="Iceberg; events by hand",
    outcome="it is not written; the source table pauses",
)
@pytest.mark.parametrize("namespace", ["shop", "shop_changes"])
@pytest.mark.parametrize("columns", ["(id bigint, name string)", "(other int)"])
def test_table_of_a_user_is_not_touched_and_only_its_source_table_pauses(
    lake: LakeHarness, namespace: str, columns: str
) -> None:
    write_events(lake)
    mirror = lake.mirror()
    mirror.context.spark.sql(f"CREATE TABLE lake.{namespace}.orders {columns}").collect()
    before = metadata(lake, "orders", namespace)
    for _ in range(2):
        process = lake.mirror()
        process.advance(EVERYTHING)
        (reason,) = process.summary().paused.values()
        assert reason == f"{namespace}.orders exists, and no mirror made it; it was not changed"
    assert metadata(lake, "orders", namespace) == before
    assert lake.rows("users") == [{"id": 1, "a": 1}]
    assert read_status(lake.config()).paused == {"shop.orders": reason}


def other_mirror(lake: LakeHarness) -> Config:
    return lake.config(mirror={"name": "other", "state_dir": "other-state"})


@pytest.mark.fault(
    "Another mirror's table has the name of a lake table",
    area="Other writers",
    on="Iceberg; events by hand",
    outcome="it is not written; the source table pauses",
)
@pytest.mark.parametrize("commits", [True, False], ids=["with-rows", "before-its-first-commit"])
def test_tables_of_another_mirror_are_not_touched(lake: LakeHarness, commits: bool) -> None:
    write_events(lake)
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}})
    if not commits:
        keys = ["marker", "position", "gtid", "watermark-ms", "snapshot-id", "sequence-number"]
        names = ", ".join(f"'replicator.{key}'" for key in keys)
        for namespace in ("shop", "shop_changes"):
            mirror.context.spark.sql(
                f"ALTER TABLE lake.{namespace}.orders UNSET TBLPROPERTIES IF EXISTS ({names})"
            ).collect()
    before = [metadata(lake, "orders", namespace) for namespace in ("shop", "shop_changes")]
    other = lake.mirror(other_mirror(lake))
    other.advance(EVERYTHING)
    (reason,) = other.summary().paused.values()
    assert reason == "shop.orders belongs to the mirror 'shop', and not to 'other'; it was not changed"
    assert [metadata(lake, "orders", namespace) for namespace in ("shop", "shop_changes")] == before


def test_table_that_another_mirror_takes_meanwhile_is_not_touched(lake: LakeHarness) -> None:
    """The first mirror has read its marker already; both know of no conflict."""
    lake.write([DEFINITION, created(1), created(2)])
    first, second = lake.mirror(), lake.mirror(other_mirror(lake))
    second.advance({ORDERS: {0: 2}})
    before = metadata(lake, "orders")
    first.advance({ORDERS: {0: 2}})
    (reason,) = first.summary().paused.values()
    assert "belongs to the mirror 'other'" in reason
    assert metadata(lake, "orders") == before


def test_table_of_a_user_with_the_new_name_of_a_renamed_table_is_not_touched(lake: LakeHarness) -> None:
    write_events(lake)
    mirror = lake.mirror()
    mirror.advance(EVERYTHING)
    mirror.context.spark.sql("CREATE TABLE lake.shop.people (id bigint, a int)").collect()
    before = metadata(lake, "people")
    lake.write(
        [other_table("people", "ALTER", 600, old="users", columns=COLUMNS), row_of("people", 700, id=2, a=2)]
    )
    for _ in range(2):
        process = lake.mirror()
        process.advance(process.context.log.offsets()[1])
        assert any("shop.people exists" in reason for reason in process.summary().paused.values())
    assert metadata(lake, "people") == before
    assert lake.rows("users") == [{"id": 1, "a": 1}]


def test_quarantine_table_of_a_user_is_not_touched(lake: LakeHarness) -> None:
    bad = created(1)
    lake.write([DEFINITION, bad.__class__(bad.topic, 0, bad.key, b"{"), created(2)])
    mirror = lake.mirror()
    mirror.context.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop_ops").collect()
    mirror.context.spark.sql("CREATE TABLE lake.shop_ops.quarantine (whatever int)").collect()
    before = metadata(lake, "quarantine", "shop_ops")
    again = lake.mirror()
    again.advance({ORDERS: {0: 2}})
    (reason,) = again.summary().paused.values()
    assert reason.startswith("shop_ops.quarantine exists")
    assert metadata(lake, "quarantine", "shop_ops") == before
