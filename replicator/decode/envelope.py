"""Raw records → decoded events: Debezium's JSON envelope as typed columns.

The decoded frame has one row for each record that is not a tombstone, in these columns:

==========  =========  ==========================================================================================
partition   int        partition of the topic
offset      long       offset in that partition
op          string     c u d r t m; null where `bad` is set
code        byte       the same as a number: OP_CODES and the other codes of `model.census`
hi          long       binlog file number << 40 | position in the file: orders events of one server
lo          long       row in the event << 1 | (0 for d and t, else 1): orders rows of one event
ts_ms       long       the source's time, milliseconds since the epoch
server_id   long       the server that wrote the event
file        string     binlog file, and
gtid        string     the transaction; without a changelog only where `near_end`
near_end    boolean    one of the last events of its range
mark        long       a hash of op and both rows as the event has them, which tells it from its neighbours
nth         long       its number in its transaction, where the connector counts them
before      struct     the row before, lake types; null for c and r; only its key without a changelog
after       struct     the row after, lake types; null for d and t
bad         string     why the event cannot be applied; null for a good one
raw_key     binary     the record as it came, only where `bad` is set
raw_value   binary
timestamp   long       when the record was written to the log, milliseconds; only where `bad` is set
==========  =========  ==========================================================================================

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
from replicator.decode.shields import shielded
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
from replicator.model.census import (
    BAD_CODE,
    CHUNK_READ_CODE,
    LAST_READ_CODE,
    MESSAGE_CODE,
    OP_CODES,
    UNFAMILIAR,
    UNFAMILIAR_CODE,
)
from replicator.model.columns import stored_type
from replicator.model.commit import OffsetRange
from replicator.model.position import FILE_SHIFT
from replicator.model.table import Column, TableSchema

_SOURCE_BLOCK: Final = StructType([StructField(name, kind) for name, kind in SOURCE_TYPES.items()])
TAIL: Final = 16
"""Offsets at the end of a range of which more is told where events are many."""

_TRANSACTION_FIELDS: Final = StructType([StructField("total_order", LongType())])
_EXPRESSIONS: Final = 1024
SCHEMA_START: Final = '{"schema":'
_PAYLOAD: Final = '"payload":'


@dataclass(frozen=True, slots=True)
class Epoch:
    """Events that share one schema.

    Attributes:
        schema: their schema; names are those that columns have now, types those of values not yet masked or hashed.
        fingerprint: hash of the schema that the events carry; 0 for events without one.
        begins: how those events begin, up to the payload: their schema as text; empty for events without one.
        first: the first (hi) position of the epoch, None: from the beginning.
        end: the first (hi) position after it, None: open.
        unseen: columns that went, and whose name another one has now: no image has them, but marks do.
    """

    schema: TableSchema
    fingerprint: int = 0
    begins: str = ""
    first: int | None = None
    end: int | None = None
    unseen: tuple[Column, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of an event that are read."""
        return (*self.schema.columns, *self.unseen)

    def before_columns(self, *, for_changelog: bool) -> tuple[Column, ...]:
        """Those that are read of a row before its change."""
        return self.columns if for_changelog else self.schema.key_columns


EVENT_DETAILS: Final = ("offset", "gtid", "nth", "mark")
"""What tells events apart that stand at one place."""


def event_source(value: SparkColumn, *, flattened: bool = False) -> SparkColumn:
    """The source block (`_SOURCE_BLOCK`) of a JSON event, with or without its schema; null where it has none."""
    block = mark_fields() if flattened else [StructField("source", _SOURCE_BLOCK)]
    whole = StructType([*block, StructField("payload", StructType(block))])
    event = F.from_json(value.cast("string"), whole)
    events = (event, event.getField("payload"))
    if flattened:
        return F.coalesce(*[F.when(e.getField("__op").isNotNull(), flat_source(e)) for e in events])
    return F.coalesce(*[e.getField("source") for e in events])


def beginning(value: bytes) -> str:
    """An event's text up to its payload: all events of its schema begin so. Raises DecodeError where it has no payload.

    See `fingerprint`, which is a hash of it.
    """
    schema, payload, _ = value.partition(_PAYLOAD.encode())
    if not payload:
        raise DecodeError("the event has no payload")
    try:
        return (schema + payload).decode()
    except UnicodeDecodeError:
        raise DecodeError("the event's schema is not in UTF-8") from None


def event_place(source: SparkColumn) -> SparkColumn:
    """Where an event stands (`hi`), out of its source block."""
    number = F.substring_index(source.getField("file"), ".", -1).cast("long")
    return F.shiftleft(number, FILE_SHIFT) + source.getField("pos")


