"""Applies the records of one table in a batch. Only this module defines the order of the steps:

    decode → quarantine bad events → evolve tables → write changelog → write mirror

The changelog is committed before the mirror: it is the event store, from which the mirror can be rebuilt. After a crash
between the two commits the mirror is behind; the next batch starts at the mirror's offsets and adds to the changelog
only the changes that it lacks.
"""

from collections import deque
from dataclasses import replace

from replicator import failpoints
from replicator.batch.context import MirrorContext
from replicator.batch.evolution.followed_statements import refuse_late_events
from replicator.batch.evolution.late_definitions import check_followed
from replicator.batch.plan.epochs import refuse_next_epoch
from replicator.batch.plan.renames import lost_name, rename, renamed_to
from replicator.batch.plan.segments import newest_known, schema_segments
from replicator.batch.plan.tags import (
    TagAwaited,
    cut_at_tag,
    has_all_before,
    has_earlier_schema,
    has_later_schema,
    is_tagged,
    settle,
)
from replicator.batch.state.tagging import PendingTag
from replicator.batch.steps.changelog import write_changelog
from replicator.batch.steps.decode import current_schema, decode_batch
from replicator.batch.steps.evolve import TableKeeper, evolve_tables
from replicator.batch.steps.mirror import write_mirror
from replicator.batch.steps.quarantine import quarantine_bad
from replicator.batch.steps.unclear_values import find_misread, refuse_unclear_keys
from replicator.batch.task import TableAwaits, TableTask
from replicator.batch.values import (
    DecodedBatch,
    QuarantineReplay,
    TableBatch,
    TableKind,
    task_marker,
)
from replicator.config import TableOptions
from replicator.errors import UnknownPast, UnloggedChange, UnsupportedChange
from replicator.lake.ledger import LakeRole, Progress
from replicator.lake.strategies.changelog_reader import has_repeated_offsets
from replicator.lake.strategies.write import stage_pending
from replicator.model.batch_stats import BatchStats, joined
from replicator.model.table import TableId, TableSchema
from replicator.telemetry import Stopwatch


