"""The mirror process: follow the log, hand each batch to `batch.process` table by table, until told to stop."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from replicator.apply.lake import Lake
from replicator.apply.recent import RecentPlaces
from replicator.batch import Engine, Work, fetched, process
from replicator.config import ArchiveLog, Config, KafkaLog
from replicator.decode.schema_book import SchemaBook
from replicator.errors import (
    CommitConflict,
    DataLossError,
    DecodeError,
    LakeUnavailable,
    LogUnavailable,
    ReplicatorError,
    SchemaError,
    TablePaused,
    UsageError,
)
from replicator.ledger import Ledger, chunks, ranges_to_read
from replicator.model.census import Census
from replicator.model.commit import OffsetRange
from replicator.model.table import TableId
from replicator.observe import BatchReport, Stopwatch, get_logger, log_batch
from replicator.quarantine import Quarantine
from replicator.source.archive import ArchiveChangeLog
from replicator.source.kafka import FETCH_OPTIONS, KafkaChangeLog
from replicator.source.log import ChangeLog, Offsets, data_topic
from replicator.source.pattern import topic_pattern
from replicator.spark import build_session

_LOG: Final = get_logger("replicator.mirror")
_POLL_S: Final = 0.2
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 30.0
_COMMIT_ATTEMPTS: Final = 3


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


OnBatch = Callable[[BatchReport], None]
OnProgress = Callable[[int, int], None]
"""Called with (events done, events in all)."""


def run(config: Config, *, until_caught_up: bool = False, on_batch: OnBatch | None = None) -> RunSummary:
    """Follow the log of `config` until SIGTERM or Ctrl-C, or until the log's present end is in the lake.

    A broker that goes away is waited for. An archive has an end, where this returns.

    Raises:
        UsageError: another process runs this mirror on this machine.
        FencedError: another process, elsewhere, writes this mirror.
        DataLossError: events that the lake lacks are gone from the log.
        ReplicatorError: anything else that repeating cannot mend.
    """
    if isinstance(config.log, ArchiveLog):
        return replay(config, config.log.path, on_batch=on_batch)
    with _started(config, KafkaChangeLog(config.log), on_batch) as mirror:
        _follow(mirror, config.log, until_caught_up=until_caught_up)
        return mirror.summary()


def replay(
    config: Config, archive: Path, *, on_progress: OnProgress | None = None, on_batch: OnBatch | None = None
) -> RunSummary:
    """Bring the lake up to the end of an archive, with the same code and the same guarantees as `run`.

    Raises:
        ArchiveError: the archive is damaged.
    """
    with _started(config, ArchiveChangeLog(archive, config.log.topic_prefix), on_batch) as mirror:
        first, ends = mirror.engine.log.offsets()
        mirror.check_log(first)
        pieces = _pieces(mirror, first, ends, config.apply.max_events)
        total = sum(r.count for r in pieces[-1]) if pieces else 0
        if on_progress is not None:
            mirror.on_events = _adding_up(on_progress, total)
        for piece in pieces:
            if mirror.stopping.is_set():
                break
            goal: dict[str, dict[int, int]] = {}
            for r in piece:
                goal.setdefault(r.topic, {})[r.partition] = r.end
            mirror.advance(goal)
        return mirror.summary()


def _adding_up(on_progress: OnProgress, total: int) -> Callable[[int], None]:
    """Counts finished events, from whichever thread they come."""
    done, lock = 0, threading.Lock()

    def add(events: int) -> None:
        nonlocal done
        with lock:
            done += events
            on_progress(done, total)

    return add


def _pieces(
    mirror: "Mirror", first: Offsets, ends: Offsets, max_events: int
) -> list[tuple[OffsetRange, ...]]:
    """What the archive has and the lake lacks, as growing goals: each reaches further by at most `max_events`."""
    missing: list[OffsetRange] = []
    for topic, partitions in sorted(mirror.wanted(ends).items()):
        behind = mirror.engine.ledger.progress(mirror.table_of(topic)).behind
        missing += ranges_to_read(topic, behind, first.get(topic, {}), partitions)
    cuts = chunks(tuple(missing), max_events)
    starts = {(r.topic, r.partition): r.start for r in missing}
    return [
        tuple(OffsetRange(r.topic, r.partition, starts[r.topic, r.partition], r.end) for r in cut)
        for cut in cuts
        if cut
    ]


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
        self._tables: dict[str, TableId] = {}
        self._paused: dict[TableId, str] = {}
        self._first: Offsets = {}
        self._batches = 0
        self._events = 0
        self._quarantined = 0
        self._rows: dict[str, int] = {}
        self._touched: set[str] = set()

    def table_of(self, topic: str) -> TableId:
        """The source table whose changes a data topic carries."""
        if topic not in self._tables:
            names = data_topic(topic, self.engine.log.topic_prefix)
            if names is None:
                raise DecodeError(f"{topic} is not the topic of a table")
            self._tables[topic] = TableId(*names)
        return self._tables[topic]

    def wanted(self, offsets: Offsets) -> dict[str, Mapping[int, int]]:
        """The topics of tables that are mirrored."""
        return {t: ps for t, ps in offsets.items() if self.engine.config.includes(str(self.table_of(t)))}

    def check_log(self, first: Offsets) -> None:
        """Compare what the lake has with where the log begins.

        Raises:
            DataLossError: the log no longer has events that come next for some table.
        """
        self._first = first
        wanted = self.wanted(first)
        self.engine.ledger.load({self.table_of(topic) for topic in wanted})
        for topic, partitions in wanted.items():
            behind = self.engine.ledger.progress(self.table_of(topic)).behind
            for partition, begin in partitions.items():
                known = None if behind is None else behind.next_offset(topic, partition)
                if known is not None and known < begin:
                    raise DataLossError(
                        f"{topic} partition {partition}: the lake needs offset {known} next, the log begins at {begin}",
                        "replay an archive that has them, or drop the table in the lake and bootstrap it again",
                    )

    def advance(self, ends: Offsets) -> BatchReport | None:
        """Bring every mirrored table up to `ends`, several at a time; None where all were there already.

        A table that cannot go on is paused and recorded, the others go on.
        """
        engine, watch = self.engine, Stopwatch()
        engine.book.add_schema_changes(engine.log.schema_changes())
        works = self._plan(ends)
        if not works:
            return None
        self._batches += 1
        # One pool for the whole run: each of its threads has a thread of the JVM and its connection.
        done = [
            piece for pieces in self._pool.map(lambda w: self._take_in(w, watch), works) for piece in pieces
        ]
        report = self._report(done, watch)
        log_batch(report)
        if self._on_batch is not None:
            self._on_batch(report)
        return report

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
        for topic, partitions in self.wanted(ends).items():
            table = self.table_of(topic)
            if table in self._paused:
                continue
            behind = engine.ledger.progress(table).behind
            ranges = ranges_to_read(topic, behind, self._first.get(topic, {}), partitions)
            if ranges:
                pieces = chunks(ranges, engine.config.apply.max_events)
                plans.append([Work(table, topic, piece, self._batches + 1) for piece in pieces])
        # A table's later pieces wait until the one before is in the lake; only first pieces are fetched together.
        first = fetched(engine, [works[0] for works in plans])
        plans = [[work, *works[1:]] for work, works in zip(first, plans, strict=True)]
        return sorted(plans, key=lambda works: -sum(w.count for w in works))

    def _take_in(self, works: list[Work], watch: Stopwatch) -> list[tuple[Work, Census]]:
        """One table's part of the batch, as far as it got. Only errors that stop the whole mirror leave it."""
        table = works[0].table
        done: list[tuple[Work, Census]] = []
        try:
            for work in works:
                if self.stopping.is_set():
                    break
                done.append((work, self._with_retries(work, watch)))
                if self.on_events is not None:
                    self.on_events(work.count)
        except (SchemaError, DecodeError, TablePaused) as error:
            self._paused[table] = error.message
            _LOG.error("table paused", table=str(table), reason=error.message, next=error.hint)
            self.engine.ledger.pause(table, error.message, error.hint)
            if isinstance(error, TablePaused):
                self._quarantined += 1
        return done

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


