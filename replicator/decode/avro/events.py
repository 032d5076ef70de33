"""Decode raw records whose keys and values are Avro in Confluent's wire format.

A value begins with a zero byte and the four-byte id of its writer schema; the frame is that of `event_frame`. Events of
several writer schemas are decoded in one pass: each writer schema has its own column for the parsed event, which is
null for events of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from replicator.decode.avro.schema import Writer
from replicator.decode.event_frame import (
    CACHED_EXPRESSIONS,
    Decoding,
    WriterSchema,
    bad_reason,
    envelope_of,
    event_position_key,
    file_number,
    flat_source,
    frame_columns,
    in_range_end,
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
from replicator.decode.values import row_type
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import SOURCE_FIELDS
from replicator.model.table import TableSchema
from replicator.sources.kafka.schema_registry import HEADER_BYTES

NO_WRITER: Final = -1
"""Writer schema id of records that are not in Confluent's wire format."""

_NOT_CONFLUENT: Final = "not in Confluent's wire format"

_NO_SCHEMA: Final = Writer("", "")


@dataclass(frozen=True, slots=True)
class AvroWriterSchema(WriterSchema):
    """An Avro writer schema; its id in the registry is the `fingerprint`."""

    writer: Writer = _NO_SCHEMA


def writer_id(value: SparkColumn) -> SparkColumn:
    """Return the id of a record's writer schema, as long; `NO_WRITER` if the record has none."""
    header = F.hex(F.substring(value, 1, HEADER_BYTES))
    found = F.conv(F.substring(header, 3, 8), 16, 10).cast("long")
    return F.when((F.length(value) > HEADER_BYTES) & header.startswith("00"), found).otherwise(
        F.lit(NO_WRITER).cast("long")
    )


