"""Spark expressions that assign events to the versions of their table's schema; the rules of `schema.history.order`."""

from functools import reduce
from operator import or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.decode.event_frame import event_position_key
from replicator.model.gtid import BLOCK
from replicator.schema.history.order import CLOCK_MS, Boundary, VersionStart


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


def is_row_of(source: SparkColumn, key: int) -> SparkColumn:
    """Return whether events are rows of the initial snapshot at a `binlog_key`; only they have no server id."""
    return _is_row(source) & (event_position_key(source) == key)


def _is_row(source: SparkColumn) -> SparkColumn:
    return F.coalesce(source.getField("server_id"), F.lit(0)) == 0


def _is_past(source: SparkColumn, start: VersionStart) -> SparkColumn:
    key, gtid = event_position_key(source), source.getField("gtid")
    here, own = key >= start.key, start.transaction
    if start.read_before or own is not None:
        here = F.when(_is_row(source), here & ~key.isin(*start.read_before)).otherwise(here)
    if own is None:
        return F.when(key.isNotNull(), here)
    time = F.coalesce(source.getField("ts_ms"), F.lit(0))
    number = F.substring_index(gtid, ":", -1)
    first = own.line[1] * BLOCK + 1
    same_line = (gtid == F.concat(F.lit(f"{own.origin}:"), number)) & number.cast("long").between(
        first, first + BLOCK - 1
    )
    known = time > 0 if start.ts_ms else F.lit(False)
    apart = known & (F.abs(time - start.ts_ms) > CLOCK_MS)
    past = (
        F.when(_is_row(source), here)
        .when(same_line, number.cast("long") >= own.number)
        .when(gtid.contains(":") & apart, time > start.ts_ms)
        .otherwise(here)
    )
    return F.when(key.isNotNull(), past)
