"""Finds where the events of each schema version begin in the log.

Positions, GTIDs and times tell to which version an event belongs, as far as `schema.binlog_order` knows. If the
connector took its initial snapshot again, on another server, they may fit versions from before and after the snapshot.
Then offsets decide: in a partition, no event before the snapshot's rows belongs to a version that was defined later,
and no event after them to an earlier one than the snapshot showed. The times at which records were sent tell the order
where offsets do not: in a partition without rows of the snapshot, and of a statement that comes again.
"""

from collections.abc import Sequence

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
        is_own = is_past(source, (v.start,))
        if (earlier := history.last_read_before(i)) is not None:
            is_own &= follows[earlier]
        if history.is_executed_again(i):
            is_own &= F.col("timestamp") >= v.sent_ms
        if (shown := history.first_read_of(i)) is not None:
            # Another server than that of the snapshot may have lower positions.
            is_own |= follows[shown]
        version = F.when(is_own, F.lit(i)).otherwise(version)
    found: dict[int, PartitionOffsets] = {}
    firsts = events.groupBy("partition", version.alias("version")).agg(F.min("offset").alias("first"))
    for row in firsts.collect():
        found.setdefault(row["version"], {})[row["partition"]] = row["first"]
    return found


def _follows_snapshots(
    events: DataFrame, history: SchemaHistory, newest: SnapshotRead | None
) -> dict[SnapshotPlace, SparkColumn]:
    """Return the conditions that an event is a row of a repeated snapshot, or comes after it.

    They are those of the snapshots that begin a version, or end one.
    """
    indexes = range(1, len(history.versions))
    wanted = (read(i) for i in indexes for read in (history.last_read_before, history.first_read_of))
    places = sorted({place for place in wanted if place is not None})
    if not places:
        return {}
    index = F.lit(None).cast("int")
    for i, place in enumerate(places):
        index = F.when(is_row_of(F.col("source"), place, history.reads), F.lit(i)).otherwise(index)
    rows = events.where(index.isNotNull()).groupBy(index.alias("index"), "partition")
    firsts: dict[int, list[Row]] = {}
    for row in rows.agg(F.min("offset").alias("first"), F.min("timestamp").alias("sent")).collect():
        firsts.setdefault(row["index"], []).append(row)
    known = None if newest is None else history.snapshot_of(newest)
    found: dict[SnapshotPlace, SparkColumn] = {}
    for i, place in enumerate(places):
        has_rows = known is not None and known.ts_ms >= place.ts_ms
        found[place] = _follows(place, firsts.get(i, []), newest if has_rows else None)
    return found


def _follows(place: SnapshotPlace, rows: Sequence[Row], known: SnapshotRead | None) -> SparkColumn:
    """Return the condition for one snapshot, with the first of its `rows` in each partition of the batch.

    If the lake has rows of the snapshot, or of a later one, that is `known`.

    In a partition without rows, the times of records tell what was sent later. Source times do not tell it: they are
    those of statements, and a replica that lags sends old ones.
    """
    condition = F.col("timestamp") >= min((row["sent"] for row in rows), default=place.ts_ms)
    for row in rows:
        is_own = F.col("partition") == row["partition"]
        condition = F.when(is_own, F.col("offset") >= row["first"]).otherwise(condition)
    if known is not None:
        condition |= F.col("partition").isin(*known.starts)
    return condition
