"""Mirrors of partitioned tables in small batches: their files, and where the process knows the rows to be."""

from typing import Any

import pytest

from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import assert_exact, total
from tests.support.order_changes import table as orders
from tests.support.orders_table import DEFINITION, ORDERS, event


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
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])
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
