"""Plans what removes the earlier rows of a mirror: TRUNCATE, and snapshots that replace the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from replicator.batch.net_changes import after_truncates, not_read_by_snapshots, since_snapshot
from replicator.batch.table_batch import BatchSchema, TableBatch
from replicator.errors import UnknownPast
from replicator.lake.catalog import LakeTable
from replicator.lake.foreign_columns import refuse_loss
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.snapshot import SnapshotRead, follow
from replicator.model.truncate import SKEW_MS, Truncate
from replicator.schema.binlog_order import SnapshotPlace


@dataclass(frozen=True, slots=True)
class TableReset:
    """The events of a batch that remove all earlier rows; falsy if there are none.

    Attributes:
        reads: all known snapshots that may have rows among the changes, whether or not they remove earlier ones.
        removed_reads: those of `reads` whose rows were removed when the source table was created again.
    """

    truncates: Sequence[Truncate] = ()
    snapshots: Sequence[SnapshotRead] = ()
    reads: Sequence[SnapshotRead] = ()
    removed_reads: Sequence[SnapshotRead] = ()

    def __bool__(self) -> bool:
        return bool(self.truncates or self.snapshots)

    def survivors(self, changes: DataFrame) -> DataFrame:
        """Return those of `changes` (decoded events or changelog rows) that happened after all of these events."""
        changes = after_truncates(changes, self.truncates, self.reads)
        kept = [read for read in self.reads if read not in self.removed_reads]
        changes = not_read_by_snapshots(changes, self.removed_reads, kept)
        for snapshot in self.snapshots:
            changes = since_snapshot(changes, snapshot)
        return changes


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """How a batch resets a mirror.

    Attributes:
        reset: what removes the rows that the mirror has.
        effective: `reset`, and an earlier TRUNCATE that may have removed rows of this batch's events.
        snapshot: the snapshot that the mirror contains after the batch; part of its marker.
        begun: the beginnings of snapshots that remove earlier rows at once. Changes from before them may still arrive
            in other partitions, so the marker has the newest one as a TRUNCATE.
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
        UnknownPast: an ad-hoc snapshot read rows again, and the table has no key; or it is not known which changes a
            repeated snapshot has.
        ForeignColumns: a snapshot replaces rows in which others wrote values of their own columns.
    """
    written = batch.written_offsets(base)
    truncates = [t for t in batch.stats.truncates if t.offset >= written.get(t.partition, 0)]
    if (pending := table.pending_clear()) is not None:
        truncates = [pending, *truncates]
    earlier = None if base is None else batch.earlier_truncate(base)
    # Without a key or a changelog nothing shows which rows survive, so a snapshot removes them when it begins.
    at_once = not batch.schema.mirror.key or not batch.options.changelog
    snapshot, replacing = None if base is None else base.snapshot, list[SnapshotRead]()
    if batch.is_in_log_order:
        snapshot, replacing = _snapshots(batch, base, written, at_once=at_once)
    _refuse_unordered(batch, base, replacing)
    if snapshot is not None and snapshot.repeated:
        _refuse_sent_again(batch, base, snapshot)
    if replacing:
        refuse_loss(table, f"a repeated snapshot of {batch.task.table}")
    begun = [s.begins() for s in replacing] if at_once else []
    truncates += begun
    # The marker knows where a snapshot began in earlier batches. The last one counts that has the position of a row.
    reads = [*([] if base is None or base.snapshot is None else [base.snapshot]), *batch.stats.snapshots]
    removed = [] if pending is None else _reads_before(batch.schema, pending, reads)
    reset = TableReset(truncates, () if at_once else replacing, reads, removed)
    effective = reset if earlier is None else replace(reset, truncates=[earlier, *truncates])
    return ResetPlan(reset, effective, snapshot, begun, written)


def _reads_before(
    schema: BatchSchema, pending: Truncate, reads: Sequence[SnapshotRead]
) -> list[SnapshotRead]:
    """Return the snapshots whose definitions come before the statement that created the table again.

    The statement may have been executed at one position more than once; see `schema.definition_clock`.
    """
    history = schema.history
    versions = history.versions[: schema.version_index + 1]
    created = max((i for i, v in enumerate(versions) if v.position == pending.position), default=0)
    before = frozenset[SnapshotPlace]().union(*(v.reads for v in versions[:created]))
    return [s for s in reads if history.snapshot_of(s) in before]


def _snapshots(
    batch: TableBatch, base: CommitMarker | None, written: Mapping[int, int], *, at_once: bool
) -> tuple[SnapshotRead | None, list[SnapshotRead]]:
    """Return the snapshot after the batch, and those that replace earlier rows; see `model.snapshot.follow`."""
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
    return follow(
        known, read, filled=filled, is_over=lambda s: _is_over(s, stats, base, written), at_once=at_once
    )


def _has_changes_before(snapshot: SnapshotRead, ranges: Sequence[OffsetRange], stats: BatchStats) -> bool:
    """Return whether `ranges`, the first ones of a table, may have changes from before a snapshot.

    Partitions without rows of the snapshot do not tell it: after a fail-over, later changes may have lower positions.
    """
    return any(
        r.partition in stats.last_changes and snapshot.starts.get(r.partition, r.start) > r.start
        for r in ranges
    )


def _is_over(
    snapshot: SnapshotRead, stats: BatchStats, base: CommitMarker | None, written: Mapping[int, int]
) -> bool:
    """Return whether changes of the batch show that a snapshot has ended."""
    for partition, offset in stats.last_changes.items():
        begin = snapshot.starts.get(partition)
        if begin is not None and offset > begin and offset >= written.get(partition, 0):
            return True
    # Of changes in other partitions, positions tell it, unless they went back.
    others = [
        p.high_water
        for n, p in stats.progress.items()
        if n not in snapshot.starts and p.high_water is not None
    ]
    return not _goes_back(snapshot, base) and any(high.position > snapshot.position for high in others)


def _refuse_sent_again(batch: TableBatch, base: CommitMarker | None, snapshot: SnapshotRead) -> None:
    """Raise UnknownPast if changes came again in a partition that tells nothing of a repeated snapshot.

    If the snapshot is of a replica that lagged, its rows lack these changes. Changes that are later than it show that
    the connector has gone on since, so that others that come again are ordinary repeated ones.
    """
    known = {} if base is None else base.progress.get(batch.task.topic, {})
    for partition in {d.partition for d in batch.stats.duplicates} - snapshot.starts.keys():
        before = known[partition].high_water if partition in known else None
        if before is None or before.ts_ms <= snapshot.ts_ms + SKEW_MS:
            raise UnknownPast(
                f"changes of {batch.task.table} came again in partition {partition}, in which a repeated snapshot has "
                "no rows; if the snapshot is of a replica that lagged, its rows lack them",
                f"read the table again: replicator heal {batch.task.table}",
            )


def _goes_back(snapshot: SnapshotRead, base: CommitMarker | None) -> bool:
    return base is not None and base.position is not None and snapshot.position < base.position


def _refuse_unordered(
    batch: TableBatch, base: CommitMarker | None, replacing: Sequence[SnapshotRead]
) -> None:
    """Raise UnknownPast if a snapshot at a lower position cannot be ordered against changes in other partitions."""
    known = {} if base is None else base.progress.get(batch.task.topic, {})
    changed = {n for n, p in {**known, **batch.stats.progress}.items() if p.high_water is not None}
    for snapshot in replacing:
        if changed - snapshot.starts.keys() and _goes_back(snapshot, base):
            raise UnknownPast(
                f"the connector took a snapshot of {batch.task.table} at {snapshot.position}, before changes that it "
                "had sent: it reads another server, or its binlogs were reset; the order of changes in partitions "
                "without rows of the snapshot is not known",
                f"read the table again: replicator heal {batch.task.table}",
            )
