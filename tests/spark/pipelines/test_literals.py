"""Conditions with literals find the rows of all values that MySQL has."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from replicator.jvm.spark import local_frame
from replicator.pipelines.literals import MOST, is_among

DAYS = (-719_528, -719_162, -354_286, -354_285, -141_428, -1, 0, 20_000, 2_932_896)
"""Among them the first days of the years 0, 1 and 1000, and the last one of 9999."""


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (DAYS, pa.date32()),
        ((-(2**63), 0, 2**63 - 1), pa.int64()),
        ((Decimal(0), Decimal(2**64 - 1)), pa.decimal128(20, 0)),
        (("", " ", "a", "A", "${spark.app.name}", "it's", 'a"b\\', "🦊", "x" * 300), pa.string()),
        ((True, False), pa.bool_()),
    ],
    ids=["date", "long", "decimal", "string", "boolean"],
)
def test_each_value_is_found_by_its_literal(spark: SparkSession, values: tuple[Any, ...], kind: Any) -> None:
    column = pa.array([*values, None], pa.int32() if pa.types.is_date(kind) else kind).cast(kind)
    rows = local_frame(spark, pa.table({"n": range(len(column)), "c": column}))
    for number, value in enumerate(column):
        condition = is_among("c", pa.array([value], kind))
        assert condition is not None
        assert [row.n for row in rows.where(condition).select("n").collect()] == [number]
    condition = is_among("c", column)
    assert condition is not None
    assert rows.where(condition).count() == len(column)


@pytest.mark.parametrize(
    "values",
    [pa.array([0.0]), pa.array([0], pa.timestamp("us")), pa.array([b"a"]), pa.array(range(MOST + 1))],
    ids=["double", "timestamp", "bytes", "too many"],
)
def test_no_condition_is_made_of_others(spark: SparkSession, values: Any) -> None:
    assert is_among("c", values) is None
