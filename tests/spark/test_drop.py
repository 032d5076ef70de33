"""`replicator drop` of tables that a mirror wrote, and a mirror that is started again after it."""

from pathlib import Path

from replicator.errors import SchemaError
from replicator.lake.properties import PAUSED_KEY, PURGING_KEY
from replicator.model.table import TableId
from replicator.operations.drop import drop, plan_drop
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, created


def test_mirror_creates_a_dropped_table_again_from_the_beginning_of_the_log(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *(created(number) for number in range(5))])
    config = lake.config()
    mirror = lake.catch_up(config)
    mirror.tables.pause(TableId("shop", "orders"), SchemaError("a reason"))
    with lake.catalog() as catalog:
        old = catalog.load_table(("shop", "orders")).metadata
    report = drop(config, plan_drop(config, "shop.orders", purge=True))
    assert report.dropped == ("shop_changes.orders", "shop.orders")
    assert not Path(old.location.removeprefix("file:")).exists()
    notes = mirror.context.lake.namespace_properties("shop_ops")
    assert not [key for key in notes if key.startswith((PAUSED_KEY, PURGING_KEY))]

    lake.write([created(5)])
    lake.catch_up(config)
    assert sorted(row["id"] for row in lake.rows("orders")) == [0, 1, 2, 3, 4, 5]
    assert sorted(row["id"] for row in lake.rows("orders", "shop_changes")) == [0, 1, 2, 3, 4, 5]
    with lake.catalog() as catalog:
        assert catalog.load_table(("shop", "orders")).metadata.table_uuid != old.table_uuid
