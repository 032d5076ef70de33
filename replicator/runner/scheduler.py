"""What a mirror does with one batch of the log: hand each table's part to `batch.apply_task`, and report."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from replicator.batch import ExchangeAwaited, MirrorContext, TableTask, apply_task, has_news, prefetch_records
from replicator.config.unmatched import unmatched_columns, unmatched_sections, unmatched_tables
from replicator.errors import (
    CommitConflict,
    DecodeError,
    LakeUnavailable,
    MissingSchema,
    SchemaError,
    TablePaused,
)
from replicator.jvm.spark import compile_plans, first_line
from replicator.lake.ledger import chunks
from replicator.model.batch_stats import BatchStats
from replicator.model.records import BadRecord
from replicator.model.table import TableId
from replicator.runner.table_renames import TableRenames
from replicator.runner.table_states import TableStates
from replicator.sources.change_log import Offsets
from replicator.telemetry import BatchReport, Stopwatch, get_logger, log_batch

_LOG: Final = get_logger("replicator.runner")
_COMMIT_ATTEMPTS: Final = 3
_INTERPRETED: Final = 5_000
"""Events of a batch for which it is not worth while to compile plans; see `compile_plans`."""

OnBatch = Callable[[BatchReport], None]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did, from start to end."""

    batches: int
    events: int
    rows: Mapping[str, int]
    tables: tuple[str, ...]
    paused: Mapping[str, str]
    quarantined: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one table's part of a batch came to: the pieces that are in the lake, and the error that ended it."""

    table: TableId
    done: Sequence[tuple[TableTask, BatchStats]]
    failure: Exception | None
    quarantined: int = 0
    """Events of the piece that paused the table."""


