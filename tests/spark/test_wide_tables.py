"""A table of 300 columns."""

from typing import Any

import pytest

from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness

TOPIC = "shop.shop.wide"
KINDS = ("bigint", "varchar", "int", "decimal", "datetime")
COLUMNS = (ColumnSpec("id", "bigint", False), *(ColumnSpec(f"c{i:03d}", KINDS[i % 5]) for i in range(299)))


def row(number: int) -> dict[str, Any]:
    values = {
        "bigint": number << 40,
        "varchar": f"text {number}",
        "int": number,
        "decimal": 1.25,
        "datetime": number,
    }
    return {"id": number} | {c.name: values[c.kind] for c in COLUMNS[1:]}


def record(op: str, number: int, pos: int, *, with_schema: bool) -> Record:
    image = row(number)
    images: dict[str, Any] = {
        name: image for name in ("before", "after") if (op, name) not in (("c", "before"), ("d", "after"))
    }
    value = change_event(op, Place(1, pos), "wide", **images)
    key = key_of(image, ["id"])
    if with_schema:
        value = with_value_schema(value, COLUMNS, TOPIC)
        key = with_key_schema(key, COLUMNS, ["id"], TOPIC)
    return Record(TOPIC, 0, key, value)


@pytest.mark.long
def test_table_of_300_columns_is_mirrored_by_driver_and_spark(lake: LakeHarness) -> None:
    """Events with and without schemas, in a large batch on Spark and in a small one on the driver side."""
    definition = schema_change_event(Place(1, 4), "wide", COLUMNS, ["id"], kind="CREATE")
    lake.write([Record("shop", 0, None, definition)])
    lake.write([record("c", n, 100 + n, with_schema=False) for n in range(400)])
    lake.catch_up(lake.config(apply={"driver_max_events": 0}))
    lake.write([record("u", n, 1000 + n, with_schema=True) for n in range(100)])
    lake.write([record("d", n, 2000 + n, with_schema=True) for n in range(300, 400)])
    lake.catch_up(lake.config(apply={"strategy": "merge"}))
    found = lake.rows("wide")
    assert sorted(r["id"] for r in found) == list(range(300))
    assert all(len(r) == 300 for r in found)
    last = next(r for r in found if r["id"] == 299)
    assert (last["c000"], last["c001"], last["c297"]) == (299 << 40, "text 299", 299)
    assert len(lake.rows("wide", "shop_changes")) == 400 + 2 * 100 + 100
