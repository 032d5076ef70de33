"""Conditions with literals find the rows of all values that MySQL has."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from replicator.jvm.spark import local_frame
from replicator.pipelines.literals import MOST, is_near

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
        condition = is_near("c", pa.array([value], kind))
        assert condition is not None
        assert [row.n for row in rows.where(condition).select("n").collect()] == [number]
    condition = is_near("c", column)
    assert condition is not None
    assert rows.where(condition).count() == len(column)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.date32()], ids=["long", "string", "date"])
@pytest.mark.parametrize("null", [True, False])
def test_of_many_values_a_condition_has_the_range(spark: SparkSession, kind: Any, null: bool) -> None:
    def column(values: Iterable[int | None]) -> Any:
        return pa.array(values, pa.int32()).cast(kind)

    rows = local_frame(
        spark,
        pa.table({"n": range(5), "c": column([10_000, 10_001 + MOST // 2, 10_000 + MOST, 99_999, None])}),
    )
    condition = is_near("c", column([*range(10_000, 10_001 + MOST), *([None] if null else [])]))
    assert condition is not None
    assert [row.n for row in rows.where(condition).select("n").collect()] == [0, 1, 2, *([4] if null else [])]


@pytest.mark.parametrize(
    "values",
    [pa.array([0.0]), pa.array([0], pa.timestamp("us")), pa.array([b"a"])],
    ids=["double", "timestamp", "bytes"],
)
def test_no_condition_is_made_of_others(spark: SparkSession, values: Any) -> None:
    assert is_near("c", values) is None
