"""Finds the oldest schema version that the events of a task may have.

Positions, GTIDs and times decide which versions fit an event; see `schema.binlog_order`. What the table has read before
it, in the order of the log, excludes earlier versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from replicator.batch.context import MirrorContext, TableTask
from replicator.model.commit_marker import OffsetRange, PartitionProgress
from replicator.model.snapshot import SnapshotRead
from replicator.schema.binlog_order import SnapshotPlace

_HEAD: Final = 1_000
"""Number of offsets in which the first record of a range is looked for."""


def oldest_version(
    context: MirrorContext, task: TableTask, before: Mapping[int, PartitionProgress], shown: int | None
) -> int | None:
    """Return the `at` of the oldest schema version that events of a task may have; None if unknown.

    `before` is partition → progress of the table, and `shown` what `shown_by_snapshot` returns.
    """
    found = (_after_progress(context, task, before), shown)
    return max((at for at in found if at is not None), default=None)


def _after_progress(
    context: MirrorContext, task: TableTask, before: Mapping[int, PartitionProgress]
) -> int | None:
    """Return the `at` of the oldest version among the last events that were read of the task's partitions.

    It is at most the version that the lake follows. Redelivered events may have an earlier one.
    """
    history = context.schemas.history(task.table)
    highs = [p.high_water if (p := before.get(r.partition)) else None for r in task.ranges]
    if any(high is not None and high.snapshot is not None for high in highs):
        # Changes after a snapshot of a replica that lags may be older.
        return None
    known = [history.index_of(high.position, high.ts_ms) for high in highs if high is not None]
    if not (history and known and len(known) == len(highs)):
        return None
    # The last event may be past a statement that a replica that lags executes again later.
    if (followed := context.ledger.progress(task.table).schema_at) is not None:
        known.append(history.index_at(followed))
    return history.versions[min(known)].at


def shown_by_snapshot(context: MirrorContext, task: TableTask) -> int | None:
    """Return the `at` of the version with which the newest repeated snapshot began, if all events come after its rows.

    Else None. The snapshot is that before whose rows the task was split, or that of which the lake has rows. Positions
    do not show the order, because another server may have lower ones.
    """
    if task.since_schema_at is not None:
        return task.since_schema_at
    progress = context.ledger.progress(task.table)
    marker, known = progress.mirror or progress.changelog, progress.schema_at
    if marker is None or marker.snapshot is None or known is None:
        return None
    history = context.schemas.history(task.table)
    place = history.snapshot_of(marker.snapshot)
    begun = (
        v.at for i, v in enumerate(history.versions) if v.at <= known and history.first_read_of(i) == place
    )
    shown = None if place is None else max(begun, default=None)
    if place is None or shown is None or not _is_after(context, task, marker.snapshot, place):
        return None
    return shown


def _is_after(context: MirrorContext, task: TableTask, snapshot: SnapshotRead, place: SnapshotPlace) -> bool:
    """Return whether all events were sent after a snapshot, whose definition is at `place`.

    Offsets decide in partitions with its rows, and in others the times at which records were sent.
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
        first = _first_sent(context, [r for r in task.ranges if r.partition in others])
    return first is None or first >= place.ts_ms


def _first_sent(context: MirrorContext, ranges: Sequence[OffsetRange]) -> int | None:
    """Return when the first record of some partitions was sent, ms since the epoch; None if there is no record.

    The records of a partition were sent in its order. Offsets may be missing, so the first records are tried first.
    """
    heads = [replace(r, end=min(r.end, r.start + _HEAD)) for r in ranges]
    for tried in (heads, ranges):
        records = (
            context.log.read(context.spark, tried).groupBy("partition").agg(F.min("timestamp").alias("first"))
        )
        found = [row["first"] for row in records.collect()]
        if len(found) == len(tried):
            break
    return min(found, default=None)
