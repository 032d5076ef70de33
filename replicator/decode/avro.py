"""Raw records → decoded events, where keys and values are Avro in Confluent's wire format.

A value begins with a zero byte and the four-byte id of the schema that it was written with; the frame is that of
`envelope`. Events of several writer schemas are decoded in one pass: each has a column of its own for the parsed
event, which is null for all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from replicator.decode.avro_schema import Writer
from replicator.decode.envelope import (
    TAIL,
    Epoch,
    after_image,
    before_image,
    event_place,
    frame_columns,
    judged,
    mark,
    near_end,
    number_given,
    number_read,
    own_row,
)
from replicator.decode.flat import envelope_of
from replicator.decode.values import row_type
from replicator.model.census import UNFAMILIAR
from replicator.model.commit import OffsetRange
from replicator.model.source_block import SOURCE_FIELDS
from replicator.model.table import TableSchema
from replicator.registry import HEADER_BYTES

NO_WRITER: Final = -1
"""The id of what is not in Confluent's wire format."""

_EXPRESSIONS: Final = 1024
_NOT_CONFLUENT: Final = "not in Confluent's wire format"

_NO_SCHEMA: Final = Writer("", "")


@dataclass(frozen=True, slots=True)
class AvroEpoch(Epoch):
    """Events of one writer schema; its id is the `fingerprint`."""

    writer: Writer = _NO_SCHEMA


def writer_id(value: SparkColumn) -> SparkColumn:
    """The id of the schema that a record was written with, a long; NO_WRITER where it has none."""
    header = F.hex(F.substring(value, 1, HEADER_BYTES))
    found = F.conv(F.substring(header, 3, 8), 16, 10).cast("long")
    return F.when((F.length(value) > HEADER_BYTES) & header.startswith("00"), found).otherwise(
        F.lit(NO_WRITER).cast("long")
    )


def decode(
    records: DataFrame,
    epochs: Sequence[Epoch],
    target: TableSchema,
    ranges: Sequence[OffsetRange],
    *,
    for_changelog: bool,
    stray: str = UNFAMILIAR,
    tail: int = TAIL,
) -> DataFrame:
    """Decode records of one table; as `envelope.decode`. Events of a writer schema that no epoch has get `stray`."""
    events = records.where(F.col("value").isNotNull()).withColumn("near_end", near_end(ranges, tail))
    known = tuple(e for e in epochs if isinstance(e, AvroEpoch))
    writers = tuple({e.fingerprint: e.writer for e in known}.items())
    parsed = events.select("*", _carried())
    parsed = parsed.select("*", *_parsed(writers))
    if flat := tuple(e for e in known if e.writer.marks is not None):
        parsed = parsed.withColumns(_unflattened(flat))
    placed = parsed.select("*", *_placed(writers))
    rows = placed.select(*_own_rows(known, for_changelog))
    images = rows.select("*", *_image_columns(known, target, for_changelog))
    reason = _reason(known, target, stray, for_changelog)
    return images.withColumn("bad", reason).select(*frame_columns(for_changelog))


def with_sources(records: DataFrame, writers: Sequence[tuple[int, Writer]]) -> DataFrame:
    """Raw records with their source blocks (column `source`), as far as they are of one of `writers` (by id)."""
    parsed = records.select("*", _carried()).select("*", *_parsed(tuple(writers)))
    sources = [_source_of(F.col(_event(number)), writer) for number, writer in writers]
    kinds = ",".join(f"{name}:{kind}" for name, kind in SOURCE_FIELDS)
    return parsed.select(*records.columns, _first(sources).cast(f"struct<{kinds}>").alias("source"))


def _source_of(event: SparkColumn, writer: Writer) -> SparkColumn:
    """A flattened event's source block stands in fields of its own."""
    if writer.marks is None:
        block = {name: event.getField("source").getField(name) for name, _ in SOURCE_FIELDS}
    else:
        block = {
            name: event.getField(f"__source_{name}") if f"__source_{name}" in writer.marks else F.lit(None)
            for name, _ in SOURCE_FIELDS
        }
    fields = [block[name].cast(kind).alias(name) for name, kind in SOURCE_FIELDS]
    return F.when(event.isNotNull(), F.struct(*fields))


# As in `envelope`: building an expression takes a call into the JVM for each part of it.


@lru_cache(1)
def _carried() -> SparkColumn:
    return writer_id(F.col("value")).alias("carried")


