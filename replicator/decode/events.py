"""Decode raw records with Debezium's JSON envelope to typed columns.

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
file          string   binlog file; without a changelog only if `in_range_end`
gtid          string   GTID of the transaction; without a changelog only if `in_range_end`
in_range_end  boolean  whether the event is one of the last of its offset range
row_hash      long     hash of op and both rows as the event has them, which distinguishes it from its neighbours
tx_order      long     number of the event in its transaction, if the connector counts events
before        struct   row before the change, lake types; null for c and r; without a changelog only its key
after         struct   row after the change, lake types; null for d and t
bad           string   why the event cannot be applied; null if it can be
raw_key       binary   the raw record's key; only if `bad` is set
raw_value     binary   the raw record's value; only if `bad` is set
timestamp     long     when the record was written to the log, milliseconds since the epoch; only if `bad` is set
============  =======  ==========================================================================================

Facts of the format: Debezium's MySQL connector documentation, "Data change events".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from replicator.decode.flat import SOURCE_TYPES, envelope_of, flat_source, mark_fields
from replicator.decode.masking import transformed
from replicator.decode.values import (
    decoded,
    is_given,
    is_wide,
    may_be_unreadable,
    parsed_type,
    quoted_numbers,
    spark_type,
)
from replicator.errors import DecodeError
from replicator.jvm.position_columns import position_key, row_key
from replicator.model.batch_stats import (
    BAD_CODE,
    CHUNK_READ_CODE,
    LAST_READ_CODE,
    MESSAGE_CODE,
    OP_CODES,
    UNKNOWN_SCHEMA,
    UNKNOWN_SCHEMA_CODE,
)
from replicator.model.column_rules import stored_type
from replicator.model.commit_marker import OffsetRange
from replicator.model.position import LAST_MS, MOST_FILE_DIGITS, MOST_FILES, MOST_POS
from replicator.model.table import Column, TableSchema

_SOURCE_BLOCK: Final = StructType([StructField(name, kind) for name, kind in SOURCE_TYPES.items()])
RANGE_END: Final = 16
"""Number of offsets at the end of a range whose events have more details if the batch is large."""

_TRANSACTION_FIELDS: Final = StructType([StructField("total_order", LongType())])
_EXPRESSIONS: Final = 1024
SCHEMA_START: Final = '{"schema":'
_PAYLOAD: Final = '"payload":'


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema with which a group of events was written.

    Attributes:
        schema: the columns with their current names, and with their types before masking or hashing.
        fingerprint: hash of the schema in the events; 0 for events without one.
        begins: the text of the events up to the payload, which contains their schema; empty for events without one.
        first: the first position key at which it applies; None if it applies from the beginning.
        end: the first position key at which it no longer applies; None if it is open.
        superseded_columns: dropped columns whose name another column has now: images lack them, row hashes include
            them.
    """

    schema: TableSchema
    fingerprint: int = 0
    begins: str = ""
    first: int | None = None
    end: int | None = None
    superseded_columns: tuple[Column, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of an event that are read."""
        return (*self.schema.columns, *self.superseded_columns)

    def before_columns(self, *, for_changelog: bool) -> tuple[Column, ...]:
        """Return the columns that are read of a before-image: all, or without a changelog only the key."""
        return self.columns if for_changelog else self.schema.key_columns


EVENT_DETAILS: Final = ("offset", "gtid", "tx_order", "row_hash")
"""Columns that distinguish events with the same position."""


def event_source(value: SparkColumn, *, flattened: bool = False) -> SparkColumn:
    """Return the source block (`_SOURCE_BLOCK`) of a JSON event with or without a schema; null if it has none."""
    block = mark_fields() if flattened else [StructField("source", _SOURCE_BLOCK)]
    whole = StructType([*block, StructField("payload", StructType(block))])
    event = F.from_json(value.cast("string"), whole)
    events = (event, event.getField("payload"))
    if flattened:
        return F.coalesce(*[F.when(e.getField("__op").isNotNull(), flat_source(e)) for e in events])
    return F.coalesce(*[e.getField("source") for e in events])


def beginning(value: bytes) -> str:
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


def event_position_key(source: SparkColumn) -> SparkColumn:
    """Return the position key of an event from its source block; null if its position or time is invalid.

    If it is not null, `binlog_number` accepts the file name, and the key fits into a long.
    """
    digits, pos = F.substring_index(source.getField("file"), ".", -1), source.getField("pos")
    # Casts ignore blanks and signs. A regular expression takes longer than comparing the first and last character.
    bare = digits.between("0", ":") & F.substring(digits, -1, 1).between("0", "9")
    number = F.when(bare & (F.length(digits) <= MOST_FILE_DIGITS), digits.cast("long"))
    time = F.coalesce(source.getField("ts_ms"), F.lit(0))
    real = (number <= MOST_FILES) & pos.between(0, MOST_POS) & time.between(0, LAST_MS)
    return F.when(real, position_key(number, pos))


def fingerprint(value: SparkColumn) -> SparkColumn:
    """Return the hash of the schema in a JSON event; 0 if it has none.

    The text up to the payload is the schema, byte for byte the same in all events of one schema. The key ``"payload":``
    cannot occur inside it, because quotes in labels and defaults are escaped.
    """
    text = value.cast("string")
    return F.when(text.startswith(SCHEMA_START), F.xxhash64(F.substring_index(text, _PAYLOAD, 1))).otherwise(
        F.lit(0).cast("long")
    )


def decode(
    records: DataFrame,
    writer_schemas: Sequence[WriterSchema],
    target: TableSchema,
    ranges: Sequence[OffsetRange],
    *,
    for_changelog: bool,
    undecodable: str = UNKNOWN_SCHEMA,
    range_end: int = RANGE_END,
    flattened: bool = False,
) -> DataFrame:
    """Decode records of one table (partition, offset, timestamp, key, value) to the frame above.

    Args:
        records: raw records of the log.
        writer_schemas: all schemas that the records may have; no two overlap.
        target: the schema of the `before` and `after` columns, with types for the values of all writer schemas.
        ranges: the offset ranges of `records`.
        for_changelog: whether to decode all that a changelog row needs; a mirror needs less.
        undecodable: the verdict on events with a schema that no writer schema has.
        range_end: how many offsets of each range count as its end.
        flattened: whether events are rows instead of envelopes; see `model.debezium`.
    """
    events = records.where(F.col("value").isNotNull()).withColumn(
        "in_range_end", in_range_end(ranges, range_end)
    )
    frames = [
        _decode_epoch(
            _of_epoch(events, writer_schema, writer_schemas, flattened),
            writer_schema,
            target,
            for_changelog,
            undecodable,
            flattened,
        )
        for writer_schema in writer_schemas
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    return frame


def _of_epoch(
    events: DataFrame, writer_schema: WriterSchema, writer_schemas: Sequence[WriterSchema], flattened: bool
) -> DataFrame:
    """Select the events of one writer schema; the last one also gets events of no writer schema, to report them."""
    if len(writer_schemas) == 1:
        return events
    own = _is_of(writer_schema.begins) & _at_its_time(writer_schema, flattened)
    if writer_schema is writer_schemas[-1]:
        own |= ~reduce(or_, map(_is_of, dict.fromkeys(e.begins for e in writer_schemas)))
    return events.where(own)


def _is_of(begins: str) -> SparkColumn:
    """Return whether an event has the schema with the text `begins`."""
    text = F.col("value").cast("string")
    return text.startswith(begins) if begins else ~text.startswith(SCHEMA_START)


def _payload(begins: str) -> SparkColumn:
    """Return the text of an event without its schema; cut by bytes, because counting characters takes longer."""
    if not begins:
        return F.col("value").cast("string")
    start = len(begins.encode())
    # The last byte, after the payload, closes the object with schema and payload.
    rest = F.length("value") - (start + 1)
    return F.substr("value", F.lit(start + 1), rest).cast("string")


def _at_its_time(writer_schema: WriterSchema, flattened: bool) -> SparkColumn:
    if writer_schema.first is None and writer_schema.end is None:
        return F.lit(True)
    position_key = event_position_key(event_source(_payload(writer_schema.begins), flattened=flattened))
    condition = F.lit(True)
    if writer_schema.first is not None:
        condition &= position_key >= writer_schema.first
    if writer_schema.end is not None:
        # An event without a readable position is decoded once, by the last writer schema, and reported there.
        return condition & (position_key < writer_schema.end)
    return F.coalesce(condition, F.lit(True))


def in_range_end(ranges: Sequence[OffsetRange], range_end: int) -> SparkColumn:
    """Return whether an offset is one of the last `range_end` of its range; markers need the furthest event.

    The ends are a map, because literals would be part of the code that Spark generates, which every batch would then
    compile again.
    """
    ends = F.create_map(*[F.lit(n) for r in ranges for n in (r.partition, r.end - range_end)])
    return F.coalesce(F.col("offset") >= F.element_at(ends, F.col("partition")), F.lit(False))


def _decode_epoch(
    events: DataFrame,
    writer_schema: WriterSchema,
    target: TableSchema,
    for_changelog: bool,
    undecodable: str,
    flattened: bool,
) -> DataFrame:
    if flattened:
        flat = events.withColumn("f", _parsed_flat(writer_schema))
        parsed = flat.withColumn("e", _unflattened(writer_schema))
    else:
        parsed = events.withColumn("e", _parsed(writer_schema, for_changelog))
    # Rows are decoded only once, for both the row hash and the image.
    rows = parsed.select(*_own_rows(writer_schema, for_changelog, flattened))
    images = rows.select("*", *_image_columns(writer_schema, target, for_changelog))
    reason = _reason(writer_schema, undecodable, for_changelog, flattened)
    return images.withColumn("bad", reason).select(*frame_columns(for_changelog))


# Building an expression takes a JVM call for each part. The expressions of a table are the same in every batch, so they
# are cached.


@lru_cache(_EXPRESSIONS)
def _parsed(writer_schema: WriterSchema, for_changelog: bool) -> SparkColumn:
    """Parse an event's JSON, without its schema, as a struct."""
    fields = [
        StructField("before", _parsed_row(writer_schema.before_columns(for_changelog=for_changelog))),
        StructField("after", _parsed_row(writer_schema.columns)),
        StructField("source", _SOURCE_BLOCK),
        StructField("op", StringType()),
        StructField("transaction", _TRANSACTION_FIELDS),
    ]
    return _from_json(fields, writer_schema)


@lru_cache(_EXPRESSIONS)
def _parsed_flat(writer_schema: WriterSchema) -> SparkColumn:
    """Parse a flattened event's JSON, without its schema, as a struct."""
    return _from_json([*_parsed_row(writer_schema.columns).fields, *mark_fields()], writer_schema)


def _from_json(fields: Sequence[StructField], writer_schema: WriterSchema) -> SparkColumn:
    event = StructType([*fields, StructField("_corrupt", StringType())])
    text = quoted_numbers(_payload(writer_schema.begins), writer_schema.columns)
    return F.from_json(text, event, {"columnNameOfCorruptRecord": "_corrupt"})


@lru_cache(_EXPRESSIONS)
def _unflattened(writer_schema: WriterSchema) -> SparkColumn:
    return F.struct(*envelope_of(F.col("f"), writer_schema.columns), F.col("f._corrupt").alias("_corrupt"))


@lru_cache(_EXPRESSIONS)
def _own_rows(writer_schema: WriterSchema, for_changelog: bool, flattened: bool) -> tuple[SparkColumn, ...]:
    event = F.col("e")
    before, after = event.getField("before"), event.getField("after")
    return (
        *(F.col(name) for name in ("partition", "offset", "timestamp", "key", "value", "in_range_end")),
        event.getField("op").alias("op"),
        event.getField("source").alias("source"),
        event.getField("transaction").getField("total_order").alias("tx_order"),
        own_row(before, writer_schema.before_columns(for_changelog=for_changelog)).alias("own_before"),
        own_row(after, writer_schema.columns).alias("own_after"),
        F.col("e._corrupt").alias("corrupt"),
        number_given(before, after, writer_schema.schema, for_changelog).alias("given"),
        *([F.col("e.lacking").alias("lacking")] if flattened else []),
    )


@lru_cache(_EXPRESSIONS)
def _image_columns(
    writer_schema: WriterSchema, target: TableSchema, for_changelog: bool
) -> tuple[SparkColumn, ...]:
    before, after = F.col("own_before"), F.col("own_after")
    return (
        row_hash(before, after, writer_schema, for_changelog).alias("row_hash"),
        before_image(before, writer_schema, target, for_changelog).alias("before"),
        after_image(after, writer_schema, target).alias("after"),
    )


def number_given(
    before: SparkColumn, after: SparkColumn, schema: TableSchema, for_changelog: bool
) -> SparkColumn:
    """Count the values in parsed rows that are present and may be unreadable."""
    checked = [(row.getField(c.written), c) for row, c in _doubtful(before, after, schema, for_changelog)]
    return number_of([F.coalesce(is_given(value, c), F.lit(False)) for value, c in checked])


def number_read(schema: TableSchema, for_changelog: bool) -> SparkColumn:
    """Count the values in images of those that may be unreadable; it equals `number_given` if all were readable."""
    values = _doubtful(F.col("before"), F.col("after"), schema, for_changelog)
    return number_of([row.getField(c.name).isNotNull() for row, c in values])


def _doubtful(
    before: SparkColumn, after: SparkColumn, schema: TableSchema, for_changelog: bool
) -> list[tuple[SparkColumn, Column]]:
    columns = [(before, c) for c in (schema.columns if for_changelog else schema.key_columns)]
    columns += [(after, c) for c in schema.columns]
    return [(row, c) for row, c in columns if may_be_unreadable(c)]


def number_of(conditions: Sequence[SparkColumn]) -> SparkColumn:
    total = F.lit(0)
    for condition in conditions:
        total += condition.cast("int")
    return total


@lru_cache(_EXPRESSIONS)
def frame_columns(for_changelog: bool) -> tuple[SparkColumn, ...]:
    """Return the columns of the decoded frame from images and verdicts; only bad events keep the raw record."""
    source, op, keep = F.col("source"), F.col("op"), F.col("bad").isNotNull()
    named = F.lit(True) if for_changelog else F.col("in_range_end")
    kind = F.when(op.isin("d", "t"), F.lit(0)).otherwise(F.lit(1))
    return (
        F.col("partition"),
        F.col("offset"),
        F.when(~keep, op).alias("op"),
        _code().alias("code"),
        event_position_key(source).alias("position_key"),
        row_key(F.coalesce(source.getField("row"), F.lit(0)), kind).alias("row_key"),
        source.getField("ts_ms").alias("ts_ms"),
        F.coalesce(source.getField("server_id"), F.lit(0)).alias("server_id"),
        F.when(named, source.getField("file")).alias("file"),
        F.when(named, source.getField("gtid")).alias("gtid"),
        F.col("in_range_end"),
        F.col("row_hash"),
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
    code = code.when(op == "m", F.lit(MESSAGE_CODE))
    for name, number in OP_CODES.items():
        code = code.when(op == name, F.lit(number))
    return code.cast("tinyint")


@lru_cache(_EXPRESSIONS)
def _reason(
    writer_schema: WriterSchema, undecodable: str, for_changelog: bool, flattened: bool
) -> SparkColumn:
    schema = writer_schema.schema
    read = number_read(schema, for_changelog)
    # The encoding of decimals may have changed; then the batch must be examined again.
    doubtful = undecodable == UNKNOWN_SCHEMA and any(
        c.type.name == "decimal" or is_wide(c) for c in schema.columns
    )
    unreadable = F.lit(UNKNOWN_SCHEMA if doubtful else "not JSON of the table's schema")
    strange = F.when(~_is_of(writer_schema.begins), F.lit(undecodable)).when(
        F.col("corrupt").isNotNull() | (F.col("given") != read), unreadable
    )
    if flattened:
        strange = strange.when(F.col("lacking").isNotNull(), F.col("lacking"))
    return judged(strange, schema)


def judged(reason: SparkColumn, schema: TableSchema) -> SparkColumn:
    """Return `reason` (a `when` with errors of the record itself), otherwise why the event cannot be applied."""
    op, before, after = F.col("op"), F.col("before"), F.col("after")
    null_key = F.lit(False)
    for name in schema.key:
        null_key |= F.when(op == "d", before.getField(name)).otherwise(after.getField(name)).isNull()
    return (
        reason.when(op.isNull(), F.lit("no op: not a Debezium change event"))
        .when(~op.isin(*OP_CODES, "m"), F.concat(F.lit("unknown op "), op))
        .when(event_position_key(F.col("source")).isNull(), F.lit("no source position"))
        .when(op.isin("t", "m"), F.lit(None))
        .when((op == "d") & before.isNull(), F.lit("delete without a before-image"))
        .when((op != "d") & after.isNull(), F.lit("no after-image"))
        .when(F.lit(not schema.key) & (op == "u") & before.isNull(), F.lit("update without a before-image"))
        .when(null_key, F.lit("null in the key"))
    )


def _parsed_row(columns: Sequence[Column]) -> StructType:
    return StructType([StructField(c.written, parsed_type(c)) for c in columns])


def own_row(row: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """Decode a parsed row and apply column transforms; columns have their names in the event."""
    fields = []
    for c in columns:
        value = transformed(decoded(row.getField(c.written), c), c.type, c.transform)
        fields.append(value.cast(spark_type(stored_type(c))).alias(c.written))
    return F.when(row.isNotNull(), F.struct(*fields))


def row_hash(
    before: SparkColumn, after: SparkColumn, writer_schema: WriterSchema, for_changelog: bool
) -> SparkColumn:
    """Return a hash of op and of the rows made by `own_row`; it does not depend on later schema changes."""
    rows = (before, writer_schema.before_columns(for_changelog=for_changelog)), (after, writer_schema.columns)
    names = [(row, name) for row, columns in rows for name in sorted(c.written for c in columns)]
    # A null does not change the hash, so a constant separates the values.
    return F.xxhash64("op", *(part for row, name in names for part in (row.getField(name), F.lit(0))))


def before_image(
    row: SparkColumn, writer_schema: WriterSchema, target: TableSchema, for_changelog: bool
) -> SparkColumn:
    """Map a before-image made by `own_row` to the target's columns."""
    if for_changelog:
        return after_image(row, writer_schema, target)
    return _lake_row(row, writer_schema.schema.key_columns, target.key_columns)


def after_image(row: SparkColumn, writer_schema: WriterSchema, target: TableSchema) -> SparkColumn:
    """Map an after-image made by `own_row` to the target's columns."""
    return _lake_row(
        row, writer_schema.schema.columns, target.columns, whole=not writer_schema.superseded_columns
    )


def _lake_row(
    row: SparkColumn, columns: Sequence[Column], target: Sequence[Column], *, whole: bool = True
) -> SparkColumn:
    """Map a row to the target's columns; columns that the event lacks are filled as the source fills them.

    `columns` are the row's columns, all of them if `whole`.
    """
    if whole and [(c.written, stored_type(c)) for c in columns] == [(c.name, c.type) for c in target]:
        return row
    known = {c.name: c for c in columns}
    fields = []
    for wanted in target:
        own = known.get(wanted.name)
        if own is None:
            # Spark considers a constant never null, which would not fit a row that is null as a whole.
            value = F.when(row.isNotNull(), F.lit(wanted.fill)).cast(spark_type(wanted.type))
        else:
            # A value written before a type change may arrive late and be invalid for the new type.
            given = row.getField(own.written)
            loose = not wanted.type.holds(stored_type(own))
            value = (given.try_cast if loose else given.cast)(spark_type(wanted.type))
        fields.append(value.alias(wanted.name))
    return F.when(row.isNotNull(), F.struct(*fields))
