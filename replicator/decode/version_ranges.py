"""Spark expressions that assign events to the versions of their table's schema; the rules of `schema.binlog_order`."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.decode.event_frame import event_position_key
from replicator.model.gtid import BLOCK
from replicator.model.truncate import RESET_MS
from replicator.schema.binlog_order import CLOCK_MS, Boundary, SnapshotPlace, VersionStart, first_rows_at


def is_in_range(source: SparkColumn, first: Boundary | None, end: Boundary | None) -> SparkColumn:
    """Return whether events, given by their source blocks, lie in a range of versions; null without a position.

    None is the beginning or the end of all versions.
    """
    condition = F.lit(True)
    if first is not None:
        condition &= is_past(source, first.starts)
    if end is not None:
        condition &= ~is_past(source, end.starts)
    return condition


def is_past(source: SparkColumn, starts: tuple[VersionStart, ...]) -> SparkColumn:
    """Return whether events belong to one of the versions with these beginnings; null without a position."""
    return reduce(or_, (_is_past(source, start) for start in starts))


def _is_past(source: SparkColumn, start: VersionStart) -> SparkColumn:
    past, reads, read_before = _is_past_statement(source, start), start.reads, start.read_before
    if not (reads or read_before):
        return past
    key, time, is_row = event_position_key(source), _time(source), _is_snapshot_row(source)
    own_keys, earlier_keys = ({place.key for place in places} for places in (reads, read_before))
    condition = F.when(is_row & key.isin(*own_keys - earlier_keys), F.lit(True))
    condition = condition.when(is_row & key.isin(*earlier_keys - own_keys), F.lit(False))
    for shared in own_keys & earlier_keys:
        is_own = F.lit(False)
        for place, first_ms in first_rows_at(reads | read_before, shared):
            is_own = F.when((time == 0) | (time > first_ms), F.lit(place in reads)).otherwise(is_own)
        condition = condition.when(is_row & (key == shared), is_own)
    return condition.otherwise(past)


def is_row_of(source: SparkColumn, place: SnapshotPlace, places: Iterable[SnapshotPlace]) -> SparkColumn:
    """Return whether events are rows of an initial snapshot, and not of another one of `places` at its position."""
    key, time, is_row = event_position_key(source), _time(source), F.lit(False)
    for other, first_ms in first_rows_at({*places, place}, place.key):
        is_row = F.when((time == 0) | (time > first_ms), F.lit(other == place)).otherwise(is_row)
    return _is_snapshot_row(source) & (key == place.key) & is_row


def _is_snapshot_row(source: SparkColumn) -> SparkColumn:
    return F.coalesce(source.getField("server_id"), F.lit(0)) == 0


def _is_past_statement(source: SparkColumn, start: VersionStart) -> SparkColumn:
    key, gtid, time = event_position_key(source), source.getField("gtid"), _time(source)
    here, own = key >= start.key, start.transaction
    known = time > 0 if start.ts_ms else F.lit(False)
    later = time > start.ts_ms + RESET_MS
    for read in start.earliest_reads:
        later |= (key >= read.key) & (time > start.first_ms_after(read))
    by_position = here | (known & later)
    if own is None:
        return F.when(key.isNotNull(), by_position)
    number = F.substring_index(gtid, ":", -1)
    first = own.line[1] * BLOCK + 1
    same_line = (gtid == F.concat(F.lit(f"{own.origin}:"), number)) & number.cast("long").between(
        first, first + BLOCK - 1
    )
    apart = known & (F.abs(time - start.ts_ms) > CLOCK_MS)
    past = (
        F.when(same_line, number.cast("long") >= own.number)
        .when(gtid.contains(":"), F.when(apart, time > start.ts_ms).otherwise(here))
        .otherwise(by_position)
    )
    return F.when(key.isNotNull(), past)


def _time(source: SparkColumn) -> SparkColumn:
    return F.coalesce(source.getField("ts_ms"), F.lit(0))
