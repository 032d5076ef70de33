"""The sessions of a run. Each has one configuration, and ends between two batches.

All sessions of a process share its lock and Java. Nothing else survives a session: the next one reads the lake, as
after a restart.
"""

import contextlib
import gc
import threading
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Final

from pyspark.sql import SparkSession

from replicator.batch.context import MirrorContext
from replicator.config import ColumnRuleBook, Config
from replicator.errors import LakeUnavailable
from replicator.jvm.launch import JavaProcess
from replicator.jvm.spark import check_java, running_session
from replicator.runner.batch_ends import BatchEnds
from replicator.runner.build import Supervision, open_context, open_scheduler
from replicator.runner.lock import only_one
from replicator.runner.log_tables import append_once, following_logs
from replicator.runner.reloads import NextSession, Reloads, SessionControl
from replicator.runner.run_recorder import RunRecorder
from replicator.runner.scheduler import OnBatch, Scheduler
from replicator.runner.signals import stop_on_signals
from replicator.runner.stream import KafkaStream, follow
from replicator.runner.summary import RunSummary, RunTotals
from replicator.sources.change_log import ChangeLog
from replicator.sources.connector.settings import kafka_log
from replicator.telemetry import BatchReport, get_logger
from replicator.watch.connector_watch import watching

_LOG: Final = get_logger("replicator.runner")
_RETRY_S: Final = 2.0


@contextlib.contextmanager
def sole_process(
    config: Config, log: ChangeLog, record: RunRecorder | None = None, java: JavaProcess | None = None
) -> Iterator[SparkSession]:
    """Hold the mirror's lock on this machine, and provide Spark, while the block runs. Write a `record` of that.

    `java` is Spark's process if it was started already.

    Raises:
        MirrorRuns: another process holds the lock.
        LogUnavailable: the log cannot be reached.
        ConfigError: the key for hashing is missing.
    """
    ColumnRuleBook(config)  # Report a missing key before Spark is used.
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            only_one(config, "stop that process first, or give this mirror another name and namespace")
        )
        if record is not None:
            stack.enter_context(record.recording())
        log.offsets()  # Report a log that cannot be reached before Spark is used.
        _LOG.info("starting Spark", mirror=config.mirror.name)
        yield stack.enter_context(running_session(config, java))


def open_mirror(
    config: Config,
    log: ChangeLog,
    spark: SparkSession,
    on_batch: OnBatch | None = None,
    *,
    only: Collection[str] = (),
    totals: RunTotals | None = None,
    supervision: Supervision | None = None,
) -> Scheduler:
    """Return the scheduler of a mirror, which must be closed. See `open_context` and `open_scheduler`."""
    context = open_context(config, log, spark)
    return open_scheduler(context, on_batch, only=only, totals=totals, supervision=supervision)


class Sessions:
    """Carries out the sessions of one run."""

    def __init__(
        self,
        process: contextlib.ExitStack,
        control: SessionControl,
        reloads: Reloads | None,
        *,
        until_caught_up: bool,
        on_batch: OnBatch | None,
        record: RunRecorder | None = None,
        java: JavaProcess | None = None,
    ) -> None:
        """Leave what all sessions share to `process`, which must be closed after them. Keep `record` up to date."""
        self._process = process
        self._control = control
        self._reloads = reloads
        self._until_caught_up = until_caught_up
        self._on_batch = on_batch
        self._batches = BatchEnds()
        self._record = record
        self._java = java
        self._spark: SparkSession | None = None
        self._totals: RunTotals | None = None
        self._summary: RunSummary | None = None

    def run(self, first: NextSession) -> RunSummary:
        """Carry out the first session, and those that follow it. Return the summary of all.

        Raises:
            ReplicatorError: as `process.run`.
        """
        session: NextSession | None = first
        while session is not None:
            with contextlib.closing(session.log):
                self._carry_out(session)
            if (session := self._control.take()) is not None:
                # The caches of the former session may be large, and its objects refer to each other.
                gc.collect()
        return self._summary or RunTotals(with_before=True).summary({})

    def _carry_out(self, session: NextSession) -> None:
        config = session.config
        values = config.compares_values and not self._until_caught_up
        supervision = Supervision.of(config, definitions=True, values=values)
        with watching(config, until_caught_up=self._until_caught_up, noted=supervision.noted) as goal:
            spark = self._start(session) if self._spark is None else self._spark
            if (scheduler := self._open(session, spark, supervision)) is None:
                return
            self._totals = scheduler.totals
            with contextlib.closing(scheduler):
                self._control.begin(scheduler.stopping)
                if scheduler.recovery is not None:
                    scheduler.recovery.start()
                if session.reload is not None and self._reloads is not None:
                    self._reloads.applied(session.reload)
                if self._record is not None:
                    self._record.follows()
                _LOG.info("following the log", trigger_seconds=config.apply.trigger)
                stream = KafkaStream(scheduler.context, kafka_log(config), scheduler, self._until_caught_up)
                with self._pipelines(scheduler.context, spark), self._logs(config, spark):
                    follow(stream, goal)
                self._summary = scheduler.summary()

    @contextlib.contextmanager
    def _logs(self, config: Config, spark: SparkSession) -> Iterator[None]:
        """Append events to log tables while the block runs, or up to what the topics have at its end."""
        if self._until_caught_up:
            yield
            append_once(config, spark)
            return
        with following_logs(config, spark):
            yield

    @contextlib.contextmanager
    def _pipelines(self, context: MirrorContext, spark: SparkSession) -> Iterator[None]:
        """Keep the results of pipelines current while the block runs, or bring them up to date at its end."""
        from replicator.runner.pipelines import following_pipelines, refresh_once  # noqa: PLC0415 - see `_start`

        if self._until_caught_up:
            yield
            refresh_once(context.config, spark, recent=context.recent)
            return
        with following_pipelines(context.config, spark, context.recent, self._batches):
            yield

    def _note_batch(self, report: BatchReport) -> None:
        self._batches.note()
        if self._on_batch is not None:
            self._on_batch(report)

    def _start(self, session: NextSession) -> SparkSession:
        """Start what all sessions share."""
        # Half a second, which passes while Java starts.
        threading.Thread(target=import_module, args=("replicator.runner.pipelines",), daemon=True).start()
        spark = self._spark = self._process.enter_context(
            sole_process(session.config, session.log, self._record, self._java)
        )
        self._process.enter_context(stop_on_signals(self._control))
        if self._reloads is not None:
            self._process.enter_context(self._reloads.answering())
        return spark

    def _open(self, session: NextSession, spark: SparkSession, supervision: Supervision) -> Scheduler | None:
        """Open the mirror. After a reload, wait for the lake; return None if the run must end meanwhile."""
        ending = threading.Event()
        self._control.begin(ending)
        _LOG.info("reading the lake", namespace=session.config.lake.namespace)
        while not ending.is_set():
            try:
                return open_mirror(
                    session.config,
                    session.log,
                    spark,
                    self._note_batch,
                    totals=self._totals,
                    supervision=supervision,
                )
            except LakeUnavailable as error:
                if session.reload is None:
                    raise
                check_java(spark)
                _LOG.warning("the lake does not answer, retrying", reason=error.message, in_seconds=_RETRY_S)
                ending.wait(_RETRY_S)
        return None
