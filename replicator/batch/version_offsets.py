"""Finds where the events of each schema version begin in the log.

Positions, GTIDs and times tell to which version an event belongs, as far as `schema.binlog_order` knows. If the
connector took its initial snapshot again, on another server, they may fit versions from before and after the snapshot.
Then offsets decide: in a partition, no event before the snapshot's rows belongs to a version that was defined later.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from replicator.decode.event_frame import event_position_key
from replicator.decode.version_ranges import is_past, is_row_of
from replicator.model.snapshot import SnapshotRead
from replicator.schema.binlog_order import SnapshotPlace
from replicator.schema.history import SchemaHistory

PartitionOffsets = dict[int, int]


def first_offsets(
    records: DataFrame, history: SchemaHistory, newest: SnapshotRead | None
) -> dict[int, PartitionOffsets]:
    """Return version index → partition → the first offset of an event of it.

    Args:
        records: events with their source blocks, as `SchemaTracker.with_sources` returns them.
        newest: the newest snapshot of the table of which the lake has rows.
    """
    source, version = F.col("source"), F.lit(0)
    events = records.where(F.col("value").isNotNull() & event_position_key(source).isNotNull())
    follows = _follows_snapshots(events, history, newest)
    for i, v in enumerate(history.versions[1:], start=1):
        conditions = (follows[place] for place in history.repeated_reads(i))
        version = F.when(reduce(and_, conditions, is_past(source, (v.start,))), F.lit(i)).otherwise(version)
    found: dict[int, PartitionOffsets] = {}
    firsts = events.groupBy("partition", version.alias("version")).agg(F.min("offset").alias("first"))
    for row in firsts.collect():
        found.setdefault(row["version"], {})[row["partition"]] = row["first"]
    return found


def _follows_snapshots(
    events: DataFrame, history: SchemaHistory, newest: SnapshotRead | None
) -> dict[SnapshotPlace, SparkColumn]:
    """Return the condition that an event is a row of a repeated snapshot, or comes after it."""
    places = sorted({place for i in range(len(history.versions)) for place in history.repeated_reads(i)})
    if not places:
        return {}
    # Snapshots of several servers may have one position; the newest place that is not later is a row's own.
    number = F.lit(None).cast("int")
    for i, place in enumerate(places):
        number = F.when(is_row_of(F.col("source"), place), F.lit(i)).otherwise(number)
    rows = events.where(number.isNotNull()).groupBy(number.alias("place"), "partition")
    found: dict[int, list[Row]] = {}
    for row in rows.agg(F.min("offset").alias("first"), F.min("timestamp").alias("sent")).collect():
        found.setdefault(row["place"], []).append(row)
    return {place: _follows(place, found.get(i, []), newest) for i, place in enumerate(places)}


def _follows(place: SnapshotPlace, rows: Sequence[Row], newest: SnapshotRead | None) -> SparkColumn:
    """Return the condition for one snapshot, with the first of its `rows` in each partition of the batch.

    In a partition without rows, the times of records tell what was sent later. Source times do not tell it: they are
    those of statements, and a replica that lags sends old ones.
    """
    condition = F.col("timestamp") >= min((row["sent"] for row in rows), default=place.ts_ms)
    for row in rows:
        is_own = F.col("partition") == row["partition"]
        condition = F.when(is_own, F.col("offset") >= row["first"]).otherwise(condition)
    if newest is not None and place.has_rows_at(newest.ts_ms):
        condition |= F.col("partition").isin(*newest.starts)
    return condition
