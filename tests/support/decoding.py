"""Build raw records, and decode them with `replicator.decode.json.events`."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructField, StructType

from replicator.decode.event_frame import Decoding, WriterSchema
from replicator.decode.json.events import decode
from replicator.jvm.local_query import LocalQuery
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import Column, TableSchema
from replicator.model.types import LONG

RANGES = [OffsetRange("shop.shop.t", 0, 0, 1000)]
ID = Column("id", LONG)


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(0, i, 1_700_000_000_000, b'{"id":1}', v) for i, v in enumerate(values)]
    return spark.createDataFrame(rows, "partition int, offset long, timestamp long, key binary, value binary")


def decoded(
    spark: SparkSession, schema: TableSchema, *values: bytes | None, event_key: tuple[str, ...] = ()
) -> list[Row]:
    """Decode with Spark, and compare the result with that of the driver's query."""
    writer_schema = WriterSchema(schema, event_key=event_key)
    decoding = Decoding((writer_schema,), schema, True, UNDECODABLE)
    run = partial(decode, decoding=decoding, ranges=RANGES)
    raw = records(spark, *values)
    check_local_query(raw, run)
    return sorted(run(raw).collect(), key=lambda r: r.offset)


def check_local_query(raw: DataFrame, decoding: Callable[[DataFrame], DataFrame]) -> None:
    """Check that the driver's query of `decoding` returns what Spark does, to the bit."""
    fields = [StructField(f.name, f.dataType, f.name != "value") for f in raw.schema.fields]
    present = raw.where("value IS NOT NULL").toArrow()
    with tempfile.TemporaryDirectory() as folder:
        query = LocalQuery.plan(raw.sparkSession, Path(folder), StructType(fields), decoding)
        assert query is not None
        found = query.run(present)
        assert not list(Path(folder).iterdir())
    expected = decoding(raw).toArrow()
    order = [("partition", "ascending"), ("offset", "ascending")]
    assert found.schema.types == expected.schema.types
    assert found.sort_by(order).cast(expected.schema).equals(expected.sort_by(order)) or str(
        found.sort_by(order).to_pylist()
    ) == str(expected.sort_by(order).to_pylist())