def decode(records: DataFrame, decoding: Decoding, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Decode records as `EventFormat.decode` does."""
    events = records.where(F.col("value").isNotNull()).withColumn("in_range_end", in_range_end(ranges))
    known = tuple(e for e in decoding.writer_schemas if isinstance(e, AvroWriterSchema))
    target, for_changelog = decoding.target, decoding.for_changelog
    writers = tuple({e.fingerprint: e.writer for e in known}.items())
    parsed = events.select("*", _carried())
    parsed = parsed.select("*", *_parsed(writers))
    if flat := tuple(e for e in known if e.writer.metadata_fields is not None):
        parsed = parsed.withColumns(_unflattened(flat))
    with_metadata = parsed.select("*", *_metadata_columns(writers))
    rows = with_metadata.select(*_decoded_rows(known, for_changelog))
    images = rows.select("*", *_image_columns(known, target, for_changelog))
    reason = _reason(known, target, decoding.undecodable, for_changelog)
    return images.withColumn("bad", reason).select(*frame_columns(for_changelog))


def with_sources(records: DataFrame, writers: Sequence[tuple[int, Writer]]) -> DataFrame:
    """Return raw records with the column `source`, their source block; null if their schema id is not in `writers`."""
    parsed = records.select("*", _carried()).select("*", *_parsed(tuple(writers)))
    sources = [_source_of(F.col(_event(number)), writer) for number, writer in writers]
    kinds = ",".join(f"{name}:{kind}" for name, kind in SOURCE_FIELDS)
    return parsed.select(*records.columns, _first(sources).cast(f"struct<{kinds}>").alias("source"))


def _source_of(event: SparkColumn, writer: Writer) -> SparkColumn:
    """Return an event's source block; a flattened event has it in separate fields."""
    if writer.metadata_fields is not None:
        return F.when(event.isNotNull(), flat_source(event, writer.metadata_fields))
    block = event.getField("source")
    fields = [block.getField(name).cast(kind).alias(name) for name, kind in SOURCE_FIELDS]
    return F.when(event.isNotNull(), F.struct(*fields))


@lru_cache(1)
def _carried() -> SparkColumn:
    return writer_id(F.col("value")).alias("carried")


@lru_cache(CACHED_EXPRESSIONS)
def _parsed(writers: tuple[tuple[int, Writer], ...]) -> tuple[SparkColumn, ...]:
    body = F.substr(F.col("value"), F.lit(HEADER_BYTES + 1))
    options = {"mode": "PERMISSIVE"}
    return tuple(
        F.when(
            F.col("carried") == number,
            from_avro(body, writer.written, options | {"avroSchema": writer.wanted}),
        ).alias(_event(number))
        for number, writer in writers
    )


@lru_cache(CACHED_EXPRESSIONS)
def _unflattened(writer_schemas: tuple[AvroWriterSchema, ...]) -> dict[str, SparkColumn]:
    """Return the columns of flattened events, converted to envelopes."""
    return {
        _event(e.fingerprint): F.when(
            F.col(_event(e.fingerprint)).isNotNull(),
            F.struct(
                *envelope_of(F.col(_event(e.fingerprint)), e.schema.columns, e.writer.metadata_fields or ())
            ),
        )
        for e in writer_schemas
    }


def _event(number: int) -> str:
    """Return the name of the column with the events of one writer schema."""
    return f"event{number}"


@lru_cache(CACHED_EXPRESSIONS)
def _metadata_columns(writers: tuple[tuple[int, Writer], ...]) -> tuple[SparkColumn, ...]:
    """Return `op`, `source` and `tx_order` of events; all are null if Spark cannot parse the event."""
    events = [F.col(_event(number)) for number, _ in writers]
    fields = [
        _first([event.getField("source").getField(name) for event in events]).cast(kind).alias(name)
        for name, kind in SOURCE_FIELDS
    ]
    return (
        _first([event.getField("op") for event in events]).cast("string").alias("op"),
        F.struct(*fields).alias("source"),
        _first([event.getField("transaction").getField("total_order") for event in events])
        .cast("long")
        .alias("tx_order"),
    )


def _first(values: Sequence[SparkColumn]) -> SparkColumn:
    return F.coalesce(*values) if values else F.lit(None)


def _chosen(writer_schemas: Sequence[AvroWriterSchema], values: Sequence[SparkColumn]) -> SparkColumn:
    """Return the value in `values` that belongs to the writer schema of an event; null if it has none of these."""
    chosen = F.when(F.lit(False), F.lit(None))
    for writer_schema, value in zip(writer_schemas, values, strict=True):
        chosen = chosen.when(_belongs(writer_schema), value)
    return chosen


def _belongs(writer_schema: AvroWriterSchema) -> SparkColumn:
    own = F.col("carried") == writer_schema.fingerprint
    if writer_schema.first is None and writer_schema.end is None:
        return own
    return own & is_in_range(F.col("source"), writer_schema.first, writer_schema.end)


@lru_cache(CACHED_EXPRESSIONS)
def _decoded_rows(
    writer_schemas: tuple[AvroWriterSchema, ...], for_changelog: bool
) -> tuple[SparkColumn, ...]:
    rows, given = [], []
    for i, writer_schema in enumerate(writer_schemas):
        event = F.col(_event(writer_schema.fingerprint))
        before, after = event.getField("before"), event.getField("after")
        rows.append(
            decoded_row(before, writer_schema.before_columns(for_changelog=for_changelog)).alias(
                f"decoded_before{i}"
            )
        )
        image = decoded_after(after, writer_schema, F.col("op"), F.col("source"))
        rows.append(image.alias(f"decoded_after{i}"))
        given.append(present_values(before, after, writer_schema.schema, for_changelog))
    lacking = [
        F.col(_event(e.fingerprint)).getField("lacking")
        for e in writer_schemas
        if e.writer.metadata_fields is not None
    ]
    names = (
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "in_range_end",
        "carried",
        "op",
        "source",
        "tx_order",
    )
    return (
        *(F.col(name) for name in names),
        *rows,
        _chosen(writer_schemas, given).alias("present"),
        file_number(F.col("source")).alias("file_number"),
        _first(lacking).cast("string").alias("lacking"),
    )


@lru_cache(CACHED_EXPRESSIONS)
def _image_columns(
    writer_schemas: tuple[AvroWriterSchema, ...], target: TableSchema, for_changelog: bool
) -> tuple[SparkColumn, ...]:
    befores, afters = [], []
    for i, writer_schema in enumerate(writer_schemas):
        before, after = F.col(f"decoded_before{i}"), F.col(f"decoded_after{i}")
        befores.append(before_image(before, writer_schema, target, for_changelog))
        afters.append(after_image(after, writer_schema, target))
    before_columns = target.columns if for_changelog else target.key_columns
    return (
        event_position_key(F.col("source"), F.col("file_number")).alias("position_key"),
        _chosen(writer_schemas, befores).cast(row_type(before_columns)).alias("before"),
        _chosen(writer_schemas, afters).cast(row_type(target.columns)).alias("after"),
    )


@lru_cache(CACHED_EXPRESSIONS)
def _reason(
    writer_schemas: tuple[AvroWriterSchema, ...], target: TableSchema, undecodable: str, for_changelog: bool
) -> SparkColumn:
    known = (
        F.col("carried").isin(sorted({e.fingerprint for e in writer_schemas}))
        if writer_schemas
        else F.lit(False)
    )
    reading = [readable_values(writer_schema.schema, for_changelog) for writer_schema in writer_schemas]
    reason = (
        F.when(F.col("carried") == NO_WRITER, F.lit(_NOT_CONFLUENT))
        .when(~known, F.lit(undecodable))
        .when(F.col("lacking").isNotNull(), F.col("lacking"))
        .when(F.col("op").isNull(), F.lit("not Avro of its writer schema"))
        .when(
            F.col("present") != _chosen(writer_schemas, reading), F.lit("a value that its column cannot hold")
        )
    )
    return bad_reason(reason, target)
