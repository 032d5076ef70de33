"""Queries that the driver evaluates without a Spark job; `check_local_query` compares them in all tests of decoding."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from replicator.errors import LakeUnavailable
from replicator.jvm.local_query import PREFIX, LocalQuery, remove_leftovers

SCHEMA = StructType([StructField("id", LongType(), False), StructField("text", StringType())])


def rows(*texts: str | None) -> pa.Table:
    return pa.table({"id": pa.array(range(len(texts)), pa.int64()), "text": pa.array(texts, pa.string())})


def jobs(spark: SparkSession) -> int:
    context: Any = spark.sparkContext._jsc.sc()
    return int(context.dagScheduler().nextJobId())


def arrow_bytes(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    return int(jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory())


def lengths(frame: DataFrame) -> DataFrame:
    longer = frame.select("id", F.concat("text", F.lit("!")).alias("text"))
    return longer.select("id", "text", F.length("text").alias("n")).where("id IS NOT NULL")


def test_a_query_is_evaluated_often_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    query = LocalQuery.plan(spark, tmp_path, SCHEMA, lengths)
    assert query is not None
    before = jobs(spark)
    assert query.run(rows("a", None)).to_pylist() == [
        {"id": 0, "text": "a!", "n": 2},
        {"id": 1, "text": None, "n": None},
    ]
    assert query.run(rows()).num_rows == 0
    texts = [f"text {i}" for i in range(5_000)]
    assert query.run(rows(*texts)).column("text").to_pylist() == [f"{text}!" for text in texts]
    assert jobs(spark) == before
    assert query.schema.names == ["id", "text", "n"]


@pytest.mark.parametrize(
    "query",
    [
        lambda frame: frame.groupBy("text").count(),
        lambda frame: frame.where("text > 'a'"),
        lambda frame: frame.union(frame),
        lambda frame: frame,
    ],
)
def test_only_projections_are_evaluated_in_this_way(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    assert LocalQuery.plan(spark, tmp_path, SCHEMA, query) is None


def test_a_failed_expression_leaves_no_memory_and_no_file(spark: SparkSession, tmp_path: Path) -> None:
    failing = F.when(F.col("id") == 3, F.raise_error(F.lit("refused"))).otherwise(F.col("text"))
    query = LocalQuery.plan(spark, tmp_path, SCHEMA, lambda frame: frame.select(failing.alias("text")))
    assert query is not None
    before = arrow_bytes(spark)
    with pytest.raises(SparkRuntimeException, match="refused"):
        query.run(rows(*"abcde"))
    assert arrow_bytes(spark) == before
    assert not list(tmp_path.iterdir())
    assert query.run(rows(*"abc")).column("text").to_pylist() == ["a", "b", "c"]


def test_a_folder_that_cannot_be_written_to_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    query = LocalQuery.plan(spark, folder, SCHEMA, lengths)
    assert query is not None
    with pytest.raises(LakeUnavailable, match="rows cannot be passed to Java"):
        query.run(rows("a"))


def test_only_files_of_this_kind_are_removed_at_start(tmp_path: Path) -> None:
    for name in (f"{PREFIX}x", "lock"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