@lru_cache(_EXPRESSIONS)
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


@lru_cache(_EXPRESSIONS)
def _unflattened(epochs: tuple[AvroEpoch, ...]) -> dict[str, SparkColumn]:
    """The columns of flattened events, made envelopes."""
    return {
        _event(e.fingerprint): F.when(
            F.col(_event(e.fingerprint)).isNotNull(),
            F.struct(*envelope_of(F.col(_event(e.fingerprint)), e.columns, e.writer.marks or ())),
        )
        for e in epochs
    }


def _event(number: int) -> str:
    """The column with the events of one writer schema."""
    return f"event{number}"


@lru_cache(_EXPRESSIONS)
def _placed(writers: tuple[tuple[int, Writer], ...]) -> tuple[SparkColumn, ...]:
    """What tells about an event before its row is looked at. Spark leaves every field null where it cannot parse."""
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
        .alias("nth"),
    )


def _first(values: Sequence[SparkColumn]) -> SparkColumn:
    return F.coalesce(*values) if values else F.lit(None)


def _chosen(epochs: Sequence[AvroEpoch], values: Sequence[SparkColumn]) -> SparkColumn:
    """Of each epoch's value the one whose epoch an event belongs to."""
    chosen = F.when(F.lit(False), F.lit(None))
    for epoch, value in zip(epochs, values, strict=True):
        chosen = chosen.when(_belongs(epoch), value)
    return chosen


def _belongs(epoch: AvroEpoch) -> SparkColumn:
    own, place = F.col("carried") == epoch.fingerprint, event_place(F.col("source"))
    if epoch.first is not None:
        own &= place >= epoch.first
    if epoch.end is not None:
        own &= place < epoch.end
    return own


@lru_cache(_EXPRESSIONS)
def _own_rows(epochs: tuple[AvroEpoch, ...], for_changelog: bool) -> tuple[SparkColumn, ...]:
    rows, given = [], []
    for i, epoch in enumerate(epochs):
        event = F.col(_event(epoch.fingerprint))
        before, after = event.getField("before"), event.getField("after")
        rows.append(
            own_row(before, epoch.before_columns(for_changelog=for_changelog)).alias(f"own_before{i}")
        )
        rows.append(own_row(after, epoch.columns).alias(f"own_after{i}"))
        given.append(number_given(before, after, epoch.schema, for_changelog))
    lacking = [F.col(_event(e.fingerprint)).getField("lacking") for e in epochs if e.writer.marks is not None]
    names = ("partition", "offset", "timestamp", "key", "value", "near_end", "carried", "op", "source", "nth")
    return (
        *(F.col(name) for name in names),
        *rows,
        _chosen(epochs, given).alias("given"),
        _first(lacking).cast("string").alias("lacking"),
    )


@lru_cache(_EXPRESSIONS)
def _image_columns(
    epochs: tuple[AvroEpoch, ...], target: TableSchema, for_changelog: bool
) -> tuple[SparkColumn, ...]:
    marks, befores, afters = [], [], []
    for i, epoch in enumerate(epochs):
        before, after = F.col(f"own_before{i}"), F.col(f"own_after{i}")
        marks.append(mark(before, after, epoch, for_changelog))
        befores.append(before_image(before, epoch, target, for_changelog))
        afters.append(after_image(after, epoch, target))
    before_columns = target.columns if for_changelog else target.key_columns
    return (
        _chosen(epochs, marks).cast("long").alias("mark"),
        _chosen(epochs, befores).cast(row_type(before_columns)).alias("before"),
        _chosen(epochs, afters).cast(row_type(target.columns)).alias("after"),
    )


@lru_cache(_EXPRESSIONS)
def _reason(
    epochs: tuple[AvroEpoch, ...], target: TableSchema, stray: str, for_changelog: bool
) -> SparkColumn:
    known = F.col("carried").isin(sorted({e.fingerprint for e in epochs})) if epochs else F.lit(False)
    reading = [number_read(epoch.schema, for_changelog) for epoch in epochs]
    strange = (
        F.when(F.col("carried") == NO_WRITER, F.lit(_NOT_CONFLUENT))
        .when(~known, F.lit(stray))
        .when(F.col("lacking").isNotNull(), F.col("lacking"))
        .when(F.col("op").isNull(), F.lit("not Avro of its writer schema"))
        .when(F.col("given") != _chosen(epochs, reading), F.lit("a value that its column cannot hold"))
    )
    return judged(strange, target)
