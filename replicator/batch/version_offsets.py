"""Finds where the events of each schema version begin in the log.

Positions, GTIDs and times tell to which version an event belongs, as far as `schema.binlog_order` knows. If the
connector took its initial snapshot again, on another server, they may fit versions from before and after the snapshot.
Then offsets decide: in a partition, no event before the snapshot's rows belongs to a version that was defined later.
"""

from functools import reduce
from operator import and_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.decode.event_frame import event_position_key
from replicator.decode.version_ranges import is_past, is_read_at
from replicator.model.snapshot import SnapshotRead
from replicator.schema.binlog_order import CLOCK_MS, SnapshotPlace, binlog_key
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
    """Return the condition that an event is a row of a repeated snapshot, or comes after it.

    In a partition that has no rows of it, source times decide.
    """
    places = {place for i in range(len(history.versions)) for place in history.repeated_reads(i)}
    if not places:
        return {}
    source = F.col("source")
    rows = events.where(is_read_at(source, places)).groupBy(
        event_position_key(source).alias("key"), "partition"
    )
    found: dict[int, PartitionOffsets] = {}
    for row in rows.agg(F.min("offset").alias("first")).collect():
        found.setdefault(row["key"], {})[row["partition"]] = row["first"]
    return {place: _follows(place, found.get(place.key, {}), newest) for place in places}


def _follows(place: SnapshotPlace, first: PartitionOffsets, newest: SnapshotRead | None) -> SparkColumn:
    time = F.coalesce(F.col("source.ts_ms"), F.lit(0))
    condition = (time == 0) | (time > place.ts_ms - CLOCK_MS)
    for partition, offset in first.items():
        is_own = F.col("partition") == partition
        condition = F.when(is_own, F.col("offset") >= offset).otherwise(condition)
    if newest is not None and (
        binlog_key(newest.position) == place.key or newest.ts_ms > place.ts_ms - CLOCK_MS
    ):
        condition |= F.col("partition").isin(*newest.starts)
    return condition
