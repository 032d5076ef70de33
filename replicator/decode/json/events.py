"""Decode raw records in JSON, with Debezium's envelope or flattened, to the decoded frame of `event_frame`.

Facts of the format: Debezium's MySQL connector documentation, "Data change events".
"""

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from replicator.decode.event_frame import (
    CACHED_EXPRESSIONS,
    SOURCE_TYPES,
    Decoding,
    WriterSchema,
    bad_reason,
    envelope_of,
    event_position_key,
    file_number,
    flat_source,
    frame_columns,
    in_range_end,
    metadata_fields,
)
from replicator.decode.row_images import (
    after_image,
    before_image,
    decoded_after,
    decoded_row,
    present_values,
    readable_values,
)
from replicator.decode.schemas.versions import is_in_range
from replicator.decode.values import is_wide, parsed_type, quoted_numbers
from replicator.errors import DecodeError
from replicator.jvm.json_columns import LONG_TEXTS
from replicator.model.batch_stats import UNKNOWN_SCHEMA
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import Column, TableSchema

_SOURCE_BLOCK: Final = StructType([StructField(name, kind) for name, kind in SOURCE_TYPES.items()])
_TRANSACTION_FIELDS: Final = StructType([StructField("total_order", LongType())])
SCHEMA_START: Final = '{"schema":'
"""The first bytes of events that carry their schema, as text."""

_PAYLOAD: Final = '"payload":'


def event_source(value: SparkColumn, *, flattened: bool = False) -> SparkColumn:
    """Return the source block of a JSON event, which may carry its schema; null if it has none."""
    block = metadata_fields() if flattened else [StructField("source", _SOURCE_BLOCK)]
    whole = StructType([*block, StructField("payload", StructType(block))])
    event = F.from_json(value.cast("string"), whole, LONG_TEXTS)
    events = (event, event.getField("payload"))
    if flattened:
        return F.coalesce(*[F.when(e.getField("__op").isNotNull(), flat_source(e)) for e in events])
    return F.coalesce(*[e.getField("source") for e in events])


def schema_prefix(value: bytes) -> str:
    """Return an event's text up to its payload, which is the same for all events of its schema.

    `fingerprint` is a hash of it.

    Raises:
        DecodeError: the event has no payload, or its schema is not in UTF-8.
    """
    schema, payload, _ = value.partition(_PAYLOAD.encode())
    if not payload:
        raise DecodeError("the event has no payload")
    try:
        return (schema + payload).decode()
    except UnicodeDecodeError:
        raise DecodeError("the event's schema is not in UTF-8") from None


def fingerprint(value: SparkColumn) -> SparkColumn:
    """Return the hash of the schema in a JSON event; 0 if it has none.

    The text up to the payload is the schema, byte by byte the same in all events of one schema. The key ``"payload":``
    cannot occur inside it, because quotes in labels and defaults are escaped.
    """
    text = value.cast("string")
    return F.when(text.startswith(SCHEMA_START), F.xxhash64(F.substring_index(text, _PAYLOAD, 1))).otherwise(
        F.lit(0).cast("long")
    )


