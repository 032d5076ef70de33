"""Builds changelog rows from decoded events: INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE, TRUNCATE.

An update becomes two rows, or one if its event has no before-image.

A changelog row has the source's columns and one struct column (`model.changelog.change_column`) with these fields:

=============  =============  ==============================================================================
kind           string         INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE; or TRUNCATE, with null in all columns
op             string         Debezium's op, which distinguishes a snapshot read (r) from an insert (c)
source_ts      timestamptz    source time of the change
file           string         binlog file; with pos and row, the position
pos            long           offset in the binlog file
row            int            row number in the binlog event
server_id      long           server that wrote the event
gtid           string         GTID of the transaction; null if the source has no GTIDs
partition      int            partition of the topic; with offset, the log coordinate
offset         long           offset in the partition
commit         long           number of the changelog's commit; with offset, the order of the changes of one key
=============  =============  ==============================================================================
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.jvm.position_columns import pos_of, row_of
from replicator.model.batch_stats import DuplicateRange
from replicator.model.changelog import RowKind, change_column
from replicator.model.position import MOST_POS
from replicator.model.table import TableSchema


def good_events(decoded: DataFrame, duplicates: Sequence[DuplicateRange]) -> DataFrame:
    """Return the events to apply: changes of rows and of the table, without bad and redelivered ones."""
    good = F.col("bad").isNull() & (F.col("op") != "m")
    for d in duplicates:
        good &= ~(
            (F.col("partition") == d.partition)
            & F.col("offset").between(d.first, d.last)
            & (F.col("op") != "r")
        )
    return decoded.where(good)


def bad_events(decoded: DataFrame, duplicates: Sequence[DuplicateRange]) -> DataFrame:
    """Return the events that cannot be applied, without redelivered ones."""
    bad = F.col("bad").isNotNull()
    for d in duplicates:
        bad &= ~((F.col("partition") == d.partition) & F.col("offset").between(d.first, d.last))
    return decoded.where(bad)


def from_offset(events: DataFrame, next_offsets: dict[int, int]) -> DataFrame:
    """Remove the events that a table contains: those before `next_offsets` (partition → offset)."""
    for partition, offset in next_offsets.items():
        events = events.where((F.col("partition") != partition) | (F.col("offset") >= offset))
    return events


def changelog_rows(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the changelog rows of good events: the columns of `schema`, in order, then the struct.

    `events` also have the column commit.
    """
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
    """Return the columns of a changelog row. Building them takes JVM calls, and they are the same in every batch."""
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
        F.col("commit").alias("commit"),
    )


def driver_changelog_rows(events: pa.Table, schema: TableSchema, commit: int) -> pa.Table:
    """Compute `changelog_rows` on the driver, for one commit."""
    ops = events.column("op").to_numpy(zero_copy_only=False)
    before, after = (events.column(name).combine_chunks() for name in ("before", "after"))
    is_pair = (ops == "u") & before.is_valid().to_numpy(zero_copy_only=False)
    event = np.repeat(np.arange(len(ops)), np.where(is_pair, 2, 1))
    is_first = np.r_[True, event[1:] != event[:-1]] if len(event) else np.empty(0, bool)
    uses_before = (is_pair[event] & is_first) | (ops[event] == "d")
    images = pa.chunked_array([before, after.cast(before.type)]).combine_chunks()
    rows = images.take(pa.array(np.where(uses_before, event, event + len(ops))))
    values = {name: pc.struct_field(rows, name) for name in schema.names}
    kinds = np.select(
        [ops[event] == "d", ops[event] == "t", uses_before, ops[event] == "u"],
        [RowKind.DELETE, RowKind.TRUNCATE, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER],
        RowKind.INSERT,
    )
    change = _driver_change(events.take(pa.array(event)).combine_chunks(), kinds, commit)
    return pa.table(values | {change_column(schema.names): change})


def _driver_change(
    events: pa.Table, kinds: "np.ndarray[tuple[int], np.dtype[np.str_]]", commit: int
) -> pa.StructArray:
    """Return the struct of changelog rows; `events` has the event of each row, `kinds` its kind."""
    values = {name: events.column(name).combine_chunks() for name in events.column_names}
    millis = pc.multiply(values["ts_ms"].cast(pa.int64()), 1000)
    fields = {
        "kind": pa.array(kinds.tolist(), pa.string()),
        "op": values["op"],
        "source_ts": millis.cast(pa.timestamp("us", "UTC")),
        "file": values["file"],
        "pos": pc.bit_wise_and(values["position_key"], MOST_POS),
        "row": pc.shift_right(values["row_key"], 1).cast(pa.int32()),
        **{name: values[name] for name in ("server_id", "gtid", "partition", "offset")},
        "commit": pa.repeat(pa.scalar(commit, pa.int64()), len(kinds)),
    }
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))
