"""Finds where the events of each schema version begin in the log.

Positions, GTIDs and times decide to which version an event belongs; see `schema.binlog_order`. If the connector took
its initial snapshot again, on another server, they may fit versions from before and after the snapshot. Then offsets
decide in each partition that has rows of the snapshot:

- Events before its first row do not belong to a version that was defined later. If that version begins with a statement
  that has a GTID and was executed once, the GTID decides.
- Events after that row do not belong to an earlier version than the one that begins with the snapshot.

The times at which records were sent decide in partitions without such rows. They also show which events follow a
statement that is executed again.
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
    """Return version index → partition → the offset of the version's first event.

    Args:
        records: events with their source blocks, as `SchemaTracker.with_sources` returns them.
        newest: the newest snapshot whose rows the lake has.
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
    """Return snapshot → the condition that an event is a row of it or was sent after its first row.

    Only repeated snapshots are included before or after which some version does not apply.
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
    """Return the condition for one snapshot.

    In partitions without its rows, the times at which records were sent decide. Source times do not: these are the
    times of statements, and a replica that lags sends old ones.

    Args:
        place: the snapshot.
        rows: the first offset and sending time of its rows, for each partition of the batch that has any.
        known: this snapshot, or a later one, if the lake has its rows; all events in its partitions come after it.
    """
    condition = F.col("timestamp") >= min((row["sent"] for row in rows), default=place.ts_ms)
    for row in rows:
        is_own = F.col("partition") == row["partition"]
        condition = F.when(is_own, F.col("offset") >= row["first"]).otherwise(condition)
    if known is not None:
        condition |= F.col("partition").isin(*known.starts)
    return condition