def decode(
    records: DataFrame, decoding: Decoding, ranges: Sequence[OffsetRange], *, flattened: bool = False
) -> DataFrame:
    """Decode records as `EventFormat.decode` does; `flattened` events are rows; see `model.events`."""
    events = records.where(F.col("value").isNotNull()).withColumn("in_range_end", in_range_end(ranges))
    frames = [
        _decode_written_with(_written_with(events, schema, decoding, flattened), schema, decoding, flattened)
        for schema in decoding.writer_schemas
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    return frame


def _written_with(
    events: DataFrame, writer_schema: WriterSchema, decoding: Decoding, flattened: bool
) -> DataFrame:
    """Select the events of one writer schema; the last one also gets events of no writer schema, to report them."""
    writer_schemas = decoding.writer_schemas
    if len(writer_schemas) == 1:
        return events
    own = _has_schema(writer_schema.schema_prefix) & _is_in_position_range(writer_schema, flattened)
    if writer_schema is writer_schemas[-1]:
        own |= ~reduce(or_, map(_has_schema, dict.fromkeys(e.schema_prefix for e in writer_schemas)))
    return events.where(own)


def _has_schema(prefix: str) -> SparkColumn:
    """Return whether an event has the schema with the text `prefix`."""
    text = F.col("value").cast("string")
    return text.startswith(prefix) if prefix else ~text.startswith(SCHEMA_START)


def _payload(prefix: str) -> SparkColumn:
    """Return the text of an event without its schema; cut by bytes, because counting characters takes longer."""
    if not prefix:
        return F.col("value").cast("string")
    start = len(prefix.encode())
    # The last byte, after the payload, closes the object with schema and payload.
    rest = F.length("value") - (start + 1)
    return F.substr("value", F.lit(start + 1), rest).cast("string")


def _is_in_position_range(writer_schema: WriterSchema, flattened: bool) -> SparkColumn:
    if writer_schema.first is None and writer_schema.end is None:
        return F.lit(True)
    source = event_source(_payload(writer_schema.schema_prefix), flattened=flattened)
    condition = is_in_range(source, writer_schema.first, writer_schema.end)
    # An event without a readable position is decoded once, by the last writer schema, and reported there.
    return condition if writer_schema.end is not None else F.coalesce(condition, F.lit(True))


def _decode_written_with(
    events: DataFrame, writer_schema: WriterSchema, decoding: Decoding, flattened: bool
) -> DataFrame:
    for_changelog = decoding.for_changelog
    if flattened:
        flat = events.withColumn("f", _parsed_flat(writer_schema))
        parsed = flat.withColumn("e", _unflattened(writer_schema))
    else:
        parsed = events.withColumn("e", _parsed(writer_schema, for_changelog))
    # Rows are decoded once; the image refers to a value more than once.
    rows = parsed.select(*_decoded_rows(writer_schema, for_changelog, flattened))
    images = rows.select("*", *_image_columns(writer_schema, decoding.target, for_changelog))
    reason = _reason(writer_schema, decoding.undecodable, for_changelog, flattened)
    return images.withColumn("bad", reason).select(*frame_columns(for_changelog))


@lru_cache(CACHED_EXPRESSIONS)
def _parsed(writer_schema: WriterSchema, for_changelog: bool) -> SparkColumn:
    """Parse an event's JSON, without its schema, as a struct."""
    fields = [
        StructField("before", _parsed_row(writer_schema.before_columns(for_changelog=for_changelog))),
        StructField("after", _parsed_row(writer_schema.schema.columns)),
        StructField("source", _SOURCE_BLOCK),
        StructField("op", StringType()),
        StructField("transaction", _TRANSACTION_FIELDS),
    ]
    return _from_json(fields, writer_schema)


@lru_cache(CACHED_EXPRESSIONS)
def _parsed_flat(writer_schema: WriterSchema) -> SparkColumn:
    """Parse a flattened event's JSON, without its schema, as a struct."""
    return _from_json([*_parsed_row(writer_schema.schema.columns).fields, *metadata_fields()], writer_schema)


def _from_json(fields: Sequence[StructField], writer_schema: WriterSchema) -> SparkColumn:
    event = StructType([*fields, StructField("_corrupt", StringType())])
    text = quoted_numbers(_payload(writer_schema.schema_prefix), writer_schema.schema.columns)
    return F.from_json(text, event, {"columnNameOfCorruptRecord": "_corrupt", **LONG_TEXTS})


@lru_cache(CACHED_EXPRESSIONS)
def _unflattened(writer_schema: WriterSchema) -> SparkColumn:
    return F.struct(
        *envelope_of(F.col("f"), writer_schema.schema.columns), F.col("f._corrupt").alias("_corrupt")
    )


@lru_cache(CACHED_EXPRESSIONS)
def _decoded_rows(
    writer_schema: WriterSchema, for_changelog: bool, flattened: bool
) -> tuple[SparkColumn, ...]:
    event = F.col("e")
    before, after = event.getField("before"), event.getField("after")
    return (
        *(F.col(name) for name in ("partition", "offset", "timestamp", "key", "value", "in_range_end")),
        event.getField("op").alias("op"),
        event.getField("source").alias("source"),
        event.getField("transaction").getField("total_order").alias("tx_order"),
        decoded_row(before, writer_schema.before_columns(for_changelog=for_changelog)).alias(
            "decoded_before"
        ),
        decoded_after(after, writer_schema, event.getField("op"), event.getField("source")).alias(
            "decoded_after"
        ),
        F.col("e._corrupt").alias("corrupt"),
        present_values(before, after, writer_schema.schema, for_changelog).alias("present"),
        file_number(event.getField("source")).alias("file_number"),
        *([F.col("e.lacking").alias("lacking")] if flattened else []),
    )


@lru_cache(CACHED_EXPRESSIONS)
def _image_columns(
    writer_schema: WriterSchema, target: TableSchema, for_changelog: bool
) -> tuple[SparkColumn, ...]:
    before, after = F.col("decoded_before"), F.col("decoded_after")
    return (
        event_position_key(F.col("source"), F.col("file_number")).alias("position_key"),
        before_image(before, writer_schema, target, for_changelog).alias("before"),
        after_image(after, writer_schema, target).alias("after"),
    )


@lru_cache(CACHED_EXPRESSIONS)
def _reason(
    writer_schema: WriterSchema, undecodable: str, for_changelog: bool, flattened: bool
) -> SparkColumn:
    schema = writer_schema.schema
    read = readable_values(schema, for_changelog)
    # The encoding of decimals may have changed; then the batch must be examined again.
    doubtful = undecodable == UNKNOWN_SCHEMA and any(
        c.type.name == "decimal" or is_wide(c) for c in schema.columns
    )
    unreadable = F.lit(UNKNOWN_SCHEMA if doubtful else "not JSON of the table's schema")
    reason = F.when(~_has_schema(writer_schema.schema_prefix), F.lit(undecodable)).when(
        F.col("corrupt").isNotNull() | (F.col("present") != read), unreadable
    )
    if flattened:
        reason = reason.when(F.col("lacking").isNotNull(), F.col("lacking"))
    return bad_reason(reason, schema)


def _parsed_row(columns: Sequence[Column]) -> StructType:
    return StructType([StructField(c.written, parsed_type(c)) for c in columns])
