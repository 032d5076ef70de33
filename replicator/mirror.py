"""What a mirror does with one batch of the log: hand each table's part to `batch.process`, and report."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from replicator.batch import (
    Engine,
    Work,
    fetched,
    has_left,
    has_news,
    is_half_renamed,
    process,
    rename,
    renamed_to,
)
from replicator.errors import (
    CommitConflict,
    DecodeError,
    LakeUnavailable,
    MissingSchema,
    ReplicatorError,
    SchemaError,
    SharedTopic,
    SourceError,
    TablePaused,
)
from replicator.ledger import chunks, ranges_to_read
from replicator.model.census import Census
from replicator.model.commit import CommitMarker
from replicator.model.record import BadRecord
from replicator.model.table import TableId
from replicator.observe import BatchReport, Stopwatch, get_logger, log_batch
from replicator.retries import RETRY_S, Retries
from replicator.source.log import Offsets, data_topic
from replicator.spark import first_line
from replicator.topics import TopicTables

_LOG: Final = get_logger("replicator.mirror")
_COMMIT_ATTEMPTS: Final = 3

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
    done: Sequence[tuple[Work, Census]]
    failure: Exception | None


class Mirror:
    """The state of one mirror process: an engine, what it has done so far, and whether it should stop."""

    def __init__(self, engine: Engine, on_batch: OnBatch | None) -> None:
        self.engine = engine
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.on_events: Callable[[int], None] | None = None
        self._on_batch = on_batch
        self._pool = ThreadPoolExecutor(engine.config.apply.parallel_tables, "table")
        self._started = time.monotonic()
        self._topics = TopicTables(engine.log, engine.book, engine.config.includes)
        self._paused: dict[TableId, str] = {}
        self._retries = Retries()
        self._owners: dict[str, TableId] = {}
        self._asked_source: set[TableId] = set()
        self._first: Offsets = {}
        self._batches = 0
        self._events = 0
        self._quarantined = 0
        self._bad_records: list[BadRecord] = []
        self._rows: dict[str, int] = {}
        self._touched: set[str] = set()
        self._awaiting: set[TableId] = set()

    def table_of(self, topic: str) -> TableId:
        """The source table whose changes a data topic carries."""
        return self._topics.table(topic)

    def wanted(self, offsets: Offsets) -> dict[str, Mapping[int, int]]:
        """The topics of tables that are mirrored."""
        return {t: ps for t, ps in offsets.items() if self.engine.config.includes(str(self.table_of(t)))}

    def check_log(self, first: Offsets, ends: Offsets) -> None:
        """Compare what the lake has with where the log begins and ends.

        A table whose topic is another one now gets a new epoch; one whose topic lacks events is paused.

        Raises:
            LakeUnavailable: no table can be read.
        """
        self._first = first
        # They tell which tables the topics carry.
        self._read_schema_changes()
        topics = {topic: self.table_of(topic) for topic in self.wanted(first)}
        self._read_markers(set(topics.values()) - self._paused.keys())
        for topic, table in topics.items():
            if self.engine.ledger.knows(table) and table not in self._paused:
                self._check_topic(topic, table, first[topic], ends.get(topic, {}))

    def _read_markers(self, tables: set[TableId]) -> None:
        """Read what the lake has of all tables. One that cannot be read fails alone, where the lake answers."""
        failures = self.engine.ledger.load(tables)
        if failures and self.engine.ledger.knows_nothing:
            raise next(iter(failures.values()))
        for table, error in failures.items():
            if not self._retries.must_wait(table):
                self._failed(table, error)

    def _check_topic(
        self, topic: str, table: TableId, first: Mapping[int, int], ends: Mapping[int, int]
    ) -> None:
        ledger = self.engine.ledger
        if ledger.is_another_topic(table, topic, self.engine.log.topic_id(topic)):
            _LOG.warning("the topic was deleted and made anew", topic=topic, table=str(table))
            ledger.begin_anew(table, topic, self.engine.log.topic_id(topic))
        behind = ledger.progress(table).behind
        if behind is None:
            return
        for partition, begin in first.items():
            known = behind.next_offset(topic, partition)
            if known is not None and known < begin:
                self._pause(
                    table,
                    f"{topic} partition {partition}: the lake needs offset {known} next, the log begins at {begin}",
                    "replay an archive that has them, or drop the table in the lake and take a new snapshot of it",
                )
                return
            end = ends.get(partition, begin)
            if known is not None and known > end and self.engine.log.grows:
                self._pause(
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
        self._follow_renames(ends)
        report = self._take_in_all(ends)
        # Events under a new name wait until those under the old one are in the lake.
        while self._follow_renames(ends) or any(not self._awaits_rename(t, ends) for t in self._awaiting):
            report = self._take_in_all(ends) or report
        return report

    def _take_in_all(self, ends: Offsets) -> BatchReport | None:
        watch = Stopwatch()
        works = self._plan(ends)
        if not works:
            return None
        self._batches += 1
        # One pool for the whole run: each of its threads has a thread of the JVM and its connection.
        futures = [self._pool.submit(self._take_in, work, watch) for work in works]
        # Whatever one table raises, no other may still be at work when the caller tries again.
        wait(futures)
        outcomes = [future.result() for future in futures]
        self._judge(outcomes)
        report = self._report([piece for outcome in outcomes for piece in outcome.done], watch)
        log_batch(report)
        if self._on_batch is not None:
            self._on_batch(report)
        return report

    def _read_schema_changes(self) -> None:
        """Bring the schema book up to date. Records that are no schema change are set aside; the mirror goes on."""
        # Kept until they are in quarantine: where that fails, they are not read a second time.
        self._bad_records += self.engine.book.add_schema_changes(self.engine.log.schema_changes())
        if not self._bad_records:
            return
        try:
            added = self.engine.quarantine.add_records(self._bad_records, self._batches + 1)
        except (PySparkException, Py4JJavaError, LakeUnavailable) as error:
            self.engine.lake.namespace_properties(self.engine.config.lake.ops_namespace)
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
        return bool(self._retries)

    def retry_due(self) -> bool:
        """Whether it is time to try some table again."""
        return self._retries.due()

    def await_retry(self) -> None:
        """Wait until it is, or until the mirror is to stop."""
        self.stopping.wait(self._retries.seconds_left())

    def summary(self) -> RunSummary:
        """What was done so far."""
        return RunSummary(
            self._batches,
            self._events,
            dict(self._rows),
            tuple(sorted(self._touched)),
            {str(table): reason for table, reason in sorted(self._paused.items())},
            self._quarantined,
            time.monotonic() - self._started,
        )

    def _plan(self, ends: Offsets) -> list[list[Work]]:
        """For each table with something new its work, in pieces of at most `max_events`; the largest first."""
        engine, plans = self.engine, []
        self._awaiting = set()
        for topic, partitions in sorted(self.wanted(ends).items()):
            table = self.table_of(topic)
            if table in self._paused or self._retries.must_wait(table) or not self._readable(table):
                continue
            behind = self._reached(table, topic)
            ranges = ranges_to_read(topic, behind, self._first.get(topic, {}), partitions)
            if self._awaits_rename(table, ends):
                self._awaiting.add(table)
                continue
            if ranges and self._has_place(table) and self._has_topic(table, topic):
                pieces = chunks(ranges, engine.config.apply.max_events)
                topic_id = engine.log.topic_id(topic)
                plans.append([Work(table, topic, topic_id, piece, self._batches + 1) for piece in pieces])
            elif not ranges and has_news(engine, table) and self._has_all(topic):
                plans.append([Work(table, topic, engine.log.topic_id(topic), (), self._batches + 1)])
        # A table's later pieces wait until the one before is in the lake; only first pieces are fetched together.
        first = fetched(engine, [works[0] for works in plans])
        plans = [[work, *works[1:]] for work, works in zip(first, plans, strict=True)]
        return sorted(plans, key=lambda works: -sum(w.count for w in works))

    def _follow_renames(self, ends: Offsets) -> bool:
        """Rename the lake's tables whose source was renamed, once they have all of their old topic; whether any was."""
        engine, found = self.engine, False
        topics = {self.table_of(topic): topic for topic in self.wanted(ends)}
        for first, topic in topics.items():
            # A name between two others may never have had an event, and so no topic.
            for table in (first, *self._later_names(first)):
                if table in self._paused or self._retries.must_wait(table) or not engine.ledger.knows(table):
                    continue
                new = renamed_to(engine, table)
                if new is None:
                    continue
                if not is_half_renamed(engine, table, new) and not self._has_all(topics.get(table, topic)):
                    continue
                try:
                    found |= rename(engine, table, new)
                except LakeUnavailable as error:
                    for name in (table, new):
                        self._pause(
                            name, error.message, "rename the tables in the lake yourself, or start anew"
                        )
        return found

    def _later_names(self, table: TableId) -> list[TableId]:
        """What the table was renamed to, one name after the other; what the lake has of them is known then."""
        found: list[TableId] = []
        left = list(self.engine.book.later_names(table))
        while left:
            name = left.pop()
            if name not in (table, *found):
                self._readable(name)
                found.append(name)
                left += self.engine.book.later_names(name)
        return found

    def _awaits_rename(self, table: TableId, ends: Offsets) -> bool:
        """Whether the lake still has this table under the name that it had before it was renamed, or is to get it."""
        engine = self.engine
        if engine.ledger.progress(table).topics:
            return False
        old_names = engine.book.earlier_names(table)
        if any(renamed_to(engine, old) == table for old in old_names):
            return True
        left = {old for old in old_names if not has_left(engine, old, table)}
        return any(
            ranges_to_read(topic, self._reached(old, topic), self._first.get(topic, {}), partitions)
            for topic, partitions in self.wanted(ends).items()
            if (old := self.table_of(topic)) in left
        )

    def _reached(self, table: TableId, topic: str) -> CommitMarker | None:
        """The marker behind which events of `topic` are to be read; it may be under the table's later name."""
        if self.engine.ledger.progress(table).behind is None:
            self._later_names(table)
        return self.engine.ledger.reached(table, topic)

    def _has_all(self, topic: str) -> bool:
        """Whether the lake has all that the log now has of a topic, so that no event from before is to come."""
        _, ends = self.engine.log.offsets()
        behind = self._reached(self.table_of(topic), topic)
        return not ranges_to_read(topic, behind, {}, ends.get(topic, {}))

    def _take_in(self, works: list[Work], watch: Stopwatch) -> "_Outcome":
        """One table's part of the batch, as far as it got. Only errors that stop the whole mirror leave it."""
        table = works[0].table
        done: list[tuple[Work, Census]] = []
        failure: Exception | None = None
        try:
            for work in works:
                if self.stopping.is_set():
                    break
                done.append((work, self._with_retries(work, watch)))
                if self.on_events is not None:
                    self.on_events(work.count)
        except (SchemaError, DecodeError, TablePaused) as error:
            if isinstance(error, MissingSchema) and self.engine.log.grows:
                # After an outage of the broker a table's events may be there before its definition.
                return _Outcome(table, done, error)
            if isinstance(error, MissingSchema) and self._defined_by_source(table):
                again = self._take_in(works[len(done) :], watch)
                return _Outcome(table, [*done, *again.done], again.failure)
            self._pause(table, error.message, error.hint)
            if isinstance(error, TablePaused):
                self._quarantined += 1
        except (PySparkException, Py4JJavaError, LakeUnavailable) as error:
            # A lake that is away for one table may be so for all; `_judge` finds out.
            failure = error
        return _Outcome(table, done, failure)

    def _pause(self, table: TableId, reason: str, hint: str | None) -> None:
        self._paused[table] = reason
        _LOG.error("table paused", table=str(table), reason=reason, next=hint)
        self.engine.ledger.pause(table, reason, hint)

    def _judge(self, outcomes: Sequence["_Outcome"]) -> None:
        """Count the failures of tables, where nothing that all tables need is to blame.

        Raises:
            LogError, LakeError: that is.
        """
        for outcome in outcomes:
            if outcome.done or outcome.failure is None:
                self._retries.succeeded(outcome.table)
        for outcome in outcomes:
            if isinstance(outcome.failure, MissingSchema):
                self._failed(outcome.table, outcome.failure)
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
            if self.engine.ledger.knows(table):
                self._failed(table, failure)

    def _check_surroundings(self) -> None:
        """Ask log and lake for something; where Java is gone, the lake does not answer."""
        self.check_log(*self.engine.log.offsets())
        self.engine.lake.namespace_properties(self.engine.config.lake.ops_namespace)

    def _failed(self, table: TableId, error: Exception) -> None:
        reason = first_line(error)
        delay = self._retries.failed(table)
        if delay is not None:
            _LOG.warning("table failed, trying it again", table=str(table), reason=reason, in_seconds=delay)
            return
        if isinstance(error, MissingSchema) and self._defined_by_source(table):
            return
        hint = f"it failed {len(RETRY_S) + 1} times in a row; mend the cause, then start the mirror again"
        if isinstance(error, ReplicatorError) and error.hint and not isinstance(error, LakeUnavailable):
            hint = error.hint
        self._pause(table, reason, hint)

    def _defined_by_source(self, table: TableId) -> bool:
        """Whether the source says, now for the first time, how a table is defined of which the log says nothing."""
        source = self.engine.config.source
        if source.url is None or table in self._asked_source:
            return False
        self._asked_source.add(table)
        # SQLAlchemy takes a second to import, and hardly any mirror needs it.
        from replicator.definitions import source_definition  # noqa: PLC0415

        try:
            schema = source_definition(source, table)
        except SourceError as error:
            _LOG.warning(
                "the source could not be asked for a definition", table=str(table), reason=error.message
            )
            return False
        if schema is None:
            return False
        _LOG.warning("types come from the source as it is now", table=str(table), columns=len(schema.columns))
        self.engine.book.define(table, schema)
        return True

    def _has_place(self, table: TableId) -> bool:
        """Whether the lake's table of this name is for `table`. Where it is another's, `table` is paused."""
        name = table.name.casefold() if self.engine.config.lake.folds_case else table.name
        if name not in self._owners:
            self._owners[name] = self._owner(table)
        owner = self._owners[name]
        if owner != table:
            self._pause(
                table,
                f"{table} and {owner} would both be {table.name} in the lake, which mirrors {owner}",
                f"leave {table} out of source.tables, and mirror it by another mirror with a namespace of its own",
            )
        return owner == table

    def _has_topic(self, table: TableId, topic: str) -> bool:
        """Whether the topic carries this table alone. Where it does not, `table` is paused."""
        try:
            self._topics.check_alone(topic)
        except SharedTopic as error:
            self._pause(table, error.message, error.hint)
            return False
        return True

    def _owner(self, table: TableId) -> TableId:
        """The table whose events the lake's table of the same name has; `table` where it has none of others."""
        prefix = self.engine.log.topic_prefix
        topics = self.engine.ledger.progress(table).topics
        found = {self.table_of(topic) for topic in topics if data_topic(topic, prefix)}
        known = {table} | self.engine.book.earlier_names(table)
        return table if not found or found & known else min(found)

    def _readable(self, table: TableId) -> bool:
        """Whether the lake tells how far a table is; tries it again where it did not."""
        if not self.engine.ledger.knows(table):
            self._read_markers({table})
        return self.engine.ledger.knows(table)

    def _with_retries(self, work: Work, watch: Stopwatch) -> Census:
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            try:
                return process(self.engine, work, watch)
            except CommitConflict as error:
                # Maintenance from elsewhere committed in between: plan again on top of it.
                _LOG.warning("commit conflict, trying again", table=str(work.table), reason=error.message)
                self.engine.ledger.forget(work.table)
                if attempt == _COMMIT_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _report(self, done: list[tuple[Work, Census]], watch: Stopwatch) -> BatchReport:
        rows: dict[str, int] = {}
        for _, census in done:
            for kind, number in census.rows_by_kind().items():
                rows[kind] = rows.get(kind, 0) + number
        for kind, number in rows.items():
            self._rows[kind] = self._rows.get(kind, 0) + number
        watermarks = [c.watermark_ms for _, c in done if c.watermark_ms is not None]
        events = sum(work.count for work, _ in done)
        quarantined = sum(c.bad for _, c in done)
        tables = {str(work.table) for work, _ in done}
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
            paused=tuple(str(table) for table in sorted(self._paused)),
        )
