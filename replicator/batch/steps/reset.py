"""Plans what removes the earlier rows of a mirror: TRUNCATE, and the beginning of a repeated snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from replicator.batch.events.net_changes import after_truncates
from replicator.batch.plan.epochs import source_changed, unordered_snapshot
from replicator.batch.values import TableBatch
from replicator.errors import UnknownPast
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.others import refuse_loss
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.roles import LakeRole
from replicator.model.snapshot import SnapshotRead, Truncate


@dataclass(frozen=True, slots=True)
class TableReset:
    """The events of a batch that remove all earlier rows; falsy if there are none.

    Attributes:
        truncates: TRUNCATEs, and beginnings of snapshots.
        snapshots: snapshots that replace earlier rows. Only rebuilds, which read a changelog, have them; a batch has
            their beginnings among `truncates`.
    """

    truncates: Sequence[Truncate] = ()
    snapshots: Sequence[SnapshotRead] = ()

    def __bool__(self) -> bool:
        return bool(self.truncates or self.snapshots)

    def survivors(self, changes: DataFrame) -> DataFrame:
        """Return those of `changes` (decoded events or changelog rows) that come after all of these events."""
        return after_truncates(changes, [*self.truncates, *(t for s in self.snapshots for t in s.begins())])


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """How a batch resets a mirror.

    Attributes:
        reset: what removes the rows that the mirror has.
        effective: `reset`, and an earlier TRUNCATE that may have removed rows of this batch's events.
        snapshot: the snapshot that the mirror contains after the batch; part of its marker.
        begun: the beginnings of repeated snapshots; the marker has the newest one as a TRUNCATE.
        written: partition → next offset, for the events of this batch that the mirror contains.
    """

    reset: TableReset
    effective: TableReset
    snapshot: SnapshotRead | None
    begun: Sequence[Truncate]
    written: Mapping[int, int]


def plan_reset(batch: TableBatch, table: LakeTable, base: CommitMarker | None) -> ResetPlan:
    """Return how `batch` resets the mirror `table`, whose newest marker is `base`.

    Raises:
        SourceChanged: a snapshot was repeated, and the table can be read again, or the order of its events is unknown.
        UnknownPast: an ad-hoc snapshot read rows again, and the table has no key.
        ForeignColumns: a snapshot replaces rows in which others wrote values of their own columns.
    """
    written = batch.written_offsets(LakeRole.MIRROR)
    truncates = [t for t in batch.stats.truncates if t.offset >= written.get(t.partition, 0)]
    if (pending := table.pending_clear()) is not None:
        truncates = [pending, *truncates]
    earlier = batch.earlier_truncate()
    snapshot, repeated = None if base is None else base.snapshot, list[SnapshotRead]()
    if batch.is_in_log_order:
        snapshot, repeated = _snapshots(batch, base, written)
    if repeated:
        refuse_loss(table, f"a repeated snapshot of {batch.task.table}")
    begun = [t for s in repeated for t in s.begins()]
    truncates += begun
    reset = TableReset(truncates)
    effective = reset if earlier is None else replace(reset, truncates=[earlier, *truncates])
    return ResetPlan(reset, effective, snapshot, begun, written)


def _snapshots(
    batch: TableBatch, base: CommitMarker | None, written: Mapping[int, int]
) -> tuple[SnapshotRead | None, list[SnapshotRead]]:
    """Return the initial snapshot that the mirror contains after the batch, and those that replace its rows."""
    known, stats, task = None if base is None else base.snapshot, batch.stats, batch.task
    read = [
        s
        for s in stats.snapshots
        # A snapshot that began before the offset that the table has reached is known, or was replaced since.
        if s.is_of(known) or all(offset >= written.get(p, 0) for p, offset in s.starts.items())
    ]
    ad_hoc = stats.chunk_reads or any(not s.is_initial for s in read)
    if ad_hoc and base is not None and not batch.schema.mirror.key:
        raise UnknownPast(
            f"an ad-hoc snapshot read rows of {task.table} that may be in the mirror already; the table has no key, "
            "so they cannot be identified",
            "drop the lake table (replicator drop), and let the connector take a new snapshot into a new topic; "
            'or mirror only its changes: keyless = "changelog"',
        )
    if base is None:
        filled = bool(read) and _has_changes_before(read[0], task.ranges, stats)
    else:
        # Markers of older engines do not say which snapshot their rows are of.
        filled = base.position is not None or base.awaits_snapshot(task.topic)
    repeated: list[SnapshotRead] = []
    for snapshot in (s for s in read if s.is_initial):
        if known is not None and snapshot.is_of(known):
            known = known.continued_by(snapshot)
            continue
        if filled or known is not None:
            _check_repeated(batch, base, snapshot)
            repeated.append(snapshot)
        known = snapshot
    # Rows of a snapshot are as good as changes for a table that is being read: it is later than the snapshot began.
    return known, [] if batch.context.is_staging else repeated


def _check_repeated(batch: TableBatch, base: CommitMarker | None, snapshot: SnapshotRead) -> None:
    """Check that a repeated snapshot can be applied.

    Raises:
        SourceChanged: the table must be read again.
    """
    context, task = batch.context, batch.task
    if context.is_staging:
        if not batch.schema.mirror.key:
            raise source_changed(task.table, str(snapshot.position))
    elif base is not None and context.reads_again:
        raise source_changed(task.table, str(snapshot.position))
    elif batch.segment.partitions > 1:
        raise unordered_snapshot(task.table, str(snapshot.position))


def _has_changes_before(snapshot: SnapshotRead, ranges: Sequence[OffsetRange], stats: BatchStats) -> bool:
    """Return whether `ranges`, the first ones of a table, may have changes from before a snapshot.

    Partitions without rows of the snapshot do not tell it: after a fail-over, later changes may have lower positions.
    """
    return any(
        r.partition in stats.last_changes and snapshot.starts.get(r.partition, r.start) > r.start
        for r in ranges
    )
