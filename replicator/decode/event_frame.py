"""The decoded frame: the columns that every event format decodes to, and the schema that an event was written with.

The decoded frame has one row for each record that is not a tombstone, with these columns:

============  =======  ==========================================================================================
partition     int      partition of the topic
offset        long     offset in the partition
op            string   c u d r t m; null if `bad` is set
code          byte     numeric code of `op`: OP_CODES and the other codes of `model.batch_stats`
position_key  long     binlog file number << 40 | offset in the file: orders events of one server
row_key       long     row in the event << 1 | (0 for d and t, else 1): orders rows of one event
ts_ms         long     source time, milliseconds since the epoch
server_id     long     server that wrote the event
gtid_origin   long     hash of the GTID's server and tag; 0 if there is no GTID
gtid_number   long     number of the transaction in its GTID; 0 if there is none
file          string   binlog file; without a changelog only if `in_range_end`
gtid          string   GTID of the transaction
in_range_end  boolean  whether the event is one of the last of its offset range
tx_order      long     number of the event in its transaction, if the connector counts events
before        struct   row before the change, lake types; null for c and r; without a changelog only its key
after         struct   row after the change, lake types; null for d and t
bad           string   why the event cannot be applied; null if it can be
raw_key       binary   the raw record's key; only if `bad` is set
raw_value     binary   the raw record's value; only if `bad` is set
timestamp     long     when the record was written to the log, milliseconds since the epoch; only if `bad` is set
============  =======  ==========================================================================================
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField

from replicator.jvm.position_columns import position_key, row_key, transaction
from replicator.model.batch_stats import (
    BAD_CODE,
    CHUNK_READ_CODE,
    FIRST_READ_CODE,
    LAST_READ_CODE,
    MESSAGE_CODE,
    OP_CODES,
    UNKNOWN_SCHEMA,
    UNKNOWN_SCHEMA_CODE,
)
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import METADATA_FIELDS, SOURCE_FIELDS
from replicator.model.position import LAST_MS, MOST_FILES, MOST_POS
from replicator.model.table import Column, TableSchema
from replicator.schema.history.order import Boundary

RANGE_END: Final = 16
"""Number of offsets at the end of a range whose details the statistics of a large batch contain, for markers."""

EVENT_NUMBERS: Final = (
    "partition",
    "offset",
    "code",
    "position_key",
    "row_key",
    "ts_ms",
    "server_id",
    "gtid_origin",
    "gtid_number",
)
"""Columns of which the statistics of a batch read all values."""

EVENT_DETAILS: Final = ("offset", "gtid", "tx_order")
"""Columns that distinguish events with the same position."""

CACHED_EXPRESSIONS: Final = 1024
"""Number of Spark expressions that each function caches.

Building an expression takes a JVM call for each part, and the expressions of a table are the same in every batch.
"""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema with which a group of events was written.

    Attributes:
        schema: the columns with their current names, and with their types before masking or hashing.
        fingerprint: hash of the schema in the events; 0 for events without one.
        schema_prefix: the text of the events up to the payload, which contains their schema; empty for events
            without one.
        first: where it begins to apply; None if it applies from the beginning.
        end: where it no longer applies; None if it is open.
        event_key: the columns that are the key of the events, whether or not they identify rows.
    """

    schema: TableSchema
    fingerprint: int = 0
    schema_prefix: str = ""
    first: Boundary | None = None
    end: Boundary | None = None
    event_key: tuple[str, ...] = ()

    def before_columns(self, *, for_changelog: bool) -> tuple[Column, ...]:
        """Return the columns that are read of a before-image: all, or without a changelog only the key."""
        return self.schema.columns if for_changelog else self.schema.key_columns


