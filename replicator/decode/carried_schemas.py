"""Finds the schemas that the records of a batch carry, with Spark."""

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from replicator.decode.event_format import CarriedSchema, EventFormat
from replicator.decode.event_frame import event_position_key
from replicator.jvm.spark import local_frame
from replicator.model.gtid import Transaction
from replicator.model.position import SourcePosition
from replicator.schema.binlog_order import CLOCK_MS


def carried_schemas(records: DataFrame, event_format: EventFormat) -> list[CarriedSchema]:
    """Return the schemas that raw records carry or refer to, oldest first; usually by one pass over the records.

    Records without a schema have an entry too, with `EventFormat.no_schema` as its id. Tombstones are ignored.
    """
    schema_id = event_format.schema_id(F.col("value")).alias("schema_id")
    sample = F.struct("key", "value")
    given = records.where(F.col("value").isNotNull()).select("*", schema_id)
    first = given.groupBy("schema_id", "partition").agg(
        # A truncate has no key, so it is a sample of the table's schema, but not of its key.
        F.min_by(sample, F.struct(F.col("key").isNull(), "offset")).alias("sample"),
        F.min_by("value", "offset").alias("value"),
        F.min("offset").alias("offset"),
    )
    found = _by_schema(local_frame(records.sparkSession, first.toArrow(), first.schema), event_format)
    if any(row.at is None and row.schema_id != event_format.no_schema for row in found):
        # The first record of a schema is not a change event and has no position; a later one may have one.
        found = _by_schema(given.withColumn("sample", sample), event_format)
    return [_carried(row) for row in found]


def _by_schema(records: DataFrame, event_format: EventFormat) -> list[Row]:
    """Return one row per schema in `records` (schema_id, offset, value, sample), in the order of their first events."""
    at = event_position_key(F.col("source"))
    rows = (
        event_format.with_sources(records)
        .groupBy("schema_id")
        .agg(
            F.min_by("sample", F.struct(F.col("sample.key").isNull(), "offset")).alias("sample"),
            F.min("offset").alias("first"),
            F.min(at).alias("at"),
            F.min_by("source", at).alias("source"),
        )
        .collect()
    )
    origins = {found.origin for row in rows if row.source and (found := Transaction.parse(row.source.gtid))}
    # Positions of several servers cannot be compared.
    by_time = len(origins) > 1
    return sorted(rows, key=lambda row: _place(row, by_time=by_time))


def _place(row: Row, *, by_time: bool) -> tuple[int, int, int]:
    time = row.source.ts_ms or 0 if by_time and row.source else 0
    return time // CLOCK_MS, -1 if row.at is None else row.at, row.first


def _carried(row: Row) -> CarriedSchema:
    source, key = row.source, row.sample.key
    position, ts_ms = None, 0
    if source is not None and source.file is not None:
        ts_ms = source.ts_ms or 0
        position = SourcePosition(source.file, source.pos or 0, 0, source.server_id or 0, source.gtid)
    return CarriedSchema(
        row.schema_id,
        None if key is None else bytes(key),
        bytes(row.sample.value),
        position,
        ts_ms,
    )
