"""Makes the pending tag at its place in a task; see `plan.tags`."""

from dataclasses import replace

from replicator.batch.context import MirrorContext
from replicator.batch.plan.segments import schema_segments
from replicator.batch.plan.tags import TagPoint, has_all_before, has_earlier_schema, settle
from replicator.batch.state.tagging import PendingTag
from replicator.batch.steps.follow import follow_rename, follow_schema
from replicator.batch.task import Segment, TableAwaits, TableTask
from replicator.model.table import TableId


def pass_tag(context: MirrorContext, point: TagPoint) -> list[TableTask]:
    """Make the tag if it can be made, and return what is left of the task.

    Raises:
        TableAwaits: the table must not pass the position of the tag yet.
        SchemaError, CommitConflict, LakeUnavailable: as `apply_task`; the table is not tagged.
    """
    table, tag, applied = point.whole.table, point.tag, _has_applied(context, point.earlier)
    if point.later is None:
        if tag.proven is not None and not applied:
            _note_unapplied(context, table, tag)
        return []
    if not applied:
        # Without a lake table there is nothing to tag, and its first records are read again.
        _note_unapplied(context, table, tag)
        return [point.whole]
    if context.tagging.awaited_by(table) is not None:
        if not has_all_before(context, table, point.whole.topic, tag, point.reached):
            tag.holds = True
            raise TableAwaits
        tag_table(context, point.whole, tag)
    return [point.later]


def tag_table(context: MirrorContext, task: TableTask, tag: PendingTag) -> None:
    """Tag the lake tables of `task.table`, which have all its changes from before the tag's position, and no others.

    Schema changes from before the position are followed first, and rows that were left for the next commit are written.

    Raises:
        SchemaError, CommitConflict, LakeUnavailable: as `apply_task`; the table is not tagged.
    """
    idle = Segment.begin(context, replace(task, ranges=(), records=None))
    if has_earlier_schema(context, task.table, tag):
        for part in schema_segments(idle, before=tag.position_key):
            follow_rename(context, part)
            follow_schema(Segment.begin(context, part))
    elif idle.progress.mirror is not None:
        mirror = context.lake.load(context.config.lake.namespace, task.table.name)
        if mirror is not None and (mirror.pending_fills() or mirror.pending_clear() is not None):
            follow_schema(idle)
    settle(context, task.table, tag)


def _has_applied(context: MirrorContext, task: TableTask) -> bool:
    """Return whether the lake has all events of a task."""
    marker = context.ledger.progress(task.table).resume_marker
    return all(
        marker is not None and (marker.next_offset(r.topic, r.partition) or 0) >= r.end for r in task.ranges
    )


def _note_unapplied(context: MirrorContext, table: TableId, tag: PendingTag) -> None:
    """Record that events from before a tag's position cannot be applied, or that there is no lake table to tag."""
    if context.ledger.progress(table).resume_marker is None:
        tag.settled.add(table)
    else:
        tag.problems[table] = f"events of {table} from before the position cannot be applied yet"
