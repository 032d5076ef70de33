"""The mirror process: it holds the mirror's lock, has its own Spark session, and reacts to signals."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from replicator.config import ArchiveLog, Config, KafkaLog
from replicator.errors import UsageError
from replicator.jvm.launch import JavaProcess
from replicator.model.moments import ReplayRange
from replicator.model.reread import Narrowed, Request
from replicator.model.table import TableId
from replicator.runner.archive_run import (
    OnProgress,
    apply_archive,
    check_range,
    limit_archive,
    open_archive,
)
from replicator.runner.build import Supervision
from replicator.runner.kafka_log import open_kafka_log
from replicator.runner.reloads import ConfigFile, NextSession, Reloads, SessionControl
from replicator.runner.run_recorder import RunRecorder
from replicator.runner.scheduler import OnBatch, Scheduler
from replicator.runner.sessions import Sessions, open_mirror, sole_process
from replicator.runner.signals import reload_on_hangup, stop_on_signals
from replicator.runner.summary import RunSummary
from replicator.sources.change_log import ChangeLog
from replicator.telemetry import BatchReport
from replicator.watch.connector_watch import watching


def run(
    config: Config,
    *,
    until_caught_up: bool = False,
    on_batch: OnBatch | None = None,
    file: ConfigFile | None = None,
    java: JavaProcess | None = None,
) -> RunSummary:
    """Apply current and future changes until SIGTERM or Ctrl-C, or `until_caught_up` with the source's present state.

    Waits for a broker that does not answer, and restarts a failed connector. Is delayed if it ended again and again.
    Of an archive, applies all events and returns. SIGHUP lets it continue with the present content of `file`, if there
    is one; see `reloads`. `java` is Spark's process if it was started already.

    Raises:
        NotCaughtUp: the source's position at the start was not reached, or it is unknown whether it was.
        UsageError: another process on this machine runs this mirror.
        FencedError: a process on another machine writes this mirror.
        DataLossError: the log no longer has events that the lake lacks.
        ReplicatorError: any other error that a retry cannot fix.
    """
    if isinstance(config.log, ArchiveLog):
        return replay(config, on_batch=on_batch, java=java)
    control = SessionControl()
    record = RunRecorder(config, None if file is None else file.path)
    reloads = None if file is None else Reloads(config, file, control, record)

    def note(report: BatchReport) -> None:
        record.made_batch()
        if on_batch is not None:
            on_batch(report)

    with contextlib.ExitStack() as process:
        if reloads is not None:
            process.enter_context(reload_on_hangup(reloads.request, control))
        sessions = Sessions(
            process,
            control,
            reloads,
            until_caught_up=until_caught_up,
            on_batch=note,
            record=record,
            java=java,
        )
        return sessions.run(NextSession(config, open_kafka_log(config, config.log)))


def reread_tables(
    config: Config,
    tables: Sequence[TableId],
    reason: str,
    on_progress: Callable[[Sequence[Request]], None] = lambda _: None,
    narrowed: Mapping[TableId, Narrowed] | None = None,
) -> list[Request]:
    """Read `tables` again from the source, and end once that is done. Return the requests.

    Of the tables in `narrowed`, only a part is read and compared.

    Raises:
        MirrorRuns: another process on this machine runs this mirror.
        ReplicatorError: as `run`.
    """
    if not isinstance(config.log, KafkaLog):
        raise UsageError("a mirror of an archive cannot read the source", 'set log.kind = "kafka"')
    supervision = Supervision.of(config)
    with (
        watching(config, until_caught_up=False, noted=supervision.noted),
        contextlib.closing(open_kafka_log(config, config.log)) as log,
        _started(config, log, None, supervision=supervision) as scheduler,
    ):
        scheduler.check_log()
        if (recovery := scheduler.recovery) is None:
            return []
        recovery.start()
        recovery.request(tables, reason, narrowed=narrowed)
        scheduler.await_recovery(lambda: on_progress(recovery.requests()))
        return [request for request in recovery.requests() if request.table in tables]


def replay(
    config: Config,
    archive: Path | str | None = None,
    wanted: ReplayRange | None = None,
    *,
    on_progress: OnProgress | None = None,
    on_batch: OnBatch | None = None,
    java: JavaProcess | None = None,
) -> RunSummary:
    """Apply an archive, by default the configured log, by the same code and with the same guarantees as `run`.

    With `wanted`, a part of it is applied, else everything up to its end. Events that the lake has are skipped.

    Raises:
        ArchiveError: the archive is damaged.
        CheckFailed: the lake lacks events from before the wanted part.
        UsageError: the archive has no such part.
    """
    is_whole = archive is None and wanted is None
    log, wanted = open_archive(config, archive), wanted or ReplayRange()
    starts = limit_archive(log, wanted)
    with _started(config, log, on_batch, wanted.tables, java=java) as scheduler:
        check_range(scheduler, log, wanted, starts)
        apply_archive(scheduler, on_progress)
        if is_whole and not scheduler.stopping.is_set():
            from replicator.runner.pipelines import refresh_once  # noqa: PLC0415 - it takes half a second

            refresh_once(config, scheduler.context.spark, scheduler.stopping)
    return scheduler.summary()


@contextlib.contextmanager
def _started(
    config: Config,
    log: ChangeLog,
    on_batch: OnBatch | None,
    only: Collection[str] = (),
    supervision: Supervision | None = None,
    java: JavaProcess | None = None,
) -> Iterator[Scheduler]:
    """Provide the only mirror of this configuration on this machine; SIGTERM and Ctrl-C stop its scheduler."""
    with (
        sole_process(config, log, java=java) as spark,
        contextlib.closing(
            open_mirror(config, log, spark, on_batch, only=only, supervision=supervision)
        ) as scheduler,
        stop_on_signals(scheduler.stopping),
    ):
        yield scheduler