@dataclass(frozen=True, slots=True)
class Decoding:
    """How records of one table are decoded.

    Attributes:
        writer_schemas: all schemas that the records may have; no two overlap.
        target: the schema of the `before` and `after` columns, with types for the values of all writer schemas.
        for_changelog: whether to decode all that a changelog row needs; a mirror needs less.
        undecodable: the verdict on events with a schema that no writer schema has.
    """

    writer_schemas: tuple[WriterSchema, ...]
    target: TableSchema
    for_changelog: bool
    undecodable: str = UNKNOWN_SCHEMA


def file_number(source: SparkColumn) -> SparkColumn:
    """Return the number of the binlog file (long) from an event's source block; null if the name has none."""
    return F.substring_index(source.getField("file"), ".", -1).cast("long")


def event_position_key(source: SparkColumn, number: SparkColumn | None = None) -> SparkColumn:
    """Return the position key of an event from its source block; null if its position or time is invalid.

    If it is not null, `binlog_number` accepts the file name, and the key fits into a long. `number` is a column with
    `file_number`: without it, Spark computes the number for each of its uses.
    """
    number, pos = file_number(source) if number is None else number, source.getField("pos")
    time = F.coalesce(source.getField("ts_ms"), F.lit(0))
    real = number.between(0, MOST_FILES) & pos.between(0, MOST_POS) & time.between(0, LAST_MS)
    return F.when(real, position_key(number, pos))


def in_range_end(ranges: Sequence[OffsetRange]) -> SparkColumn:
    """Return whether an offset is one of the last `RANGE_END` of its range; always true if there are no `ranges`.

    The ends are a map, because literals would be part of the code that Spark generates, which every batch would then
    compile again.
    """
    if not ranges:
        return F.lit(True)
    ends = F.create_map(*[F.lit(n) for r in ranges for n in (r.partition, r.end - RANGE_END)])
    return F.coalesce(F.col("offset") >= F.element_at(ends, F.col("partition")), F.lit(False))


@lru_cache(CACHED_EXPRESSIONS)
def frame_columns(for_changelog: bool) -> tuple[SparkColumn, ...]:
    """Return the columns of the decoded frame from images, position keys and verdicts.

    Only bad events keep the raw record.
    """
    source, op, keep = F.col("source"), F.col("op"), F.col("bad").isNotNull()
    named = F.lit(True) if for_changelog else F.col("in_range_end")
    kind = F.when(op.isin("d", "t"), F.lit(0)).otherwise(F.lit(1))
    return (
        F.col("partition"),
        F.col("offset"),
        F.when(~keep, op).alias("op"),
        _code().alias("code"),
        F.col("position_key"),
        row_key(F.coalesce(source.getField("row"), F.lit(0)), kind).alias("row_key"),
        source.getField("ts_ms").alias("ts_ms"),
        F.coalesce(source.getField("server_id"), F.lit(0)).alias("server_id"),
        *transaction(source.getField("gtid")),
        F.when(named, source.getField("file")).alias("file"),
        # Without a changelog, too: it tells which events were sent again.
        source.getField("gtid").alias("gtid"),
        F.col("in_range_end"),
        F.col("tx_order"),
        F.col("before"),
        F.col("after"),
        F.col("bad"),
        F.when(keep, F.col("key")).alias("raw_key"),
        F.when(keep, F.col("value")).alias("raw_value"),
        F.when(keep, F.col("timestamp")).alias("timestamp"),
    )


def _code() -> SparkColumn:
    bad, op, snapshot = F.col("bad"), F.col("op"), F.col("source").getField("snapshot")
    code = F.when(bad == UNKNOWN_SCHEMA, F.lit(UNKNOWN_SCHEMA_CODE)).when(bad.isNotNull(), F.lit(BAD_CODE))
    code = code.when((op == "r") & (snapshot == "incremental"), F.lit(CHUNK_READ_CODE))
    code = code.when((op == "r") & snapshot.startswith("last"), F.lit(LAST_READ_CODE))
    code = code.when((op == "r") & snapshot.startswith("first"), F.lit(FIRST_READ_CODE))
    code = code.when(op == "m", F.lit(MESSAGE_CODE))
    for name, number in OP_CODES.items():
        code = code.when(op == name, F.lit(number))
    return code.cast("tinyint")


