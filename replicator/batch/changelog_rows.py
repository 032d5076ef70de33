"""Decoded events → changelog rows: INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE.

An update whose event has no before-image makes one row.

A changelog row has the source's columns and one struct column (`model.change.change_column`) with

=============  =============  ==============================================================================
kind           string         INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE; or TRUNCATE, with all columns null
op             string         Debezium's op; tells a snapshot read (r) from an insert (c)
source_ts      timestamptz    when the source made the change
file, pos, row                binlog position
server_id      long
gtid           string         the transaction, where the source has GTIDs
partition      int            where the log has the event
offset         long
=============  =============  ==============================================================================
"""

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.jvm.position_columns import pos_of, row_of
from replicator.model.batch_stats import DuplicateRange
from replicator.model.changelog import RowKind, change_column
from replicator.model.table import TableSchema


def good_events(decoded: DataFrame, duplicates: Sequence[DuplicateRange]) -> DataFrame:
    """The events to apply: neither bad nor delivered before, and about a row or the table."""
    good = F.col("bad").isNull() & (F.col("op") != "m")
    for d in duplicates:
        good &= ~(
            (F.col("partition") == d.partition)
            & F.col("offset").between(d.first, d.last)
            & (F.col("op") != "r")
        )
    return decoded.where(good)


def from_offset(events: DataFrame, next_offsets: dict[int, int]) -> DataFrame:
    """Leave out what a table has already: events before `next_offsets` (partition → offset)."""
    for partition, offset in next_offsets.items():
        events = events.where((F.col("partition") != partition) | (F.col("offset") >= offset))
    return events


def changelog_rows(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Changelog rows of good events, each update as two rows; columns in `schema`'s order, then the struct."""
    records = events.withColumn("record", _records())
    return records.select(*_row_columns(schema))


@lru_cache(1)
def _records() -> SparkColumn:
    before = _record(RowKind.UPDATE_BEFORE, F.col("before"))
    after = _record(RowKind.UPDATE_AFTER, F.col("after"))
    images = (
        F.when((F.col("op") == "u") & F.col("before").isNull(), F.array(after))
        .when(F.col("op") == "u", F.array(before, after))
        .when(F.col("op") == "d", F.array(_record(RowKind.DELETE, F.col("before"))))
        .when(F.col("op") == "t", F.array(_record(RowKind.TRUNCATE, F.col("after"))))
        .otherwise(F.array(_record(RowKind.INSERT, F.col("after"))))
    )
    return F.explode(images)


@lru_cache(1024)
def _row_columns(schema: TableSchema) -> tuple[SparkColumn, ...]:
    """The columns of a changelog row. Building them takes calls into the JVM; a table's are the same in each batch."""
    image = F.col("record.image")
    columns = [image.getField(name).alias(name) for name in schema.names]
    return (*columns, _change().alias(change_column(schema.names)))


def _record(kind: RowKind, image: SparkColumn) -> SparkColumn:
    return F.struct(F.lit(str(kind)).alias("kind"), image.alias("image"))


def _change() -> SparkColumn:
    return F.struct(
        F.col("record.kind").alias("kind"),
        F.col("op").alias("op"),
        F.timestamp_millis("ts_ms").alias("source_ts"),
        F.col("file").alias("file"),
        pos_of(F.col("position_key")).alias("pos"),
        row_of(F.col("row_key")).alias("row"),
        F.col("server_id").alias("server_id"),
        F.col("gtid").alias("gtid"),
        F.col("partition").alias("partition"),
        F.col("offset").alias("offset"),
    )
