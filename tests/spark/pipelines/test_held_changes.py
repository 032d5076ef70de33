"""The driver tells which held changes are pending, and after a boundary, as Spark does."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from replicator.jvm.spark import local_frame
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.pending import held_pending, is_pending
from replicator.pipelines.inputs.positions import held_after, is_after
from replicator.pipelines.inputs.progress import InputProgress

KNOWN, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "0a11fa47-71ca-11e1-9e33-c80aa9429562"


def changes(r: random.Random) -> pa.Table:
    origins = (KNOWN.upper(), KNOWN, OTHER, f"{KNOWN}:tag")
    rows = [
        {
            "op": r.choice("cudrh"),
            "file": r.choice([None, "mysql-bin.000009", "mysql-bin.000010", "mysql-bin.1000000"]),
            "pos": r.choice([None, 4, 99, 100, 101]),
            "gtid": r.choice([None, *(f"{o}:{r.randint(1, 12)}" for o in origins)]),
            "partition": r.randint(0, 2),
            "offset": r.randint(0, 9),
            "commit": r.randint(1, 9),
        }
        for _ in range(2_000)
    ]
    types = {"pos": pa.int64(), "partition": pa.int32(), "offset": pa.int64(), "commit": pa.int64()}
    fields = {name: pa.array([row[name] for row in rows], types.get(name, pa.string())) for name in rows[0]}
    return pa.table({"change": pa.StructArray.from_arrays(list(fields.values()), list(fields))})


BOUNDARY = Boundary("mysql-bin.000010", 100)
PROGRESS = InputProgress("t", 5)


@pytest.mark.parametrize(
    "boundary",
    [
        Boundary(),
        BOUNDARY,
        replace(BOUNDARY, closed=True),
        replace(BOUNDARY, gtids=f"{KNOWN}:1-4:8:tag:3-5", closed=True),
        replace(BOUNDARY, gtids=""),
    ],
    ids=["end of the log", "position", "closed", "gtids", "no gtid"],
)
def test_changes_after_a_boundary(spark: SparkSession, boundary: Boundary) -> None:
    rows = changes(random.Random(1))
    after = F.coalesce(is_after(boundary, F.col("change")), F.lit(False))
    expected = local_frame(spark, rows).select(after.alias("after")).toArrow()["after"].to_pylist()
    assert held_after(boundary, rows["change"].combine_chunks()).tolist() == expected


@pytest.mark.parametrize(
    "progress",
    [
        PROGRESS,
        replace(PROGRESS, held={0: 3, 2: 7}, held_commit=4),
        replace(PROGRESS, held={0: 3}, held_commit=8),
    ],
    ids=["nothing held", "held", "held of a later commit"],
)
def test_pending_changes(spark: SparkSession, progress: InputProgress) -> None:
    rows = changes(random.Random(2))
    found = is_pending(F.col("change"), progress)
    expected = local_frame(spark, rows).select(found.alias("found")).toArrow()["found"].to_pylist()
    assert held_pending(rows["change"].combine_chunks(), progress).tolist() == expected