def fingerprint(value: SparkColumn) -> SparkColumn:
    """Hash of the schema in a JSON event, 0 where it has none.

    The text up to the payload is the schema, byte for byte the same in all events of one schema. The
    key ``"payload":`` cannot occur inside it: there, quotes of labels and defaults are escaped.
    """
    text = value.cast("string")
    return F.when(text.startswith(SCHEMA_START), F.xxhash64(F.substring_index(text, _PAYLOAD, 1))).otherwise(
        F.lit(0).cast("long")
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
    flattened: bool = False,
) -> DataFrame:
    """Decode records of one table (partition, offset, timestamp, key, value) to the frame above.

    Args:
        records: as the log gives them.
        epochs: every schema that the records may have; no two overlap.
        target: the schema of the `before` and `after` columns; holds every epoch's values.
        ranges: what `records` was read from.
        for_changelog: whether everything is wanted that a changelog row needs; a mirror needs less.
        stray: the verdict on events that carry a schema which no epoch has.
        tail: how many offsets of each range count as its end.
        flattened: whether events are rows and not envelopes; see `model.flat`.
    """
    events = records.where(F.col("value").isNotNull()).withColumn("near_end", near_end(ranges, tail))
    frames = [
        _decode_epoch(
            _of_epoch(events, epoch, epochs, flattened), epoch, target, for_changelog, stray, flattened
        )
        for epoch in epochs
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    return frame


def _of_epoch(events: DataFrame, epoch: Epoch, epochs: Sequence[Epoch], flattened: bool) -> DataFrame:
    """The events of one epoch. The last one also gets what belongs to none, to be reported there."""
    if len(epochs) == 1:
        return events
    own = _is_of(epoch.begins) & _at_its_time(epoch, flattened)
    if epoch is epochs[-1]:
        own |= ~reduce(or_, map(_is_of, dict.fromkeys(e.begins for e in epochs)))
    return events.where(own)


def _is_of(begins: str) -> SparkColumn:
    """Whether an event has the schema of an epoch that `begins` so."""
    text = F.col("value").cast("string")
    return text.startswith(begins) if begins else ~text.startswith(SCHEMA_START)


def _payload(begins: str) -> SparkColumn:
    """The text of an event that begins so, without its schema. By bytes: counting characters takes longer."""
    if not begins:
        return F.col("value").cast("string")
    start = len(begins.encode())
    # What is behind the payload closes the object that carries the schema.
    rest = F.length("value") - (start + 1)
    return F.substr("value", F.lit(start + 1), rest).cast("string")


def _at_its_time(epoch: Epoch, flattened: bool) -> SparkColumn:
    if epoch.first is None and epoch.end is None:
        return F.lit(True)
    hi = event_place(event_source(_payload(epoch.begins), flattened=flattened))
    condition = F.lit(True)
    if epoch.first is not None:
        condition &= hi >= epoch.first
    if epoch.end is not None:
        # An event without a readable position is decoded once, by the last epoch, and reported there.
        return condition & (hi < epoch.end)
    return F.coalesce(condition, F.lit(True))


def near_end(ranges: Sequence[OffsetRange], tail: int) -> SparkColumn:
    """The last few offsets of each range; the furthest event, which markers name, is among them.

    A map, because numbers would stand in the code that Spark generates, and every batch would compile it anew.
    """
    ends = F.create_map(*[F.lit(n) for r in ranges for n in (r.partition, r.end - tail)])
    return F.coalesce(F.col("offset") >= F.element_at(ends, F.col("partition")), F.lit(False))


def _decode_epoch(
    events: DataFrame, epoch: Epoch, target: TableSchema, for_changelog: bool, stray: str, flattened: bool
) -> DataFrame:
    if flattened:
        flat = events.withColumn("f", _parsed_flat(epoch))
        parsed = flat.withColumn("e", _unflattened(epoch))
    else:
        parsed = events.withColumn("e", _parsed(epoch, for_changelog))
    # Rows are decoded once, for the mark and for the image.
    rows = parsed.select(*_own_rows(epoch, for_changelog, flattened))
    images = rows.select("*", *_image_columns(epoch, target, for_changelog))
    reason = _reason(epoch, stray, for_changelog, flattened)
    return images.withColumn("bad", reason).select(*frame_columns(for_changelog))


# Building an expression takes a call into the JVM for each part of it. A table's are the same in every batch.


@lru_cache(_EXPRESSIONS)
def _parsed(epoch: Epoch, for_changelog: bool) -> SparkColumn:
    """The event's JSON as a struct, without its schema."""
    fields = [
        StructField("before", _parsed_row(epoch.before_columns(for_changelog=for_changelog))),
        StructField("after", _parsed_row(epoch.columns)),
        StructField("source", _SOURCE_BLOCK),
        StructField("op", StringType()),
        StructField("transaction", _TRANSACTION_FIELDS),
    ]
    return _from_json(fields, epoch)


@lru_cache(_EXPRESSIONS)
def _parsed_flat(epoch: Epoch) -> SparkColumn:
    """A flattened event's JSON as a struct, without its schema."""
    return _from_json([*_parsed_row(epoch.columns).fields, *mark_fields()], epoch)


def _from_json(fields: Sequence[StructField], epoch: Epoch) -> SparkColumn:
    event = StructType([*fields, StructField("_corrupt", StringType())])
    text = quoted_numbers(_payload(epoch.begins), epoch.columns)
    return F.from_json(text, event, {"columnNameOfCorruptRecord": "_corrupt"})


@lru_cache(_EXPRESSIONS)
def _unflattened(epoch: Epoch) -> SparkColumn:
    return F.struct(*envelope_of(F.col("f"), epoch.columns), F.col("f._corrupt").alias("_corrupt"))


@lru_cache(_EXPRESSIONS)
def _own_rows(epoch: Epoch, for_changelog: bool, flattened: bool) -> tuple[SparkColumn, ...]:
    event = F.col("e")
    before, after = event.getField("before"), event.getField("after")
    return (
        *(F.col(name) for name in ("partition", "offset", "timestamp", "key", "value", "near_end")),
        event.getField("op").alias("op"),
        event.getField("source").alias("source"),
        event.getField("transaction").getField("total_order").alias("nth"),
        own_row(before, epoch.before_columns(for_changelog=for_changelog)).alias("own_before"),
        own_row(after, epoch.columns).alias("own_after"),
        F.col("e._corrupt").alias("corrupt"),
        number_given(before, after, epoch.schema, for_changelog).alias("given"),
        *([F.col("e.lacking").alias("lacking")] if flattened else []),
    )


@lru_cache(_EXPRESSIONS)
def _image_columns(epoch: Epoch, target: TableSchema, for_changelog: bool) -> tuple[SparkColumn, ...]:
    before, after = F.col("own_before"), F.col("own_after")
    return (
        mark(before, after, epoch, for_changelog).alias("mark"),
        before_image(before, epoch, target, for_changelog).alias("before"),
        after_image(after, epoch, target).alias("after"),
    )


def number_given(
    before: SparkColumn, after: SparkColumn, schema: TableSchema, for_changelog: bool
) -> SparkColumn:
    """How many values are there, in parsed rows, of those that may be unreadable."""
    checked = [(row.getField(c.written), c) for row, c in _doubtful(before, after, schema, for_changelog)]
    return number_of([F.coalesce(is_given(value, c), F.lit(False)) for value, c in checked])


def number_read(schema: TableSchema, for_changelog: bool) -> SparkColumn:
    """How many of these values images have."""
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
    """The decoded frame, from the images and their verdict; the raw record only of bad events."""
    source, op, keep = F.col("source"), F.col("op"), F.col("bad").isNotNull()
    named = F.lit(True) if for_changelog else F.col("near_end")
    kind = F.when(op.isin("d", "t"), F.lit(0)).otherwise(F.lit(1))
    return (
        F.col("partition"),
        F.col("offset"),
        F.when(~keep, op).alias("op"),
        _code().alias("code"),
        event_place(source).alias("hi"),
        (F.coalesce(source.getField("row"), F.lit(0)).cast("long") * 2 + kind).alias("lo"),
        source.getField("ts_ms").alias("ts_ms"),
        F.coalesce(source.getField("server_id"), F.lit(0)).alias("server_id"),
        F.when(named, source.getField("file")).alias("file"),
        F.when(named, source.getField("gtid")).alias("gtid"),
        F.col("near_end"),
        F.col("mark"),
        F.col("nth"),
        F.col("before"),
        F.col("after"),
        F.col("bad"),
        F.when(keep, F.col("key")).alias("raw_key"),
        F.when(keep, F.col("value")).alias("raw_value"),
        F.when(keep, F.col("timestamp")).alias("timestamp"),
    )


def _code() -> SparkColumn:
    bad, op, snapshot = F.col("bad"), F.col("op"), F.col("source").getField("snapshot")
    code = F.when(bad == UNFAMILIAR, F.lit(UNFAMILIAR_CODE)).when(bad.isNotNull(), F.lit(BAD_CODE))
    code = code.when((op == "r") & (snapshot == "incremental"), F.lit(CHUNK_READ_CODE))
    code = code.when((op == "r") & snapshot.startswith("last"), F.lit(LAST_READ_CODE))
    code = code.when(op == "m", F.lit(MESSAGE_CODE))
    for name, number in OP_CODES.items():
        code = code.when(op == name, F.lit(number))
    return code.cast("tinyint")


@lru_cache(_EXPRESSIONS)
def _reason(epoch: Epoch, stray: str, for_changelog: bool, flattened: bool) -> SparkColumn:
    schema = epoch.schema
    read = number_read(schema, for_changelog)
    # Decimals may be written in another form than they were: then to look at them again helps.
    doubtful = stray == UNFAMILIAR and any(c.type.name == "decimal" or is_wide(c) for c in schema.columns)
    unreadable = F.lit(UNFAMILIAR if doubtful else "not JSON of the table's schema")
    strange = F.when(~_is_of(epoch.begins), F.lit(stray)).when(
        F.col("corrupt").isNotNull() | (F.col("given") != read), unreadable
    )
    if flattened:
        strange = strange.when(F.col("lacking").isNotNull(), F.col("lacking"))
    return judged(strange, schema)


def judged(reason: SparkColumn, schema: TableSchema) -> SparkColumn:
    """`reason` (a `when` of what is wrong with the record itself), else why the event in it cannot be applied."""
    op, before, after = F.col("op"), F.col("before"), F.col("after")
    null_key = F.lit(False)
    for name in schema.key:
        null_key |= F.when(op == "d", before.getField(name)).otherwise(after.getField(name)).isNull()
    return (
        reason.when(op.isNull(), F.lit("no op: not a Debezium change event"))
        .when(~op.isin(*OP_CODES, "m"), F.concat(F.lit("unknown op "), op))
        .when(event_place(F.col("source")).isNull(), F.lit("no source position"))
        .when(op.isin("t", "m"), F.lit(None))
        .when((op == "d") & before.isNull(), F.lit("delete without a before-image"))
        .when((op != "d") & after.isNull(), F.lit("no after-image"))
        .when(F.lit(not schema.key) & (op == "u") & before.isNull(), F.lit("update without a before-image"))
        .when(null_key, F.lit("null in the key"))
    )


def _parsed_row(columns: Sequence[Column]) -> StructType:
    return StructType([StructField(c.written, parsed_type(c)) for c in columns])


def own_row(row: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """The parsed row decoded, masked and hashed: its columns by the names that the event has for them."""
    fields = []
    for c in columns:
        value = shielded(decoded(row.getField(c.written), c), c.type, c.shield)
        fields.append(value.cast(spark_type(stored_type(c))).alias(c.written))
    return F.when(row.isNotNull(), F.struct(*fields))


def mark(before: SparkColumn, after: SparkColumn, epoch: Epoch, for_changelog: bool) -> SparkColumn:
    """A hash of op and of rows that `own_row` made: the same in every batch, whatever became of the table since."""
    rows = (before, epoch.before_columns(for_changelog=for_changelog)), (after, epoch.columns)
    names = [(row, name) for row, columns in rows for name in sorted(c.written for c in columns)]
    # A null leaves the hash as it is, so something has to stand between values.
    return F.xxhash64("op", *(part for row, name in names for part in (row.getField(name), F.lit(0))))


def before_image(row: SparkColumn, epoch: Epoch, target: TableSchema, for_changelog: bool) -> SparkColumn:
    """A row before its change that `own_row` made, as the target's columns."""
    if for_changelog:
        return after_image(row, epoch, target)
    return _lake_row(row, epoch.schema.key_columns, target.key_columns)


def after_image(row: SparkColumn, epoch: Epoch, target: TableSchema) -> SparkColumn:
    """A row after its change that `own_row` made, as the target's columns."""
    return _lake_row(row, epoch.schema.columns, target.columns, whole=not epoch.unseen)


def _lake_row(
    row: SparkColumn, columns: Sequence[Column], target: Sequence[Column], *, whole: bool = True
) -> SparkColumn:
    """A row as the target's columns; what the event lacks is filled as the source fills it.

    `columns` are those that the row has, all of them if `whole`.
    """
    if whole and [(c.written, stored_type(c)) for c in columns] == [(c.name, c.type) for c in target]:
        return row
    known = {c.name: c for c in columns}
    fields = []
    for wanted in target:
        own = known.get(wanted.name)
        if own is None:
            # A constant that Spark knows to be never null would not fit a row that is null as a whole.
            value = F.when(row.isNotNull(), F.lit(wanted.fill)).cast(spark_type(wanted.type))
        else:
            # What was written before a change of type may come late, and need not make sense any more.
            given = row.getField(own.written)
            loose = not wanted.type.holds(stored_type(own))
            value = (given.try_cast if loose else given.cast)(spark_type(wanted.type))
        fields.append(value.alias(wanted.name))
    return F.when(row.isNotNull(), F.struct(*fields))
