"""Raw records, and what `decode.envelope` makes of them."""

from pyspark.sql import DataFrame, Row, SparkSession

from replicator.decode.envelope import Epoch, decode
from replicator.model.census import STRAY
from replicator.model.commit import OffsetRange
from replicator.model.table import Column, TableSchema
from replicator.model.types import (
    LONG,
)

RANGES = [OffsetRange("shop.shop.t", 0, 0, 1000)]
ID = Column("id", LONG)


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(0, i, 1_700_000_000_000, b'{"id":1}', v) for i, v in enumerate(values)]
    return spark.createDataFrame(rows, "partition int, offset long, timestamp long, key binary, value binary")


def decoded(spark: SparkSession, schema: TableSchema, *values: bytes | None) -> list[Row]:
    frame = decode(records(spark, *values), [Epoch(schema)], schema, RANGES, for_changelog=True, stray=STRAY)
    return sorted(frame.collect(), key=lambda r: r.offset)
