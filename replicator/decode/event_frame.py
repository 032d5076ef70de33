"""The decoded frame: the columns that every event format decodes to.

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

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.arrow_types import arrow_type
from replicator.decode.parsed import ParsedEvents
from replicator.decode.row_images import Images
from replicator.decode.schemas.versions import Mask, Places
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
from replicator.model.table import Column, TableSchema

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

_NO_TEXT: Final = pa.scalar(None, pa.string())


def frame_schema(target: TableSchema, *, for_changelog: bool) -> pa.Schema:
    """Return the Arrow schema of the decoded frame."""
    before = target.columns if for_changelog else target.key_columns
    return pa.schema(
        [
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("op", pa.string()),
            pa.field("code", pa.int8()),
            *(pa.field(name, pa.int64()) for name in EVENT_NUMBERS[3:]),
            pa.field("file", pa.string()),
            pa.field("gtid", pa.string()),
            pa.field("in_range_end", pa.bool_()),
            pa.field("tx_order", pa.int64()),
            pa.field("before", row_type(before)),
            pa.field("after", row_type(target.columns)),
            pa.field("bad", pa.string()),
            pa.field("raw_key", pa.binary()),
            pa.field("raw_value", pa.binary()),
            pa.field("timestamp", pa.int64()),
        ]
    )


def row_type(columns: Sequence[Column]) -> pa.StructType:
    """Return the type of rows with these columns, all nullable."""
    return pa.struct([pa.field(c.name, arrow_type(c.type)) for c in columns])


def frame(
    records: pa.Table,
    events: ParsedEvents,
    images: Images,
    key: Sequence[str],
    schema: pa.Schema,
    last: Mask,
    *,
    for_changelog: bool,
) -> pa.Table:
    """Return the decoded frame, of `schema`, from parsed events and their images.

    `key` are the key columns of the events' schema, and `last` says which events are among the last of their ranges.
    """
    places = Places.of(events.source)
    bad = _bad_reason(events, images, places, key)
    is_bad = pc.is_valid(bad)
    is_before = pc.fill_null(pc.is_in(events.op, pa.array(["d", "t"])), False)
    kind = np.where(is_before.to_numpy(zero_copy_only=False), 0, 1)
    in_end, file = pa.array(last), events.source["file"]
    columns = {
        "partition": records.column("partition"),
        "offset": records.column("offset"),
        "op": pc.if_else(is_bad, _NO_TEXT, events.op),
        "code": _codes(events, bad),
        "position_key": pa.array(places.key, mask=~places.is_known),
        "row_key": pa.array(places.row << 1 | kind),
        "ts_ms": events.source["ts_ms"],
        "server_id": pa.array(places.server_id),
        "gtid_origin": pa.array(places.origin_hashes()),
        "gtid_number": pa.array(places.number),
        "file": file if for_changelog else pc.if_else(in_end, file, _NO_TEXT),
        # Without a changelog, too: it tells which events were sent again.
        "gtid": events.source["gtid"],
        "in_range_end": in_end,
        "tx_order": events.tx_order,
        "before": images.before,
        "after": images.after,
        "bad": bad,
        # Only bad events keep the raw record.
        "raw_key": _only_if(is_bad, records.column("key")),
        "raw_value": _only_if(is_bad, records.column("value")),
        "timestamp": _only_if(is_bad, records.column("timestamp")),
    }
    return pa.table(list(columns.values()), schema=schema)


def in_range_end(records: pa.Table, ranges: Sequence[OffsetRange]) -> Mask:
    """Return whether events are among the last `RANGE_END` of their range; always true if there are no `ranges`."""
    partition, offset = (records.column(name).to_numpy() for name in ("partition", "offset"))
    found = np.full(len(offset), not ranges)
    for r in ranges:
        found |= (partition == r.partition) & (offset >= r.end - RANGE_END)
    return found


def _only_if(condition: pa.BooleanArray, values: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if not condition.true_count:
        return pa.nulls(len(values), values.type)
    return pc.if_else(condition, values, pa.scalar(None, values.type))


def _codes(events: ParsedEvents, bad: pa.StringArray) -> pa.Int8Array:
    """Return the numeric codes of events (see `model.batch_stats`)."""
    op, snapshot = events.op, events.source["snapshot"]
    is_read = pc.equal(op, "r")
    cases = [
        (pc.equal(bad, UNKNOWN_SCHEMA), UNKNOWN_SCHEMA_CODE),
        (pc.is_valid(bad), BAD_CODE),
        (pc.and_(is_read, pc.equal(snapshot, "incremental")), CHUNK_READ_CODE),
        (pc.and_(is_read, pc.starts_with(snapshot, "last")), LAST_READ_CODE),
        (pc.and_(is_read, pc.starts_with(snapshot, "first")), FIRST_READ_CODE),
        (pc.equal(op, "m"), MESSAGE_CODE),
        *((pc.equal(op, name), number) for name, number in OP_CODES.items()),
    ]
    return _first(cases, pa.int8())


def _first(cases: Sequence[tuple[pa.BooleanArray, object]], kind: pa.DataType) -> pa.Array:
    """Return the value of the first case that is true; null if there is none."""
    conditions = [pc.fill_null(condition, False) for condition, _ in cases]
    if not any(condition.true_count for condition in conditions):
        return pa.nulls(len(conditions[0]), kind)
    names = [str(i) for i in range(len(cases))]
    values = [pa.scalar(value, kind) if not isinstance(value, pa.Array) else value for _, value in cases]
    return pc.case_when(pc.make_struct(*conditions, field_names=names), *values)


def _bad_reason(events: ParsedEvents, images: Images, places: Places, key: Sequence[str]) -> pa.StringArray:
    """Return why events cannot be applied; null if they can be."""
    op, before, after = events.op, images.before, images.after
    is_delete, no_before, no_after = pc.equal(op, "d"), pc.is_null(before), pc.is_null(after)
    null_key = pa.repeat(pa.scalar(False), len(op))
    for name in key:
        value = pc.if_else(
            is_delete, pc.is_null(pc.struct_field(before, name)), pc.is_null(pc.struct_field(after, name))
        )
        null_key = pc.or_(null_key, value)
    keyless = pa.scalar(not key)
    unknown = pc.invert(pc.is_in(op, pa.array([*OP_CODES, "m"])))
    cases = [
        (pc.is_valid(events.error), events.error),
        (pc.is_null(op), "no op: not a Debezium change event"),
        (unknown, pc.binary_join_element_wise("unknown op ", op, "") if unknown.true_count else None),
        (pa.array(~places.is_known), "no source position"),
        (pc.is_in(op, pa.array(["t", "m"])), None),
        (pc.and_(is_delete, no_before), "delete without a before-image"),
        (pc.and_(pc.invert(is_delete), no_after), "no after-image"),
        (pc.and_(keyless, pc.and_(pc.equal(op, "u"), no_before)), "update without a before-image"),
        (null_key, "null in the key"),
    ]
    return _first(cases, pa.string())
