"""Finds the oldest schema version that the events of a batch may have.

Positions, GTIDs and times of events tell their versions, as far as `schema.binlog_order` knows. What the table has
read before them, in the order of the log, excludes earlier versions.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from replicator.batch.context import MirrorContext, TableTask, read_records
from replicator.batch.exchange import last_exchange
from replicator.model.commit_marker import PartitionProgress
from replicator.model.snapshot import SnapshotRead
from replicator.schema.binlog_order import SnapshotPlace


def oldest_version(
    context: MirrorContext, task: TableTask, before: Mapping[int, PartitionProgress], shown: int | None
) -> int | None:
    """Return the `at` of the oldest schema version that events of a task may have; None if unknown.

    `before` is partition → progress of the table, and `shown` what `shown_by_snapshot` returns.
    """
    exchange = last_exchange(context, task.table)
    found = (
        _after_progress(context, task, before),
        # It got its name by the exchange.
        None if exchange is None else exchange.at,
        shown,
    )
    return max((at for at in found if at is not None), default=None)


def _after_progress(
    context: MirrorContext, task: TableTask, before: Mapping[int, PartitionProgress]
) -> int | None:
    """Return the oldest version of the newest events that were read; redelivered ones may have an earlier one."""
    history = context.schemas.history(task.table)
    highs = [p.high_water if (p := before.get(r.partition)) else None for r in task.ranges]
    if any(high is not None and high.snapshot is not None for high in highs):
        # Changes after a snapshot of a replica that lags may be older.
        return None
    known = [history.index_of(high.position, high.ts_ms) for high in highs if high is not None]
    if not (history and known and len(known) == len(highs)):
        return None
    # An event before the snapshot of a replica that lags may have the GTID of a statement that comes again after it.
    if (followed := context.ledger.progress(task.table).schema_at) is not None:
        known.append(history.index_at(followed))
    return history.versions[min(known)].at


def shown_by_snapshot(context: MirrorContext, task: TableTask) -> int | None:
    """Return the `at` of the version that the newest repeated snapshot showed, if it is before all events; else None.

    Another server than that of the snapshot may have lower positions.
    """
    if task.since_schema_at is not None:
        return task.since_schema_at
    progress = context.ledger.progress(task.table)
    marker, known = progress.mirror or progress.changelog, progress.schema_at
    if marker is None or marker.snapshot is None or known is None:
        return None
    history = context.schemas.history(task.table)
    place = history.snapshot_of(marker.snapshot)
    shown = max((v.at for v in history.versions[1:] if v.at <= known and place in v.reads), default=None)
    if place is None or shown is None or not _is_after(context, task, marker.snapshot, place):
        return None
    return shown


def _is_after(context: MirrorContext, task: TableTask, snapshot: SnapshotRead, place: SnapshotPlace) -> bool:
    """Return whether all events were sent after the first row of a snapshot, or after its definition at `place`.

    In a partition without rows of it, the times at which records were sent tell it.
    """
    if any(r.start < snapshot.starts.get(r.partition, 0) for r in task.ranges):
        return False
    others = [r.partition for r in task.ranges if r.partition not in snapshot.starts]
    if not others:
        return True
    if task.records is not None:
        own = pc.is_in(task.records.column("partition"), pa.array(others, pa.int32()))
        first = pc.min(task.records.filter(own).column("timestamp")).as_py()
    else:
        records = read_records(context, task).where(F.col("partition").isin(others))
        first = records.agg(F.min("timestamp")).collect()[0][0]
    return first is None or first >= place.ts_ms
