"""The mirror process: it holds the mirror's lock, has its own Spark session, and stops on signals."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from replicator.batch import MirrorContext
from replicator.config import ArchiveLog, ColumnRuleBook, Config, KafkaLog
from replicator.errors import UsageError
from replicator.jvm.spark import running_session
from replicator.model.replay_range import ReplayRange
from replicator.model.reread import Request
from replicator.model.table import TableId
from replicator.runner.archive_run import (
    OnProgress,
    apply_archive,
    check_range,
    limit_archive,
    open_archive,
)
from replicator.runner.build import open_context, open_scheduler
from replicator.runner.connector_watch import watching
from replicator.runner.kafka_log import open_kafka_log
from replicator.runner.lock import only_one
from replicator.runner.lost_binlog import LostBinlog
from replicator.runner.scheduler import OnBatch, Scheduler
from replicator.runner.signals import stop_on_signals
from replicator.runner.stream import KafkaStream, follow
from replicator.runner.summary import RunSummary
from replicator.sources.change_log import ChangeLog


def run(config: Config, *, until_caught_up: bool = False, on_batch: OnBatch | None = None) -> RunSummary:
    """Apply current and future changes until SIGTERM or Ctrl-C, or `until_caught_up` with the source's present state.

    Waits for a broker that does not answer, and restarts a failed connector. Of an archive, applies all events and
    returns.

    Raises:
        NotCaughtUp: the source's position at the start was not reached, or it is unknown whether it was.
        UsageError: another process on this machine runs this mirror.
        FencedError: a process on another machine writes this mirror.
        DataLossError: the log no longer has events that the lake lacks.
        ReplicatorError: any other error that a retry cannot fix.
    """
    if isinstance(config.log, ArchiveLog):
        return replay(config, on_batch=on_batch)
    lost = LostBinlog(config)
    with (
        watching(config, until_caught_up=until_caught_up, lost=lost) as goal,
        open_kafka_log(config, config.log) as log,
        _started(config, log, on_batch) as (context, scheduler),
    ):
        if scheduler.rereads is not None:
            scheduler.rereads.lost_binlog = lost
        follow(KafkaStream(context, config.log, scheduler, until_caught_up), goal)
        return scheduler.summary()


def reread_tables(
    config: Config,
    tables: Sequence[TableId],
    reason: str,
    on_progress: Callable[[Sequence[Request]], None] = lambda _: None,
) -> list[Request]:
    """Read `tables` again from the source, and end once that is done. Return the requests.

    Raises:
        MirrorRuns: another process on this machine runs this mirror.
        ReplicatorError: as `run`.
    """
    if not isinstance(config.log, KafkaLog):
        raise UsageError("a mirror of an archive cannot read the source", 'set log.kind = "kafka"')
    lost = LostBinlog(config)
    with (
        watching(config, until_caught_up=False, lost=lost),
        open_kafka_log(config, config.log) as log,
        _started(config, log, None) as (_, scheduler),
    ):
        scheduler.check_log()
        if (rereads := scheduler.rereads) is None:
            return []
        rereads.lost_binlog = lost
        rereads.load()
        rereads.request(tables, reason)
        scheduler.await_rereads(lambda: on_progress(rereads.requests()))
        return [request for request in rereads.requests() if request.table in tables]


def replay(
    config: Config,
    archive: Path | str | None = None,
    wanted: ReplayRange | None = None,
    *,
    on_progress: OnProgress | None = None,
    on_batch: OnBatch | None = None,
) -> RunSummary:
    """Apply an archive, by default the configured log, by the same code and with the same guarantees as `run`.

    With `wanted`, a part of it is applied, else everything up to its end. Events that the lake has are skipped.

    Raises:
        ArchiveError: the archive is damaged.
        CheckFailed: the lake lacks events from before the wanted part.
        UsageError: the archive has no such part.
    """
    log = open_archive(config, archive)
    with contextlib.closing(log):
        starts = {} if wanted is None else limit_archive(log, wanted)
        with _started(config, log, on_batch, () if wanted is None else wanted.tables) as (_, scheduler):
            if wanted is not None:
                check_range(scheduler, log, wanted, starts)
            apply_archive(scheduler, on_progress)
        return scheduler.summary()


@contextlib.contextmanager
def _started(
    config: Config, log: ChangeLog, on_batch: OnBatch | None, only: Collection[str] = ()
) -> Iterator[tuple[MirrorContext, Scheduler]]:
    """Provide the only mirror of this configuration on this machine; SIGTERM and Ctrl-C stop its scheduler."""
    ColumnRuleBook(config)  # Report a missing key before the JVM starts.
    with only_one(config):
        log.offsets()  # Report a log that cannot be reached before the JVM starts.
        with running_session(config) as spark:
            context = open_context(config, log, spark)
            scheduler = open_scheduler(context, on_batch, only=only)
            try:
                with stop_on_signals(scheduler.stopping):
                    yield context, scheduler
            finally:
                if scheduler.rereads is not None:
                    scheduler.rereads.close()
