"""Which mirrors can be compared at a position, and why others cannot."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY, TableId
from replicator.schema.evolution.changes import PENDING_FILLS_KEY
from replicator.verify.lake_position import LakePosition, lake_tables
from tests.support.config import minimal_config

CONFIG = minimal_config(
    source={"url": "mysql://u@localhost:1/shop", "tables": ["shop.*"]},
    log={
        "kind": "kafka",
        "bootstrap_servers": "localhost:1",
        "topic_prefix": "p",
        "connect_url": "http://localhost:1",
    },
)
ORDERS, OTHERS = TableId("shop", "orders"), TableId("shop", "others")


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("shop")
    made.create_namespace("shop_changes")
    return made


def make(catalog: SqlCatalog, name: str, offset: int, **properties: str) -> None:
    """Create an empty mirror that has the events before `offset`, and its changelog."""
    marker = CommitMarker("shop", 1, 1, {f"p.shop.{name}": {0: PartitionProgress(offset)}})
    for namespace in ("shop", "shop_changes"):
        catalog.create_table(
            (namespace, name),
            Schema(NestedField(1, "id", LongType(), False)),
            properties={SOURCE_KEY: f"shop.{name}", MARKER_KEY: marker.to_json(), **properties},
        )


def settled(
    catalog: SqlCatalog, ends: dict[TableId, dict[int, int]]
) -> tuple[set[TableId], dict[TableId, str]]:
    waits: list[str] = []
    done, late = LakePosition(CONFIG, 0, waits.append).settled(catalog, ends)
    return set(done), late


@pytest.mark.parametrize(
    ("ends", "properties", "reason"),
    [
        ({0: 8}, {}, "lacks events"),
        ({0: 7, 1: 1}, {}, "lacks events"),
        ({0: 7}, {PENDING_FILLS_KEY: "{}"}, "another schema"),
    ],
)
def test_a_mirror_that_is_not_there_in_time_is_named(
    catalog: SqlCatalog, ends: dict[int, int], properties: dict[str, str], reason: str
) -> None:
    make(catalog, "orders", 7, **properties)
    done, late = settled(catalog, {ORDERS: ends})
    assert not done
    assert reason in late[ORDERS]


def test_a_mirror_that_arrives_later_is_awaited(catalog: SqlCatalog) -> None:
    make(catalog, "orders", 6)
    newer = CommitMarker("shop", 2, 2, {"p.shop.orders": {0: PartitionProgress(7)}})

    def advance(_: str) -> None:
        table = catalog.load_table(("shop", "orders"))
        with table.transaction() as transaction:
            transaction.set_properties({MARKER_KEY: newer.to_json()})

    done, late = LakePosition(CONFIG, 60, advance).settled(catalog, {ORDERS: {0: 7}})
    assert (set(done), late) == ({ORDERS}, {})
    assert done[ORDERS].offsets == {0: 7}


def test_a_mirror_under_another_name_than_its_source_is_found(catalog: SqlCatalog) -> None:
    make(catalog, "orders", 7)
    for namespace in ("shop", "shop_changes"):
        catalog.rename_table((namespace, "orders"), (namespace, "orders_old"))
    make(catalog, "others", 3)
    # A table of this name has another source.
    catalog.load_table("shop.others").transaction().set_properties(
        {SOURCE_KEY: "shop.x"}
    ).commit_transaction()
    found = lake_tables(catalog, CONFIG, [ORDERS, OTHERS])
    assert {str(t): known.mirror.name()[-1] for t, known in found.items()} == {"shop.orders": "orders_old"}
