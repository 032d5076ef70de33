"""Applies the records of one table in a batch. Only this module defines the order of the steps.

A task is planned as segments: it is cut where a tag belongs, and at schema changes that separate earlier rows from
later ones. Each segment is committed by itself, in these steps:

    decode → quarantine → admit → evolve → changelog → mirror

The changelog is committed before the mirror: it is the event store, from which the mirror can be rebuilt. After a crash
between the two commits the mirror is behind; the next batch starts at the mirror's offsets and adds to the changelog
only the changes that it lacks.
"""

from collections import deque
from dataclasses import replace

from replicator import failpoints
from replicator.batch.context import MirrorContext
from replicator.batch.evolution.late_definitions import check_followed
from replicator.batch.plan.epochs import refuse_next_epoch
from replicator.batch.plan.segments import newest_known, schema_segments
from replicator.batch.plan.tags import TagPoint, cut_at_tag
from replicator.batch.steps.admit import admit
from replicator.batch.steps.changelog import write_changelog
from replicator.batch.steps.decode import decode
from replicator.batch.steps.evolve import evolve_tables
from replicator.batch.steps.follow import follow_rename, follow_schema
from replicator.batch.steps.mirror import write_mirror
from replicator.batch.steps.quarantine import quarantine_bad
from replicator.batch.steps.tag import pass_tag
from replicator.batch.task import Segment, TableAwaits, TableTask
from replicator.batch.values import QuarantineReplay, TableBatch
from replicator.errors import UnsupportedChange
from replicator.lake.strategies.changelog_reader import has_repeated_offsets
from replicator.model.batch_stats import BatchStats, joined
from replicator.telemetry import Stopwatch


def apply_task(context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats:
    """Bring one table up to the end of `task.ranges`, exactly once. A pending tag is made where it belongs.

    Raises:
        SchemaError: the table cannot continue; at most the segments before the schema change were applied.
        TablePaused: the batch has bad events, and the table is configured to pause for them.
        FencedError: another process writes this mirror.
        CommitConflict: another commit was made to the table; try again.
        TableAwaits: the table must not pass the position of a tag yet; earlier events were applied.
    """
    plan, done = deque(cut_at_tag(context, task)), list[tuple[TableTask, BatchStats]]()
    while plan:
        part = plan.popleft()
        if isinstance(part, TagPoint):
            try:
                plan.extendleft(pass_tag(context, part))
            except TableAwaits as awaited:
                awaited.done[:0] = done
                raise
        else:
            _apply_segments(context, part, watch, done)
    return done[0][1] if len(done) == 1 else joined([stats for _, stats in done])


def _apply_segments(
    context: MirrorContext, part: TableTask, watch: Stopwatch, done: list[tuple[TableTask, BatchStats]]
) -> None:
    """Apply the segments of a part of a task, and add them to `done`."""
    plan = deque(schema_segments(Segment.begin(context, part)))
    while plan:
        task = plan.popleft()
        follow_rename(context, task)
        segment = Segment.begin(context, task)
        stats = apply_segment(segment, watch) if task.ranges else follow_schema(segment)
        if stats is not None:
            done.append((task, stats))
        else:
            again = Segment.begin(context, replace(task, target_schema_at=None))
            plan.extendleft(reversed(schema_segments(again)))


def apply_segment(segment: Segment, watch: Stopwatch) -> BatchStats | None:
    """Apply one segment; None if its events have a schema version that was not known: it must be split again.

    Raises:
        As `apply_task`; no event was applied, or the changelog has them and the mirror does not.
    """
    refuse_next_epoch(segment)
    with watch.stage("decode"):
        decoded = decode(segment, segment.before)
    if decoded is None:
        return None
    try:
        if decoded.stats.bad:
            with watch.stage("quarantine"):
                quarantine_bad(decoded)
        if (batch := admit(decoded)) is not None:
            _write(batch, watch)
            context, events = segment.context, decoded.events
            if batch.misread is not None:
                context.misread.note(segment.table, batch.misread.part)
            context.quarantine.resolve_applied(segment.table, segment.task.ranges, lambda: events.frame)
        return decoded.stats
    finally:
        decoded.events.release()


def _write(batch: TableBatch, watch: Stopwatch) -> None:
    with watch.stage("evolve"):
        batch = evolve_tables(batch)
    with watch.stage("changelog"):
        write_changelog(batch)
    failpoints.reach("between-commits")
    with watch.stage("apply"):
        write_mirror(batch)
    failpoints.reach("after-commit")


def replay_task(context: MirrorContext, task: TableTask, watch: Stopwatch) -> dict[tuple[int, int], str]:
    """Apply quarantined events, `task.records`, whose offsets the table is already past. Idempotent.

    The changelog gets the events that it lacks. The mirror gets those whose keys have not changed since.
    Return (partition, offset) → reason, for events that still cannot be applied.

    Raises:
        SchemaError: the table cannot be evolved for them; no event was applied.
        FencedError, CommitConflict: as `apply_task`.
    """
    if not context.config.table(str(task.table)).changelog:
        raise _cannot_replay(task, f"{task.table} has no changelog")
    changelog = context.lake.load(context.config.lake.changes_namespace, task.table.name)
    if changelog is not None and has_repeated_offsets(changelog):
        raise _cannot_replay(task, f"the topic of {task.table} was recreated")
    decoded = None
    while decoded is None:
        # Events may show an unknown schema version, which is then the newest one.
        task = replace(task, target_schema_at=newest_known(context, task.table))
        segment = Segment.begin(context, task)
        with watch.stage("decode"):
            decoded = decode(segment, {})
    try:
        bad = decoded.bad_events()
        if decoded.stats.changes and decoded.schema is not None:
            if not decoded.schema.source.key:
                raise _cannot_replay(task, f"{task.table} has no key")
            mirror = context.lake.load(context.config.lake.namespace, task.table.name)
            if decoded.stats.truncates or (mirror is not None and mirror.pending_clear() is not None):
                raise _cannot_replay(
                    task, f"{task.table} was truncated by one of these events, or created again"
                )
            batch = QuarantineReplay(segment, decoded.schema, decoded.good_events(), decoded.stats)
            check_followed(batch)
            _write(batch, watch)
        return bad
    finally:
        decoded.events.release()


def _cannot_replay(task: TableTask, why: str) -> UnsupportedChange:
    return UnsupportedChange(
        f"{why}, so later changes of the rows of these events are not known",
        f"read the table again, which resolves these events: replicator heal {task.table}",
    )
