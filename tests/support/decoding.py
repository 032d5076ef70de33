"""Build raw records, and decode them with `replicator.decode.json_events`."""

from pyspark.sql import DataFrame, Row, SparkSession

from replicator.decode.event_frame import WriterSchema
from replicator.decode.json_events import decode
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import Column, TableSchema
from replicator.model.types import LONG

RANGES = [OffsetRange("shop.shop.t", 0, 0, 1000)]
ID = Column("id", LONG)


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(0, i, 1_700_000_000_000, b'{"id":1}', v) for i, v in enumerate(values)]
    return spark.createDataFrame(rows, "partition int, offset long, timestamp long, key binary, value binary")


def decoded(spark: SparkSession, schema: TableSchema, *values: bytes | None) -> list[Row]:
    frame = decode(
        records(spark, *values),
        [WriterSchema(schema)],
        schema,
        RANGES,
        for_changelog=True,
        undecodable=UNDECODABLE,
    )
    return sorted(frame.collect(), key=lambda r: r.offset)