class Scheduler:
    """The state of one mirror process: an engine, what it has done so far, and whether it should stop."""

    def __init__(self, context: MirrorContext, on_batch: OnBatch | None) -> None:
        self.context = context
        self.tables = TableStates(context)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.on_events: Callable[[int], None] | None = None
        self._on_batch = on_batch
        self._pool = ThreadPoolExecutor(context.config.apply.parallel_tables, "table")
        self._started = time.monotonic()
        self._renames = TableRenames(context, self.tables)
        self._batches = 0
        self._events = 0
        self._quarantined = 0
        self._bad_records: list[BadRecord] = []
        self._rows: dict[str, int] = {}
        self._touched: set[str] = set()
        self._awaiting: set[TableId] = set()
        self._compiled: bool | None = None
        self._unmatched_known = False

    def check_log(self, first: Offsets, ends: Offsets) -> None:
        """Compare what the lake has with where the log begins and ends.

        A table whose topic is another one now gets a new epoch; one whose topic lacks events is paused.

        Raises:
            LakeUnavailable: no table can be read.
        """
        self._renames.first = first
        # They tell which tables the topics carry.
        self._read_schema_changes()
        tables = self.tables
        topics = {topic: tables.of(topic) for topic in tables.wanted(first)}
        self._warn_of_unmatched(set(topics.values()))
        tables.read_markers(set(topics.values()) - tables.paused.keys())
        for topic, table in topics.items():
            if self.context.ledger.knows(table) and table not in tables.paused:
                self._check_topic(topic, table, first[topic], ends.get(topic, {}))

    def _warn_of_unmatched(self, tables: set[TableId]) -> None:
        """Log once which patterns match no table or column, as far as the log tells: it lacks excluded tables."""
        if self._unmatched_known or not (defined := self.context.schemas.defined_columns()):
            return
        self._unmatched_known = True
        config = self.context.config
        names = {str(table) for table in tables | defined.keys()}
        found = [*unmatched_tables(config, names), *unmatched_sections(config, names)]
        if tables <= defined.keys():
            mirrored = {str(t): columns for t, columns in defined.items() if config.includes(str(t))}
            found += unmatched_columns(config, mirrored)
        if found:
            _LOG.warning(
                "patterns match nothing in the log", patterns=", ".join(found), next="run: replicator check"
            )

    def _check_topic(
        self, topic: str, table: TableId, first: Mapping[int, int], ends: Mapping[int, int]
    ) -> None:
        ledger = self.context.ledger
        if ledger.is_another_topic(table, topic, self.context.log.topic_id(topic)):
            _LOG.warning("the topic was deleted and made anew", topic=topic, table=str(table))
            self.context.writer.reset_topic(table, topic, self.context.log.topic_id(topic))
        resume_marker = ledger.progress(table).resume_marker
        if resume_marker is None:
            return
        for partition, begin in first.items():
            known = resume_marker.next_offset(topic, partition)
            if known is not None and known < begin:
                self.tables.pause(
                    table,
                    f"{topic} partition {partition}: the lake needs offset {known} next, the log begins at {begin}",
                    "replay an archive that has them, or drop the table in the lake and take a new snapshot of it",
                )
                return
            end = ends.get(partition, begin)
            if known is not None and known > end and self.context.log.grows:
                self.tables.pause(
                    table,
                    f"{topic} partition {partition} ends at offset {end}, and the lake has events up to {known}: "
                    "the log has lost its newest events, and what comes next would be taken for them",
                    "drop the table in the lake and take a new snapshot of it; then start the mirror again",
                )
                return

    def advance(self, ends: Offsets) -> BatchReport | None:
        """Bring every mirrored table up to `ends`, several at a time; None where all were there already.

        A table that cannot go on is paused and recorded, the others go on. One whose work fails is tried again
        later (see `retries`) and then paused.

        Raises:
            LogError, LakeError: what all tables need is away.
        """
        self._read_schema_changes()
        self._renames.invalidate()
        self.tables.invalidate()
        self._renames.follow(ends)
        report = self._take_in_all(self._unread(ends))
        # Events under a new name wait until those under the old one are in the lake.
        while self._renames.follow(ends) or any(not self._renames.awaited(t, ends) for t in self._awaiting):
            report = self._take_in_all(self._unread(ends)) or report
        # Changes behind the newest events: until the next ones come, it may take long.
        report = self._take_in_all(self._news(ends)) or report
        # Tables exchange their names once both have all from before.
        while self._renames.follow(ends):
            report = self._take_in_all(self._unread(ends)) or report
            report = self._take_in_all(self._news(ends)) or report
        return report

    def _take_in_all(self, tasks: Sequence[list[TableTask]]) -> BatchReport | None:
        watch = Stopwatch()
        if not tasks:
            return None
        self._batches += 1
        self._choose_plans(sum(task.count for pieces in tasks for task in pieces))
        # One pool for the whole run: each of its threads has a thread of the JVM and its connection.
        futures = [self._pool.submit(self._take_in, task, watch) for task in tasks]
        # Whatever one table raises, no other may still be at work when the caller tries again.
        wait(futures)
        outcomes = [future.result() for future in futures]
        self._quarantined += sum(outcome.quarantined for outcome in outcomes)
        self._judge(outcomes)
        report = self._report([piece for outcome in outcomes for piece in outcome.done], watch)
        log_batch(report)
        if self._on_batch is not None:
            self._on_batch(report)
        return report

    def _choose_plans(self, events: int) -> None:
        compiled = events > _INTERPRETED
        if compiled is not self._compiled:
            compile_plans(self.context.spark, self.context.config, worth_it=compiled)
            self._compiled = compiled

    def _read_schema_changes(self) -> None:
        """Bring the schema book up to date. Records that are no schema change are set aside; the mirror goes on."""
        # Kept until they are in quarantine: where that fails, they are not read a second time.
        self._bad_records += self.context.schemas.add_schema_changes(self.context.log.schema_changes())
        if not self._bad_records:
            return
        try:
            added = self.context.quarantine.add_records(self._bad_records, self._batches + 1)
        except (PySparkException, Py4JJavaError, LakeUnavailable) as error:
            self.context.lake.namespace_properties(self.context.config.lake.ops_namespace)
            # Only the table of quarantine is at fault; they are kept, and no table has to wait for them.
            _LOG.error("schema changes cannot go to quarantine, trying it again", reason=first_line(error))
            return
        for bad in added:
            record = bad.record
            _LOG.warning(
                "a schema change cannot be read and went to quarantine",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                reason=bad.reason,
            )
            self._quarantined += 1
        self._bad_records = []

    @property
    def failing(self) -> bool:
        """Whether some table failed and is to be tried again."""
        return bool(self.tables.retries)

    def retry_due(self) -> bool:
        """Whether it is time to try some table again."""
        return self.tables.retries.due()

    def await_retry(self) -> None:
        """Wait until it is, or until the mirror is to stop."""
        self.stopping.wait(self.tables.retries.seconds_left())

    def summary(self) -> RunSummary:
        """What was done so far."""
        return RunSummary(
            self._batches,
            self._events,
            dict(self._rows),
            tuple(sorted(self._touched)),
            {str(table): reason for table, reason in sorted(self.tables.paused.items())},
            self._quarantined,
            time.monotonic() - self._started,
        )

    def _unread(self, ends: Offsets) -> list[list[TableTask]]:
        """For each table with new events its work, in pieces of at most `max_events`; the largest first."""
        context, tables, plans = self.context, self.tables, []
        self._awaiting = set()
        for topic, table in self._at_work(ends):
            ranges = self._renames.unread(topic, ends)
            if self._renames.awaited(table, ends):
                self._awaiting.add(table)
            elif ranges and tables.has_place(table) and tables.has_topic(table, topic):
                pieces = chunks(ranges, context.config.apply.max_events)
                topic_id = context.log.topic_id(topic)
                plans.append(
                    [TableTask(table, topic, topic_id, piece, self._batches + 1) for piece in pieces]
                )
        # A table's later pieces wait until the one before is in the lake; only first pieces are fetched together.
        first = prefetch_records(context, [tasks[0] for tasks in plans])
        plans = [[task, *tasks[1:]] for task, tasks in zip(first, plans, strict=True)]
        return sorted(plans, key=lambda tasks: -sum(w.count for w in tasks))

    def _news(self, ends: Offsets) -> list[list[TableTask]]:
        """For each table whose schema changed after the newest event of all the work of following that."""
        return [
            [TableTask(table, topic, self.context.log.topic_id(topic), (), self._batches + 1)]
            for topic, table in self._at_work(ends)
            if has_news(self.context, table)
            and not self._renames.awaited(table, ends)
            and self._renames.has_all(topic)
        ]

    def _at_work(self, ends: Offsets) -> Iterator[tuple[str, TableId]]:
        """The tables that the mirror can work at now, and their topics."""
        for topic in sorted(self.tables.wanted(ends)):
            table = self.tables.of(topic)
            waits = self.tables.is_idle(table) or self.context.exchanged.holds(table)
            if not waits and self.tables.readable(table):
                yield topic, table

    def _take_in(self, tasks: list[TableTask], watch: Stopwatch) -> _Outcome:
        """One table's part of the batch, as far as it got. Only errors that stop the whole mirror leave it."""
        table = tasks[0].table
        done: list[tuple[TableTask, BatchStats]] = []
        failure: Exception | None = None
        try:
            for task in tasks:
                if self.stopping.is_set():
                    break
                done.append((task, self._with_retries(task, watch)))
                if self.on_events is not None:
                    self.on_events(task.count)
        except ExchangeAwaited as awaited:
            return _Outcome(table, [*done, *awaited.done], None)
        except (SchemaError, DecodeError, TablePaused) as error:
            if isinstance(error, MissingSchema) and self.context.log.grows:
                # After an outage of the broker a table's events may be there before its definition.
                return _Outcome(table, done, error)
            if isinstance(error, MissingSchema) and self.tables.defined_by_source(table):
                again = self._take_in(tasks[len(done) :], watch)
                return replace(again, done=[*done, *again.done])
            self.tables.pause(table, error.message, error.hint)
            if isinstance(error, TablePaused):
                return _Outcome(table, done, None, error.quarantined)
        except (PySparkException, Py4JJavaError, LakeUnavailable) as error:
            # A lake that is away for one table may be so for all; `_judge` finds out.
            failure = error
        return _Outcome(table, done, failure)

    def _judge(self, outcomes: Sequence[_Outcome]) -> None:
        """Count the failures of tables, where nothing that all tables need is to blame.

        Raises:
            LogError, LakeError: that is.
        """
        for outcome in outcomes:
            if outcome.done or outcome.failure is None:
                self.tables.succeeded(outcome.table)
        for outcome in outcomes:
            if isinstance(outcome.failure, MissingSchema):
                self.tables.failed(outcome.table, outcome.failure)
        failures = [
            (o.table, o.failure)
            for o in outcomes
            if o.failure is not None and not isinstance(o.failure, MissingSchema)
        ]
        if not failures:
            return
        self._check_surroundings()
        if 1 < len(failures) == len(outcomes):
            reason = first_line(failures[0][1])
            raise LakeUnavailable(
                f"all {len(failures)} tables of the batch failed: {reason}",
                "check that the lake's warehouse can be written to and that Spark has memory enough",
            )
        for table, failure in failures:
            # One that cannot be read any more was noticed just now.
            if self.context.ledger.knows(table):
                self.tables.failed(table, failure)

    def _check_surroundings(self) -> None:
        """Ask log and lake for something; where Java is gone, the lake does not answer."""
        self.check_log(*self.context.log.offsets())
        self.context.lake.namespace_properties(self.context.config.lake.ops_namespace)

    def _with_retries(self, task: TableTask, watch: Stopwatch) -> BatchStats:
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            try:
                return apply_task(self.context, task, watch)
            except CommitConflict as error:
                # Maintenance from elsewhere committed in between: plan again on top of it.
                _LOG.warning("commit conflict, trying again", table=str(task.table), reason=error.message)
                self.context.ledger.forget(task.table)
                if attempt == _COMMIT_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _report(self, done: list[tuple[TableTask, BatchStats]], watch: Stopwatch) -> BatchReport:
        rows: dict[str, int] = {}
        with_before = not self.context.config.log.flattened
        for _, stats in done:
            for kind, number in stats.rows_by_kind(with_before=with_before).items():
                rows[kind] = rows.get(kind, 0) + number
        for kind, number in rows.items():
            self._rows[kind] = self._rows.get(kind, 0) + number
        watermarks = [c.watermark_ms for _, c in done if c.watermark_ms is not None]
        events = sum(task.count for task, _ in done)
        quarantined = sum(c.bad for _, c in done)
        tables = {str(task.table) for task, _ in done}
        self._events += events
        self._quarantined += quarantined
        self._touched |= tables
        return BatchReport(
            batch=self._batches,
            events=events,
            rows=rows,
            tables=len(tables),
            seconds=watch.times(),
            lag_seconds=time.time() - max(watermarks) / 1000 if watermarks else None,
            quarantined=quarantined,
            paused=tuple(str(table) for table in sorted(self.tables.paused)),
        )
