"""Spark expressions that assign events to the versions of their table's schema; the rules of `schema.binlog_order`."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.decode.event_frame import event_position_key
from replicator.model.gtid import BLOCK
from replicator.model.truncate import RESET_MS
from replicator.schema.binlog_order import CLOCK_MS, Boundary, SnapshotPlace, VersionStart


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
    past = _is_past_statement(source, start)
    if not (start.read_at or start.read_before):
        return past
    is_own = reduce(or_, (is_row_of(source, place) for place in start.read_at), F.lit(False))
    was_before = is_read_at(source, start.read_before)
    return (
        F.when(is_read_at(source, start.read_at), ~was_before | is_own)
        .when(was_before, F.lit(False))
        .otherwise(past)
    )


def is_row_of(source: SparkColumn, place: SnapshotPlace) -> SparkColumn:
    """Return whether events are rows at the position of an initial snapshot, and not of an earlier one there."""
    time = _time(source)
    return is_read_at(source, (place,)) & ((time == 0) | (time > place.ts_ms - CLOCK_MS))


def is_read_at(source: SparkColumn, places: Iterable[SnapshotPlace]) -> SparkColumn:
    """Return whether events are rows at the positions of initial snapshots."""
    is_row = F.coalesce(source.getField("server_id"), F.lit(0)) == 0
    return is_row & event_position_key(source).isin(*{place.key for place in places})


def _is_past_statement(source: SparkColumn, start: VersionStart) -> SparkColumn:
    key, gtid, time = event_position_key(source), source.getField("gtid"), _time(source)
    here, own = key >= start.key, start.transaction
    known = time > 0 if start.ts_ms else F.lit(False)
    later = time > start.ts_ms + RESET_MS
    for read in start.read_at:
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