@contextlib.contextmanager
def _started(config: Config, log: ChangeLog, on_batch: OnBatch | None) -> Iterator[Mirror]:
    """A mirror that is the only one on this machine and stops on SIGTERM and Ctrl-C."""
    with _only_one(config):
        log.offsets()  # A log that cannot be reached should be said before the JVM starts.
        spark = build_session(config)
        try:
            mirror = open_mirror(config, log, spark, on_batch)
            with _stop_on_signals(mirror.stopping):
                yield mirror
        finally:
            spark.stop()


def open_mirror(
    config: Config, log: ChangeLog, spark: SparkSession, on_batch: OnBatch | None = None
) -> Mirror:
    """A mirror on a session that is there already, with its namespaces in the lake."""
    lake = Lake(spark)
    for namespace in (config.lake.namespace, config.lake.changes_namespace, config.lake.ops_namespace):
        lake.ensure_namespace(namespace)
    ledger = Ledger(lake, config)
    ledger.resume_all()
    quarantine = Quarantine(lake, config.lake.ops_namespace, config.mirror.name)
    return Mirror(
        Engine(spark, config, log, lake, ledger, SchemaBook(), quarantine, RecentPlaces()), on_batch
    )


@contextlib.contextmanager
def _only_one(config: Config) -> Iterator[None]:
    """Hold the mirror's lock on this machine. Raises UsageError where another process has it."""
    folder = config.mirror.state_dir
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"mirror {config.mirror.name!r} is already running, as process {file.read().strip() or '?'}",
                "stop that process first, or give this mirror another name and namespace",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextlib.contextmanager
