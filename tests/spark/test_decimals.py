"""Decimals in every encoding of connectors, through complete batches."""

from typing import Any

import pytest

from tests.oracle.events import (
    Place,
    schema_change_event,
)
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS, PRICED, priced


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize(
    ("prices", "wanted"),
    [
        # 5.00 in base64, and base64 text that is also a number.
        (["AfQ=", "1234", None, "AfQ="], ["5.00", "-26588.24", None, "5.00"]),
        ([None, None, "AfQ=", "1234"], [None, None, "5.00", "-26588.24"]),
        ([None, None, 12.5, None], [None, None, "12.50", None]),
        # The connector was reconfigured in between.
        ([1.5, None, "AfQ=", 2.5], ["1.50", None, "5.00", "2.50"]),
        (["AfQ=", "AfQ=", 2.5, "1234"], ["5.00", "5.00", "2.50", "-26588.24"]),
    ],
)
def test_decimals_are_read_in_every_encoding_of_the_connector(
    lake: LakeHarness, with_schema: bool, prices: list[Any], wanted: list[str | None]
) -> None:
    definition = schema_change_event(Place(1, 4), "orders", PRICED, ["id"], kind="CREATE")
    lake.write([Record("shop", 0, None, definition)])
    lake.write([priced(i, price, with_schema=with_schema) for i, price in enumerate(prices)])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 4}})
    summary = mirror.summary()
    assert (summary.paused, summary.quarantined) == ({}, 0)
    rows = sorted(lake.rows("orders"), key=lambda r: r["id"])
    assert [None if r["price"] is None else str(r["price"]) for r in rows] == wanted


def test_decimals_are_read_when_they_change_from_numbers_to_text(lake: LakeHarness) -> None:
    """The later events are not valid in the encoding that was learned, so they are inspected again."""
    definition = schema_change_event(Place(1, 4), "orders", PRICED, ["id"], kind="CREATE")
    lake.write([Record("shop", 0, None, definition)])
    prices = [1.5, 2, "12.30", None, "-7", 3.25]
    lake.write([priced(i, price, with_schema=False) for i, price in enumerate(prices)])
    mirror = lake.mirror()
    for end in (2, 5, 6):
        mirror.advance({ORDERS: {0: end}})
    assert (mirror.summary().paused, mirror.summary().quarantined) == ({}, 0)
    rows = sorted(lake.rows("orders"), key=lambda r: r["id"])
    shown = [None if r["price"] is None else str(r["price"]) for r in rows]
    assert shown == ["1.50", "2.00", "12.30", None, "-7.00", "3.25"]
