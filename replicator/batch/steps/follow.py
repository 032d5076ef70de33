"""Follows the schema of the source where no event does: renames, and versions after the newest event."""

from dataclasses import replace

from replicator.batch.context import MirrorContext
from replicator.batch.evolution.keeper import TableKeeper
from replicator.batch.plan.renames import rename, renamed_to
from replicator.batch.steps.decode import current_schema
from replicator.batch.task import Segment, TableTask
from replicator.batch.values import task_marker
from replicator.errors import UnloggedChange
from replicator.lake.strategies.changes import stage_pending
from replicator.model.batch_stats import BatchStats
from replicator.model.roles import LakeRole


def follow_rename(context: MirrorContext, task: TableTask) -> None:
    """Rename the lake tables of a task if another table has the old name from the task's schema version on."""
    if task.target_schema_at is None:
        return
    new = renamed_to(context, task.table, task.target_schema_at)
    if new is not None:
        rename(context, task.table, new)


def follow_schema(segment: Segment) -> BatchStats:
    """Evolve the lake tables of a segment without events to its schema version.

    Raises:
        SchemaError, CommitConflict, LakeUnavailable: as `evolve_tables`.
    """
    context, progress = segment.context, segment.progress
    keeper = TableKeeper(context, segment.table, segment.options, current_schema(segment))
    nothing = BatchStats({}, (), 0, 0, (), {}, None, None)
    if segment.options.changelog and progress.changelog is not None:
        changelog = keeper.keep(LakeRole.CHANGELOG)
        if changelog is not None:
            keeper.note_removal(LakeRole.CHANGELOG, changelog)
    if progress.mirror is None:
        return nothing
    _refuse_late_recreation(segment)
    mirror = keeper.keep(LakeRole.MIRROR)
    if mirror is None:
        return nothing
    staged = stage_pending(context.lake, mirror)
    if staged is not None:
        target = context.writer.target(segment.table, LakeRole.MIRROR, mirror)
        marker = task_marker(context, segment.task, target.base, nothing)
        # As without this commit, a replay of quarantined events must know what the snapshot replaced.
        marker = replace(marker, snapshot=progress.mirror.snapshot)
        context.writer.commit(target, staged, marker)
    # Afterwards the mirror has a later state than any version, with which it would not be evolved again.
    keeper.note_removal(LakeRole.MIRROR, mirror)
    return nothing


def _refuse_late_recreation(segment: Segment) -> None:
    """Check that the mirror has no events of a table that was dropped and created again before its definition is known.

    Its rows would be removed with the earlier ones.

    Raises:
        UnloggedChange: that is so.
    """
    table, history = segment.table, segment.history
    marker, state = segment.progress.mirror, segment.progress.mirror_schema
    if marker is None or marker.position is None or state is None:
        return
    # A replica that lags behind a statement executes it again.
    followed = {v.position.gtid for v in history.versions if v.at <= state.at and v.position.gtid}
    later = (v for v in history.after(state.at) if v.recreated and v.position.gtid not in followed)
    if any(v.start.is_before(marker.position, marker.watermark_ms or 0) for v in later):
        raise UnloggedChange(
            f"{table} was dropped and created again, and that became known after its later changes were applied",
            f"read the table again: replicator heal {table}",
        )