def _stop_on_signals(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C ask for a stop: the tables at work finish their commits, then the run ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _follow(mirror: Mirror, log: KafkaLog, *, until_caught_up: bool) -> None:
    """Run the stream, again and again where the broker goes away, until it is told to stop or has caught up."""
    wait = _FIRST_RETRY_S
    while not mirror.stopping.is_set():
        started = time.monotonic()
        try:
            _stream_once(mirror, log, until_caught_up=until_caught_up)
        except (LogUnavailable, LakeUnavailable, CommitConflict, PySparkException) as error:
            if until_caught_up and not isinstance(error, LogUnavailable):
                raise
            if time.monotonic() - started > 2 * _LONGEST_RETRY_S:
                wait = _FIRST_RETRY_S
            reason = error.message if isinstance(error, ReplicatorError) else str(error).splitlines()[0]
            _LOG.warning("the stream stopped, starting it again", reason=reason, in_seconds=wait)
            mirror.stopping.wait(wait)
            wait = min(2 * wait, _LONGEST_RETRY_S)
        else:
            return


def _stream_once(mirror: Mirror, log: KafkaLog, *, until_caught_up: bool) -> None:
    first, _ = mirror.engine.log.offsets()
    mirror.check_log(first)
    mirror.failure = None
    # The ledger knows where to start, so each stream gets a checkpoint of its own, to be thrown away.
    checkpoint = mirror.engine.config.mirror.state_dir / f"checkpoint-{uuid.uuid4().hex}"
    try:
        query = _start_stream(mirror, log, checkpoint, first, until_caught_up=until_caught_up)
        _wait(mirror, query)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _start_stream(
    mirror: Mirror, log: KafkaLog, checkpoint: Path, first: Offsets, *, until_caught_up: bool
) -> StreamingQuery:
    engine, apply = mirror.engine, mirror.engine.config.apply
    source = engine.config.source
    reader = engine.spark.readStream.format("kafka").options(**log.spark_options() | FETCH_OPTIONS)
    reader = reader.option("subscribePattern", topic_pattern(log.topic_prefix, source.tables, source.exclude))
    reader = reader.option("maxOffsetsPerTrigger", apply.max_events)
    reader = reader.option("startingOffsets", _starting_offsets(mirror, first))

    def on_batch(_frame: DataFrame, batch_id: int) -> None:
        # Spark plans and times the batches; what is read is decided table by table, from the ledger.
        try:
            mirror.advance(_batch_end(checkpoint, batch_id))
        except BaseException as error:
            mirror.failure = error
            raise

    writer = reader.load().writeStream
    writer = writer.foreachBatch(on_batch).option("checkpointLocation", str(checkpoint))
    if until_caught_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(apply.trigger * 1000)} milliseconds").start()


def _starting_offsets(mirror: Mirror, first: Offsets) -> str:
    wanted = mirror.wanted(first)
    known = mirror.engine.ledger.next_offsets(wanted, {t: mirror.table_of(t) for t in wanted})
    if not wanted:
        return "earliest"
    return json.dumps(
        {t: {str(p): known.get(t, {}).get(p, begin) for p, begin in ps.items()} for t, ps in wanted.items()}
    )


def _batch_end(checkpoint: Path, batch_id: int) -> dict[str, dict[int, int]]:
    """Where batch `batch_id` ends, from Spark's own offset log: a version, metadata, and a line for each source."""
    text = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
    offsets: dict[str, dict[str, int]] = json.loads(text.splitlines()[2])
    return {topic: {int(p): end for p, end in partitions.items()} for topic, partitions in offsets.items()}


def _wait(mirror: Mirror, query: StreamingQuery) -> None:
    """Wait for the stream's end. A stop lets the batch at work finish first; an error is raised as what it was."""
    try:
        while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # fractions are taken
            if mirror.stopping.is_set() and not query.status["isTriggerActive"]:
                query.stop()
                return
    except PySparkException as error:
        query.stop()
        failure = mirror.failure
        if failure is None:
            raise LogUnavailable(f"Kafka cannot be read: {str(error).splitlines()[0]}") from error
        raise failure from error