def bad_reason(reason: SparkColumn, schema: TableSchema) -> SparkColumn:
    """Return `reason` (a `when` with errors of the record itself), otherwise why the event cannot be applied."""
    op, before, after = F.col("op"), F.col("before"), F.col("after")
    null_key = F.lit(False)
    for name in schema.key:
        null_key |= F.when(op == "d", before.getField(name)).otherwise(after.getField(name)).isNull()
    return (
        reason.when(op.isNull(), F.lit("no op: not a Debezium change event"))
        .when(~op.isin(*OP_CODES, "m"), F.concat(F.lit("unknown op "), op))
        .when(F.col("position_key").isNull(), F.lit("no source position"))
        .when(op.isin("t", "m"), F.lit(None))
        .when((op == "d") & before.isNull(), F.lit("delete without a before-image"))
        .when((op != "d") & after.isNull(), F.lit("no after-image"))
        .when(F.lit(not schema.key) & (op == "u") & before.isNull(), F.lit("update without a before-image"))
        .when(null_key, F.lit("null in the key"))
    )


_TYPES: Final[Mapping[str, DataType]] = {"string": StringType(), "long": LongType(), "int": IntegerType()}
SOURCE_TYPES: Final[Mapping[str, DataType]] = {name: _TYPES[kind] for name, kind in SOURCE_FIELDS}
"""Spark types of the fields that are read from the source block."""

_REMEDY: Final = "; see `replicator check`"


def metadata_fields() -> list[StructField]:
    """Return the metadata fields of a flattened event, as `from_json` reads them."""
    fields = [StructField("__op", StringType()), StructField("__deleted", StringType())]
    return fields + [StructField(f"__source_{name}", kind) for name, kind in SOURCE_TYPES.items()]


def flat_source(event: SparkColumn, present: Collection[str] = METADATA_FIELDS) -> SparkColumn:
    """Return the source block of a flattened event that may have the metadata `present`."""
    written = {name: f"__source_{name}" for name in SOURCE_TYPES}
    values = {n: event.getField(w) if w in present else F.lit(None) for n, w in written.items()}
    return F.struct(*[values[name].cast(kind).alias(name) for name, kind in SOURCE_TYPES.items()])


def envelope_of(
    event: SparkColumn, columns: Iterable[Column], present: Collection[str] = METADATA_FIELDS
) -> list[SparkColumn]:
    """Return the fields of an envelope from a flattened event, and `lacking`.

    `lacking` says which required metadata is missing; it is null for a valid event. `present` are those of
    `METADATA_FIELDS` that the event may have.
    """

    def metadata(name: str, kind: DataType) -> SparkColumn:
        value = event.getField(name) if name in present else F.lit(None)
        return value.cast(kind)

    row = F.struct(*[event.getField(c.written).alias(c.written) for c in columns])
    deleted = metadata("__deleted", StringType())
    lacking = (
        F.when(metadata("__op", StringType()).isNull(), F.lit(f"no __op in a flattened event{_REMEDY}"))
        .when(deleted.isNull(), F.lit(f"no __deleted in a flattened event: deletes would be lost{_REMEDY}"))
        .when(
            metadata("__source_file", StringType()).isNull() | metadata("__source_pos", LongType()).isNull(),
            F.lit(f"no position in a flattened event{_REMEDY}"),
        )
    )
    return [
        F.when(deleted == "true", row).alias("before"),
        F.when(deleted != "true", row).alias("after"),
        flat_source(event, present).alias("source"),
        metadata("__op", StringType()).alias("op"),
        F.struct(F.lit(None).cast(LongType()).alias("total_order")).alias("transaction"),
        lacking.alias("lacking"),
    ]
