"""Spark's Python workers."""

import gc
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from replicator.decode.records import run_in_workers


def test_workers_do_not_read_archives_of_spark_before_each_task(spark: SparkSession) -> None:
    def seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        del batches
        archives = [
            entry for entry in {*sys.path, *sys.path_importer_cache} if ".zip" in entry or ".jar" in entry
        ]
        yield pa.RecordBatch.from_pydict({"archive": pa.array(archives, pa.string())})

    found = run_in_workers(spark.range(1), seen, pa.schema([("archive", pa.string())])).collect()

    # The standard library may be in an archive.
    assert [row.archive for row in found if "python3" not in row.archive.rpartition("/")[2]] == []


def test_workers_do_not_collect_what_they_were_forked_with(spark: SparkSession) -> None:
    def seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        del batches
        yield pa.RecordBatch.from_pydict({"frozen": pa.array([gc.get_freeze_count()])})

    rows = run_in_workers(spark.range(1), seen, pa.schema([("frozen", pa.int64())])).collect()

    assert min(row.frozen for row in rows) > 10_000
