"""Rows of a result's changelog: those that the driver makes are those that Spark makes."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from replicator.jvm.spark import local_frame
from replicator.model.position import SourcePosition
from replicator.pipelines.output.changelog import entry_of, logged, logged_rows
from replicator.pipelines.output.table import Reached
from replicator.pipelines.query.names import WEIGHT

CHANGES = pa.table(
    {
        "id": pa.array([1, 1, 2, None, None, 3, 4], pa.int64()),
        "part": pa.array(["a", "a", "b", None, "x", "", "ä"]),
        "_change": pa.array([Decimal("1.50"), None, Decimal("0.00"), None, None, Decimal("-2.00"), None]),
        WEIGHT: pa.array([-1, 1, 1, -1, 1, -2, 3], pa.int64()),
    }
)


@pytest.mark.parametrize("changes", [CHANGES, CHANGES.slice(0, 0)], ids=["some", "none"])
@pytest.mark.parametrize("key", [("id", "part"), ("part",), ()])
@pytest.mark.parametrize(
    "reached", [Reached(), Reached(SourcePosition("mysql-bin.000003", 4567), 1_799_999_999_123)]
)
def test_the_driver_makes_the_rows_of_a_changelog_that_spark_makes(
    spark: SparkSession, key: tuple[str, ...], reached: Reached, changes: pa.Table
) -> None:
    entry = entry_of(reached, 12, 7)
    expected = logged(local_frame(spark, changes), key, entry).toArrow()
    found = logged_rows(changes, key, entry)
    assert found is not None
    assert found.schema.names == expected.schema.names
    made, wanted = (list(rows.schema.field("__change").type) for rows in (found, expected))
    assert [(f.name, f.type) for f in made] == [(f.name, f.type) for f in wanted]
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_spark_compares_keys_of_lists() -> None:
    changes = pa.table({"id": pa.array([[1]], pa.list_(pa.int64())), WEIGHT: pa.array([1], pa.int64())})
    assert logged_rows(changes, ("id",), entry_of(Reached(), 0, 0)) is None
