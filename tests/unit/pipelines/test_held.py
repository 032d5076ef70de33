"""How many rows the driver holds depends on their size."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from replicator.pipelines.held import most_held, net_rows


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(0.0, 200_000_000), (30.0, 666_666), (2_000.0, 10_000), (1e6, 20), (1e9, 0)]
)
def test_driver_holds_fewer_rows_if_they_are_large(row_bytes: float, rows: int) -> None:
    assert most_held(row_bytes) == rows


def test_equal_rows_that_come_and_go_cancel_each_other() -> None:
    day = dt.date(2026, 1, 2)
    rows = pa.table(
        {
            "country": ["AT", "AT", "AT", "BE", "BE", None, None, "CH"],
            "price": pa.array([Decimal("1.50")] * 8, pa.decimal128(10, 2)),
            "day": [day] * 8,
            "w": pa.array([-1, 1, 1, 1, 1, -1, 1, -1], pa.int32()),
        }
    )

    net = net_rows(rows, "w")

    assert net.schema == rows.schema
    assert sorted((r["country"], r["w"]) for r in net.to_pylist()) == [
        ("AT", 1), ("BE", 1), ("BE", 1), ("CH", -1)
    ]  # fmt: skip


def test_rows_of_updates_of_other_columns_leave_nothing() -> None:
    rows = pa.table({"id": [1, 1], "w": pa.array([-1, 1], pa.int32())})

    assert net_rows(rows, "w").num_rows == 0


@pytest.mark.parametrize(
    "column",
    [pa.array([0.0, -0.0]), pa.array([[1], [1]]), pa.array([{"a": 1}, {"a": 1}])],
    ids=["numbers of which equal ones may differ", "lists", "structs"],
)
def test_rows_that_cannot_be_grouped_stay(column: pa.Array) -> None:
    rows = pa.table({"id": [1, 1], "value": column, "w": pa.array([-1, 1], pa.int32())})

    assert net_rows(rows, "w") == rows


def test_rows_without_columns_stay() -> None:
    rows = pa.table({"w": pa.array([1, 1, -1], pa.int32())})

    assert net_rows(rows, "w") == rows
