"""Schedule the batches of a mirror: give each table its part of the log, and handle the tables that fail."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Final

from replicator.batch import (
    MirrorContext,
    TableAwaits,
    TableTask,
    apply_task,
    divided,
    fetched_late,
    has_news,
    prefetch_plans,
)
from replicator.errors import CommitConflict, MissingSchema
from replicator.jvm.spark import compile_plans
from replicator.lake.ledger import chunks
from replicator.maintenance.small_merge import SmallMerge
from replicator.maintenance.upkeep import TableMaintainer, Upkeep
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId
from replicator.recovery.service import Recovery
from replicator.runner.log_check import check_progress, unmatched_patterns
from replicator.runner.schema_topic import SchemaTopic
from replicator.runner.shares import Missing, Pace, Round, plan_round, small_and_large
from replicator.runner.summary import RunSummary, RunTotals
from replicator.runner.table_policy import BatchDecision, TableOutcome, decide
from replicator.runner.table_renames import TableRenames
from replicator.runner.table_states import TableStates
from replicator.runner.tags import TagKeeper
from replicator.runner.topic_tables import SilentTables
from replicator.sources.change_log import Offsets
from replicator.sources.source_positions import SourcePositions
from replicator.telemetry import BatchReport, Stopwatch, get_logger, log_batch
from replicator.watch.scheduled_checks import ScheduledChecks

_LOG: Final = get_logger("replicator.runner")
_COMMIT_ATTEMPTS: Final = 3
_REREAD_POLL_S: Final = 0.2
_INTERPRETED: Final = 5_000
"""Batches of at most this many events are not worth compiling plans; see `compile_plans`."""

ApplyTask = Callable[[MirrorContext, TableTask, Stopwatch], BatchStats]
"""Brings one table up to the end of its task, as `apply_task` does."""
OnBatch = Callable[[BatchReport], None]
OnEvents = Callable[[int], None]
"""Called with the number of events that a thread has just finished."""


class Scheduler:
    """The batches of one mirror process, and the state that they share.

    A caller checks the log, and then advances the tables to growing end offsets until `stopping` is set:

        first, ends = scheduler.check_log()
        scheduler.advance(ends)

    `Rounds` does so with a part of the log at a time, so that no table has to wait for the backlog of another one.

    Attributes:
        context: the services of the mirror.
        tables: the tables, and which of them are paused or failing.
        tags: the tags of all tables at one source position.
        stopping: if set, no further task is started.
        statements: the schema-change topic.
        recovery: reads tables again; None if the log has no source that could be read.
        checks: the scheduled checks; None if there are none.
        seconds: how long the tasks of each table took in the last call of `advance`.
        totals: what was done so far, also by earlier schedulers of the process.
    """

    def __init__(
        self,
        context: MirrorContext,
        on_batch: OnBatch | None = None,
        *,
        tables: TableStates | None = None,
        apply: ApplyTask | None = None,
        upkeep: Upkeep | None = None,
        source: SourcePositions | None = None,
        totals: RunTotals | None = None,
        recovery: Recovery | None = None,
        checks: ScheduledChecks | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        """Use `tables`, `apply` and `upkeep`; by default those of `context`, and `apply_task`. Continue `totals`.

        Without `source`, the positions of the source and its connector are unknown, and no table can be tagged.
        `recovery` and `checks` must have been given `stopping`, and are closed with the scheduler.
        """
        self.context = context
        self.tables = TableStates(context) if tables is None else tables
        self._apply_once = apply_task if apply is None else apply
        self.stopping = stopping or threading.Event()
        self.seconds: dict[TableId, float] = {}
        self._on_batch = on_batch
        self._upkeep = _upkeep(context) if upkeep is None else upkeep
        self._pool = ThreadPoolExecutor(context.config.apply.parallel_tables, "table")
        self._renames, self._silent = TableRenames(context, self.tables), SilentTables(context)
        self.recovery, self.checks = recovery, checks
        self._log_start: Offsets = {}
        self.tags = TagKeeper(
            context, self.tables, self._renames, lambda: self.check_log()[1], source, recovery
        )
        self.totals = totals or RunTotals(with_before=not context.config.log.flattened)
        self.statements = SchemaTopic(context, self.tables, self.totals)
        self._awaiting: set[TableId] = set()
        self._compiled: bool | None = None
        self._unmatched_known = False

    def check_log(self) -> tuple[Offsets, Offsets]:
        """Compare the lake with the log, and return the log's first and next offsets.

        A table whose topic was recreated continues with the new topic. A table whose topic lacks events, or has more
        partitions than before, is paused. Only markers that are not known are read from the lake.

        Raises:
            LogUnavailable: the log does not answer.
            LakeUnavailable: no table can be read.
        """
        first, ends = self.context.log.offsets()
        self._renames.set_log_start(first)
        self._log_start = first
        # Definitions tell which tables the topics carry.
        self.statements.read()
        tables = self.tables
        topics = {topic: tables.table_of(topic) for topic in tables.mirrored(first)}
        self._warn_of_unmatched(set(topics.values()))
        tables.read_unknown_markers(topics.values())
        tables.refuse_compacted(topics)
        tables.note_partitions(topics, ends)
        tables.announce_kept_pauses()
        for topic, table in topics.items():
            if self.context.ledger.knows(table) and table not in tables.paused:
                with tables.alone(table):
                    tables.check_topic(topic, table, first[topic], ends.get(topic, {}))
        return first, ends

    def forget_markers(self) -> None:
        """Forget the markers of all tables, after an outage: commits may have failed without an answer."""
        self.context.ledger.forget_all()

    def starting_offsets(self, first: Offsets, ends: Offsets) -> dict[str, dict[int, int]]:
        """Return where a stream of the topics in `first` should start: after the events that the lake contains.

        A topic that is not mirrored starts at its end. A start is never after the end, even for a table that must
        be paused because its topic lost events: it must not keep the stream from starting.
        """
        mirrored = self.tables.mirrored(first)
        known = self.context.ledger.next_offsets(mirrored, {t: self.tables.table_of(t) for t in mirrored})
        starts: dict[str, dict[int, int]] = {}
        for topic, partitions in first.items():
            earliest = partitions if topic in mirrored else ends[topic]
            starts[topic] = {
                partition: min(known.get(topic, {}).get(partition, offset), ends[topic][partition])
                for partition, offset in earliest.items()
            }
        return starts

    def unread_chunks(self, ends: Offsets) -> list[tuple[OffsetRange, ...]]:
        """Return what the log has and the lake lacks, of all readable tables, in chunks of `apply.max_events`."""
        knows, table_of = self.context.ledger.knows, self.tables.table_of
        topics = [topic for topic in sorted(self.tables.mirrored(ends)) if knows(table_of(topic))]
        missing = tuple(r for topic in topics for r in self._renames.unread(topic, ends))
        return chunks(missing, self.context.config.apply.max_events)

    def _warn_of_unmatched(self, tables: set[TableId]) -> None:
        """Log once which patterns match no table or column that the log has; it lacks excluded tables."""
        if self._unmatched_known or not (defined := self.context.schemas.defined_columns()):
            return
        self._unmatched_known = True
        if found := unmatched_patterns(self.context.config, tables, defined):
            _LOG.warning(
                "patterns match nothing in the log", patterns=", ".join(found), next="run: replicator check"
            )

    def plan_round(self, goal: Offsets, pace: Pace) -> Round:
        """Return how far a round should bring the tables on their way to `goal`."""
        apply = self.context.config.apply
        return plan_round(
            goal,
            self._missing(goal),
            max_events=apply.max_events,
            least=apply.driver_max_events,
            paced=pace.events,
            begun={
                topic: self.context.ahead.ranges(self.tables.table_of(topic))
                for topic in self.tables.mirrored(goal)
            },
        )

    def _missing(self, goal: Offsets) -> dict[str, Missing]:
        """Return what the lake lacks, by topic, of the tables that are not paused and whose markers are known."""
        found = {}
        for topic in self.tables.mirrored(goal):
            table = self.tables.table_of(topic)
            held = self._is_held(table)
            known = self.context.ledger.knows(table) if held else self.tables.is_readable(table)
            if known and table not in self.tables.paused and (unread := self._renames.unread(topic, goal)):
                found[topic] = Missing(unread, waits=held or self._renames.must_wait(table, goal))
        return found

    def advance(
        self,
        ends: Offsets,
        on_events: OnEvents | None = None,
        *,
        backlog: int = 0,
        following: Mapping[str, tuple[OffsetRange, ...]] | None = None,
    ) -> BatchReport | None:
        """Bring every mirrored table up to `ends`, several at a time; return None if all were there already.

        A table that cannot continue is paused, and the others continue. A table that fails is retried later, and
        then paused. `on_events` is called after each finished task. `backlog` is the number of later events, for the
        report; `following` has those of them that Spark's workers may begin now, by topic.

        Raises:
            LogError, LakeError: what all tables need is unavailable.
        """
        apply = partial(self._apply_all, on_events=on_events, backlog=backlog)
        self.seconds = {}
        self.statements.follow()
        self.tags.begin(ends)
        ends = {**self._silent.topics(ends), **ends}
        self._renames.invalidate()
        self.tables.invalidate()
        self._renames.follow(ends)
        report = apply(self._unread(ends, following))
        # Events under a new name wait until those under the old one are in the lake.
        while self._renames.follow(ends) or any(not self._renames.must_wait(t, ends) for t in self._awaiting):
            report = apply(self._unread(ends)) or report
        # Schema changes after the newest events: it may take long until the next events come.
        report = apply(self._schema_only(ends)) or report
        self.tags.finish()
        if report is not None and not self.stopping.is_set():
            self._upkeep.run_slice(report.lag_seconds, has_backlog=backlog > 0)
        self.step_recovery()
        return report

    def take_continuing(self) -> bool:
        """Return whether a table can continue since the last call that waited for a tag or a re-read."""
        released = self.tags.take_released()
        return self.tables.take_resumed() or released

    def step_recovery(self) -> None:
        """Do what can be done now for the re-reads of tables.

        Raises:
            LogError, LakeError: what all tables need is unavailable.
        """
        if self.recovery is None or self.stopping.is_set():
            return
        if self.recovery.is_busy:
            # New tables have no events yet that would start a batch.
            self.statements.read()
        # A table that is published would be past the position of the tag.
        self.recovery.step(self._log_start, publishes=not self.tags.is_started)

    def await_recovery(self, on_step: Callable[[], None] = lambda: None) -> None:
        """Carry out all re-reads that were requested, or stop if the mirror must. `on_step` is called regularly.

        Raises:
            LogError, LakeError: what all tables need is unavailable.
        """
        while self.recovery is not None and self.recovery.is_busy and not self.stopping.wait(_REREAD_POLL_S):
            # A table must reach the events that its staging table has.
            self.advance(self.context.log.readable_ends())
            on_step()

    @property
    def events(self) -> int:
        """Number of events that were applied so far."""
        return self.totals.events

    @property
    def failing(self) -> bool:
        """Whether any table will be retried."""
        return bool(self.tables.retries)

    def retry_due(self) -> bool:
        """Whether the retry of any table is due."""
        return self.tables.retries.due()

    def await_retry(self) -> None:
        """Wait until the next retry is due, or until the mirror must stop."""
        self.stopping.wait(self.tables.retries.seconds_left())

    def summary(self) -> RunSummary:
        """Return what was done so far."""
        return self.totals.summary(self.tables.paused, self.recovery.requests() if self.recovery else ())

    def close(self) -> None:
        """Stop reading tables again, and end all threads. No batch may be running."""
        for service in [s for s in (self.checks, self.recovery) if s is not None]:
            service.close()
        self.context.ahead.close()
        self._pool.shutdown()

    def _unread(
        self, ends: Offsets, following: Mapping[str, tuple[OffsetRange, ...]] | None = None
    ) -> list[list[TableTask]]:
        """Return the tasks of each table with new events; the largest table first."""
        context, tables, whole = self.context, self.tables, []
        self._awaiting = set()
        for topic, table in self._runnable(ends):
            with tables.alone(table):
                ranges = self._renames.unread(topic, ends)
                if self._renames.must_wait(table, ends):
                    self._awaiting.add(table)
                elif ranges and tables.owns_lake_name(table) and tables.owns_topic(table, topic):
                    whole.append(self._task(table, topic, ranges))
        plans = prefetch_plans(context, divided(context, whole, following))
        return sorted(plans, key=lambda tasks: -sum(task.count for task in tasks))

    def _schema_only(self, ends: Offsets) -> list[list[TableTask]]:
        """Return a task without events for each table whose schema changed after the newest of its events."""
        found = []
        for topic, table in self._runnable(ends):
            with self.tables.alone(table):
                news = has_news(self.context, table) and not self._renames.must_wait(table, ends)
                if news and self._renames.has_all(topic):
                    found.append([self._task(table, topic, ())])
        return found

    def _task(self, table: TableId, topic: str, ranges: tuple[OffsetRange, ...]) -> TableTask:
        return TableTask(table, topic, self.context.log.topic_id(topic), ranges, self.totals.batches + 1)

    def _runnable(self, ends: Offsets) -> list[tuple[str, TableId]]:
        """Return the tables that can be processed now, with their topics; those whose topics got partitions pause."""
        found, tables = self._ready(ends), self.tables
        wider = [
            (topic, t) for topic, t in found if ends[topic] and tables.new_partitions(topic, t, ends[topic])
        ]
        if not wider:
            return found
        # The topics may have been recreated.
        self.check_log()
        for topic, table in wider:
            if table not in tables.paused:
                tables.refuse_new_partitions(topic, table, ends[topic])
        return self._ready(ends)

    def _ready(self, ends: Offsets) -> list[tuple[str, TableId]]:
        """Return the tables that are neither held nor unreadable, with their topics."""
        named = ((topic, self.tables.table_of(topic)) for topic in sorted(self.tables.mirrored(ends)))
        return [(topic, t) for topic, t in named if not self._is_held(t) and self.tables.is_readable(t)]

    def _is_held(self, table: TableId) -> bool:
        """Whether a table is paused, or waits for its retry or its re-read."""
        if self.recovery is not None and self.recovery.holds(table):
            return True
        return self.tables.is_idle(table)

    def _apply_all(
        self, tasks: Sequence[list[TableTask]], on_events: OnEvents | None, backlog: int
    ) -> BatchReport | None:
        """Apply the tasks of several tables at the same time; return None if there are no tasks."""
        watch = Stopwatch()
        if not tasks:
            return None
        self.totals.batches += 1
        outcomes = [
            outcome
            for group in small_and_large(tasks)
            for outcome in self._apply_group(group, watch, on_events)
        ]
        for outcome in outcomes:
            self.seconds[outcome.table] = self.seconds.get(outcome.table, 0.0) + outcome.seconds
        self._carry_out(decide(outcomes, log_grows=self.context.log.grows))
        done = [part for outcome in outcomes for part in outcome.done]
        self._upkeep.committed({task.table for task, _ in done})
        if self.checks is not None:
            self.checks.note_committed({task.table for task, _ in done})
        report = replace(self.totals.add(done, watch, sorted(self.tables.paused)), backlog=backlog)
        log_batch(report)
        if self._on_batch is not None:
            self._on_batch(report)
        return report

    def _apply_group(
        self, tasks: Sequence[list[TableTask]], watch: Stopwatch, on_events: OnEvents | None
    ) -> list[TableOutcome]:
        """Apply the tasks of several tables at the same time."""
        self._choose_plans(sum(task.count for of_table in tasks for task in of_table))
        # One pool for the whole run: each of its threads has a thread of the JVM and its connection.
        futures = [self._pool.submit(self._timed_apply, of_table, watch, on_events) for of_table in tasks]
        # Even if one table raises, no other may still be running when the caller tries again.
        wait(futures)
        return [future.result() for future in futures]

    def _choose_plans(self, events: int) -> None:
        compiled = events > _INTERPRETED
        if compiled is not self._compiled:
            compile_plans(self.context.spark, self.context.config, worth_it=compiled)
            self._compiled = compiled

    def _timed_apply(
        self, tasks: Sequence[TableTask], watch: Stopwatch, on_events: OnEvents | None
    ) -> TableOutcome:
        started = time.monotonic()
        outcome = self._apply(tasks, watch, on_events)
        if outcome.error is not None:
            self.context.ahead.forget(outcome.table)
        elif not self.stopping.is_set():
            self._upkeep.merge_small(outcome.table)
        return replace(outcome, seconds=time.monotonic() - started)

    def _apply(
        self, tasks: Sequence[TableTask], watch: Stopwatch, on_events: OnEvents | None
    ) -> TableOutcome:
        """Apply the tasks of one table, in order, until one fails or the mirror must stop."""
        table = tasks[0].table
        done: list[tuple[TableTask, BatchStats]] = []
        while len(done) < len(tasks) and not self.stopping.is_set():
            task = tasks[len(done)]
            try:
                # Only while the task runs, its records are in memory.
                done.append((task, self._apply_task(fetched_late(self.context, task), watch)))
            except TableAwaits as awaited:
                return TableOutcome(table, [*done, *awaited.done])
            except MissingSchema as error:
                # A log that grows may still get the definition. Otherwise, the task is tried again with the source's.
                if self.context.log.grows or not self.tables.defined_by_source(table):
                    return TableOutcome(table, done, error)
            except Exception as error:  # noqa: BLE001 - `decide` says which errors end the batch
                return TableOutcome(table, done, error)
            else:
                if on_events is not None:
                    on_events(task.count)
        return TableOutcome(table, done)

    def _apply_task(self, task: TableTask, watch: Stopwatch) -> BatchStats:
        """Apply one task. After a commit conflict, plan it again.

        Raises:
            CommitConflict: the last attempt had a conflict too.
            NoProgress: no commit contains the changes of the task.
        """
        attempts = 0
        while True:
            try:
                stats = self._apply_once(self.context, task, watch)
            except CommitConflict as error:
                # Another writer, such as table maintenance, committed in between: plan again on top of its commit.
                _LOG.warning("commit conflict, retrying", table=str(task.table), reason=error.message)
                self.context.ledger.forget(task.table)
                attempts += 1
                if attempts == _COMMIT_ATTEMPTS:
                    raise
            else:
                check_progress(task, stats, self.context.ledger.resume_marker_for(task.table, task.topic))
                return stats

    def _carry_out(self, decision: BatchDecision) -> None:
        """Pause or retry the tables that failed.

        Raises:
            LogError, LakeError: what all tables need is unavailable.
        """
        for table, error in decision.pause:
            self.tables.pause(table, error)
        if decision.error is not None:
            raise decision.error
        self.totals.quarantined += decision.quarantined
        for table in decision.advanced:
            self.tables.forget_failures(table)
        for table, failure in decision.retry:
            self.tables.failed(table, failure)
        if not decision.probe:
            return
        answers = self.tables.probe_lake([table for table, _ in decision.probe])
        for table, _ in decision.probe:
            # Its commit may have failed without an answer. The other tables' markers need not be read again.
            self.context.ledger.forget(table)
        self.check_log()
        if decision.outage is not None and not answers:
            raise decision.outage
        for table, failure in decision.probe:
            # `check_log` has already counted the failure of a table that cannot be read any more, and has paused those
            # whose events are lost.
            if self.context.ledger.knows(table) and table not in self.tables.paused:
                self.tables.failed(table, failure)


def _upkeep(context: MirrorContext) -> Upkeep:
    small_merge = SmallMerge(context.lake, context.row_locations, context.small_files)
    maintain = TableMaintainer(context.config, context.lake, context.ledger, small_merge)
    return Upkeep(context.config, maintain)
