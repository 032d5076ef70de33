"""Build the events of a table `orders`."""

import json
from typing import Any

from replicator.sources.change_log import Offsets
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record, SourceTable
from tests.support.lake_harness import LakeHarness

ORDERS = "shop.shop.orders"
COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("name", "varchar"))
DEFINITION = Record(
    "shop", 0, None, schema_change_event(Place(1, 4), "orders", COLUMNS, ["id"], kind="CREATE")
)


def event(
    op: str,
    pos: int,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    partition: int = 0,
    tx_order: int | None = None,
) -> Record:
    """Return a change of the table `orders`; `tx_order` is its number if the connector numbers events."""
    row = before if op == "d" else after
    key = None if row is None else key_of(row, ["id"])
    value = change_event(op, Place(1, pos), "orders", before=before, after=after)
    if tx_order is not None:
        block = {"id": str(pos), "total_order": tx_order, "data_collection_order": tx_order}
        value = json.dumps({**json.loads(value), "transaction": block}).encode()
    return Record(ORDERS, partition, key, value)


def created(number: int, name: str = "new") -> Record:
    return event("c", 100 + number, after={"id": number, "name": name})


def half(ends: Offsets) -> dict[str, dict[int, int]]:
    return {t: {p: end // 2 for p, end in ps.items()} for t, ps in ends.items()}


def assert_equal(lake: LakeHarness, tables: list[SourceTable]) -> None:
    with lake.catalog() as catalog:
        for table in tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)


PRICED = (ColumnSpec("id", "bigint", False), ColumnSpec("price", "decimal"))


def priced(number: int, price: Any, *, with_schema: bool) -> Record:
    value = change_event("c", Place(1, 100 + number), "orders", after={"id": number, "price": price})
    key = key_of({"id": number}, ["id"])
    if with_schema:
        value = with_value_schema(value, PRICED, ORDERS)
        key = with_key_schema(key, PRICED, ["id"], ORDERS)
    return Record(ORDERS, 0, key, value)


def snapshot_read(
    number: int, pos: int, snapshot: str = "true", *, name: str = "read", partition: int = 0
) -> Record:
    """Return a row that a snapshot read."""
    row = {"id": number, "name": name}
    value = json.loads(change_event("r", Place(1, pos, server_id=0), "orders", after=row))
    value["source"]["snapshot"] = snapshot
    if snapshot == "incremental" or pos > 900:
        value["source"]["server_id"] = 1
    return Record(ORDERS, partition, key_of(row, ["id"]), json.dumps(value).encode())


def ids(lake: LakeHarness) -> list[int]:
    """Return the ids in the table."""
    return sorted(row["id"] for row in lake.rows("orders"))