def apply_task(context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats:
    """Bring one table up to the end of `task.ranges`, exactly once. A pending tag is made where it belongs.

    Raises:
        SchemaError: the table cannot continue; at most the segments before the schema change were applied.
        TablePaused: the batch has bad events, and the table is configured to pause for them.
        FencedError: another process writes this mirror.
        CommitConflict: another commit was made to the table; try again.
        TagAwaited: the table must not pass the position of a tag yet; earlier events were applied.
    """
    tag = _awaited_tag(context, task.table)
    if tag is None:
        return _apply(context, task, watch)
    cut, done = cut_at_tag(context, task, tag), list[tuple[TableTask, BatchStats]]()
    if cut.before.ranges:
        done.append((cut.before, _apply(context, cut.before, watch)))
    rest = cut.after
    if not rest.ranges and (task.ranges or not has_later_schema(context, task.table, tag)):
        if tag.proven is not None and not _has_applied(context, cut.before):
            _note_unapplied(context, task, tag)
        return done[0][1] if done else _apply(context, task, watch)
    if not _has_applied(context, cut.before):
        # Without a lake table there is nothing to tag, and its first records are read again.
        rest, done = task, []
        _note_unapplied(context, task, tag)
    elif context.tagging.awaited_by(task.table) is not None:
        if not has_all_before(context, task.table, task.topic, tag, cut.reached):
            tag.holds = True
            raise TagAwaited(done)
        tag_table(context, task, tag)
    try:
        done.append((rest, _apply(context, rest, watch)))
    except TableAwaits as awaited:
        awaited.done[:0] = done
        raise
    return done[0][1] if len(done) == 1 else joined([stats for _, stats in done])


def _awaited_tag(context: MirrorContext, table: TableId) -> PendingTag | None:
    """Return the tag that must be made before the table gets later changes; None if there is none."""
    tag = context.tagging.awaited_by(table)
    if tag is not None and tag.resumed and is_tagged(context, table, tag):
        tag.settled.add(table)
        return None
    return tag


def tag_table(context: MirrorContext, task: TableTask, tag: PendingTag) -> None:
    """Tag the lake tables of `task.table`, which have all its changes from before the tag's position, and no others.

    Schema changes from before the position are followed first, and rows that were left for the next commit are written.

    Raises:
        SchemaError, CommitConflict, LakeUnavailable: as `apply_task`; the table is not tagged.
    """
    idle = replace(task, ranges=(), records=None)
    if has_earlier_schema(context, task.table, tag):
        for segment in schema_segments(context, idle, before=tag.position_key):
            _follow_rename(context, segment)
            _evolve_without_events(context, segment)
    elif context.ledger.progress(task.table).mirror is not None:
        mirror = context.lake.load(context.config.lake.namespace, task.table.name)
        if mirror is not None and (mirror.pending_fills() or mirror.pending_clear() is not None):
            _evolve_without_events(context, idle)
    settle(context, task.table, tag)


def _has_applied(context: MirrorContext, task: TableTask) -> bool:
    """Return whether the lake has all events of a task."""
    marker = context.ledger.progress(task.table).resume_marker
    return all(
        marker is not None and (marker.next_offset(r.topic, r.partition) or 0) >= r.end for r in task.ranges
    )


def _note_unapplied(context: MirrorContext, task: TableTask, tag: PendingTag) -> None:
    """Record that events from before a tag's position cannot be applied, or that there is no lake table to tag."""
    if context.ledger.progress(task.table).resume_marker is None:
        tag.settled.add(task.table)
    else:
        tag.problems[task.table] = f"events of {task.table} from before the position cannot be applied yet"


def _apply(context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats:
    """Apply a task.

    If the source's schema changed in a way that separates earlier rows from later ones, each segment is committed by
    itself. Events may show a schema version that was not known; their segment is then split again.
    """
    segments = deque(schema_segments(context, task))
    done: list[tuple[TableTask, BatchStats]] = []
    while segments:
        segment = segments.popleft()
        _follow_rename(context, segment)
        if not segment.ranges:
            done.append((segment, _evolve_without_events(context, segment)))
        elif (stats := _apply_segment(context, segment, watch)) is not None:
            done.append((segment, stats))
        else:
            segments.extendleft(reversed(schema_segments(context, replace(segment, target_schema_at=None))))
    return done[0][1] if len(done) == 1 else joined([stats for _, stats in done])


def replay_task(context: MirrorContext, task: TableTask, watch: Stopwatch) -> dict[tuple[int, int], str]:
    """Apply quarantined events, `task.records`, whose offsets the table is already past. Idempotent.

    The changelog gets the events that it lacks. The mirror gets those whose keys have not changed since.
    Return (partition, offset) → reason, for events that still cannot be applied.

    Raises:
        SchemaError: the table cannot be evolved for them; no event was applied.
        FencedError, CommitConflict: as `apply_task`.
    """
    options = context.config.table(str(task.table))
    if not options.changelog:
        raise _cannot_replay(task, f"{task.table} has no changelog")
    changelog = context.lake.load(context.config.lake.changes_namespace, task.table.name)
    if changelog is not None and has_repeated_offsets(changelog):
        raise _cannot_replay(task, f"the topic of {task.table} was recreated")
    decoded = None
    while decoded is None:
        # Events may show an unknown schema version, which is then the newest one.
        task = replace(task, target_schema_at=newest_known(context, task.table))
        with watch.stage("decode"):
            decoded = decode_batch(context, task, {})
    try:
        bad = decoded.bad_events()
        if decoded.stats.changes and decoded.schema is not None:
            if not decoded.schema.source.key:
                raise _cannot_replay(task, f"{task.table} has no key")
            events = decoded.good_events()
            _write(QuarantineReplay(context, task, options, decoded.schema, events, decoded.stats), watch)
        return bad
    finally:
        decoded.events.release()


def _apply_segment(context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats | None:
    """Apply one segment; None if its events have a schema version that was not known."""
    refuse_next_epoch(context, task)
    marker = context.ledger.progress(task.table).resume_marker
    with watch.stage("decode"):
        decoded = decode_batch(context, task, {} if marker is None else marker.progress.get(task.topic, {}))
    if decoded is None:
        return None
    try:
        if decoded.stats.bad:
            with watch.stage("quarantine"):
                quarantine_bad(decoded)
        batch = _to_apply(decoded)
        if batch is not None:
            refuse_unclear_keys(batch)
            misread = find_misread(batch)
            _write(batch, watch)
            if misread is not None:
                context.misread.note(task.table, misread.part)
            context.quarantine.resolve_applied(task.table, task.ranges, lambda: decoded.events.frame)
        return decoded.stats
    finally:
        decoded.events.release()


def _write(batch: TableBatch, watch: Stopwatch) -> None:
    with watch.stage("evolve"):
        check_followed(batch)
        batch = evolve_tables(batch)
        refuse_late_events(batch)
    with watch.stage("changelog"):
        write_changelog(batch)
    failpoints.reach("between-commits")
    with watch.stage("apply"):
        write_mirror(batch)
    failpoints.reach("after-commit")


def _to_apply(decoded: DecodedBatch) -> TableBatch | None:
    """Return the part of a decoded batch that must be applied; None if nothing can be applied yet."""
    context, task, options, stats = decoded.context, decoded.task, decoded.options, decoded.stats
    progress = context.ledger.progress(task.table)
    if decoded.schema is None and progress.resume_marker is None:
        # The table's columns are unknown until the first good event; then these records are read again.
        return None
    if progress.awaits_snapshot(task.topic) and not stats.changes:
        return None
    if stats.changes and not stats.begins_with_snapshot:
        _check_beginning(context, task)
    schema = decoded.schema or current_schema(context, task, options)
    kind = _table_kind(context, task, options, schema.source)
    return TableBatch(context, task, options, schema, decoded.good_events(), stats, kind)


def _evolve_without_events(context: MirrorContext, task: TableTask) -> BatchStats:
    """Evolve the lake tables to the newest schema version if there are no events."""
    options = context.config.table(str(task.table))
    schema = current_schema(context, task, options)
    keeper = TableKeeper(context, task.table, options, schema)
    nothing = BatchStats({}, (), 0, 0, (), {}, None, None)
    progress = context.ledger.progress(task.table)
    if options.changelog and progress.changelog is not None:
        changelog = keeper.keep(LakeRole.CHANGELOG)
        if changelog is not None:
            keeper.note_removal(LakeRole.CHANGELOG, changelog)
    if progress.mirror is None:
        return nothing
    _refuse_late_recreation(context, task, progress)
    mirror = keeper.keep(LakeRole.MIRROR)
    if mirror is None:
        return nothing
    staged = stage_pending(context.lake, mirror)
    if staged is not None:
        target = context.writer.target(task.table, LakeRole.MIRROR, mirror)
        marker = task_marker(context, task, target.base, nothing)
        # As without this commit, a replay of quarantined events must know what the snapshot replaced.
        marker = replace(marker, snapshot=progress.mirror.snapshot)
        context.writer.commit(target, staged, marker)
    # Afterwards the mirror has a later state than any version, with which it would not be evolved again.
    keeper.note_removal(LakeRole.MIRROR, mirror)
    return nothing


def _refuse_late_recreation(context: MirrorContext, task: TableTask, progress: Progress) -> None:
    """Check that the mirror has no events of a table that was dropped and created again before its definition is known.

    Its rows would be removed with the earlier ones.

    Raises:
        UnloggedChange: that is so.
    """
    marker, state = progress.mirror, progress.mirror_schema
    if marker is None or marker.position is None or state is None:
        return
    history = context.schemas.history(task.table)
    # A replica that lags behind a statement executes it again.
    followed = {v.position.gtid for v in history.versions if v.at <= state.at and v.position.gtid}
    later = (v for v in history.after(state.at) if v.recreated and v.position.gtid not in followed)
    if any(v.start.is_before(marker.position, marker.watermark_ms or 0) for v in later):
        raise UnloggedChange(
            f"{task.table} was dropped and created again, and that became known after its later changes were applied",
            f"read the table again: replicator heal {task.table}",
        )


def _follow_rename(context: MirrorContext, segment: TableTask) -> None:
    if segment.target_schema_at is None:
        return
    new = renamed_to(context, segment.table, segment.target_schema_at)
    if new is not None:
        rename(context, segment.table, new)


def _check_beginning(context: MirrorContext, task: TableTask) -> None:
    """Raise UnknownPast if changes without a snapshot are the first of a topic that has lost earlier ones."""
    ledger = context.ledger
    if ledger.progress(task.table).awaits_snapshot(task.topic):
        raise UnknownPast(
            f"{task.topic} was deleted and recreated, and does not begin with a snapshot: the log lacks the changes "
            f"of {task.table} in between",
            f"read the table again: replicator heal {task.table}",
        )
    if ledger.resume_marker_for(task.table, task.topic) is not None:
        return
    if (old := lost_name(context, task.table)) is not None:
        raise UnknownPast(
            f"{old} was renamed to {task.table}, and the lake has the rows of another table under the old name",
            f"read the table: replicator heal {task.table}",
        )
    first = min((r.start for r in task.ranges if r.start), default=0)
    if first and context.log.grows:
        raise UnknownPast(
            f"{task.topic} begins at offset {first} without a snapshot, and the lake has nothing of {task.table}: the "
            "log lacks its earlier changes",
            f"read the table: replicator heal {task.table}",
        )


def _table_kind(
    context: MirrorContext, task: TableTask, options: TableOptions, schema: TableSchema
) -> TableKind:
    """Return whether the table has a mirror; one without a key may be configured to have a changelog only.

    Raises:
        UnknownPast: the table has a key now, and only a changelog, whose beginning the log no longer has.
        UnsupportedChange: the table has a mirror, and no key any more.
    """
    progress = context.ledger.progress(task.table)
    if not schema.columns:
        return TableKind.CHANGELOG_ONLY if progress.mirror is None else TableKind.MIRRORED
    alone = not schema.key and options.keyless == "changelog"
    if progress.stands_alone and not alone:
        raise UnknownPast(
            f"{task.table} has a key now; so far it has a changelog and no mirror",
            f'set keyless = "identity" under [[table]] name = "{task.table}" and start the mirror again: '
            "it is then created from the beginning of the log",
        )
    if alone and progress.mirror is not None:
        raise UnsupportedChange(
            f'{task.table} has no key any more, and keyless = "changelog" excludes a mirror',
            f'set keyless = "identity" under [[table]] name = "{task.table}" to continue its mirror, or drop the '
            f"table in the lake (replicator drop {task.table}) and start again",
        )
    return TableKind.CHANGELOG_ONLY if alone else TableKind.MIRRORED


def _cannot_replay(task: TableTask, why: str) -> UnsupportedChange:
    return UnsupportedChange(
        f"{why}, so later changes of the rows of these events are not known",
        f"read the table again, which resolves these events: replicator heal {task.table}",
    )
