"""The mirror process: alone on this machine, with a Spark session of its own, stopped by signals."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession

from replicator.batch import MirrorContext
from replicator.batch.driver_limits import RecordSizes
from replicator.config import ArchiveLog, ColumnRuleBook, Config, KafkaLog
from replicator.decode.avro_format import AvroFormat
from replicator.decode.event_format import EventFormat
from replicator.decode.json_format import JsonFormat
from replicator.decode.schema_tracker import SchemaTracker
from replicator.errors import UsageError
from replicator.jvm.spark import running_session
from replicator.lake.catalog import Lake
from replicator.lake.ledger import Ledger
from replicator.lake.quarantine import Quarantine
from replicator.lake.row_locations import RowLocationCache
from replicator.locks import FileLock, LockHeld
from replicator.runner import OnBatch, RunSummary, Scheduler
from replicator.runner.connector_watch import watching
from replicator.runner.stream import follow, go_through
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.change_log import ChangeLog
from replicator.sources.kafka import KafkaChangeLog
from replicator.sources.schema_registry import GivenSchemas, Registry, WriterSchemas

OnProgress = Callable[[int, int], None]
"""Called with (events done, events in all)."""


def run(config: Config, *, until_caught_up: bool = False, on_batch: OnBatch | None = None) -> RunSummary:
    """Follow the log of `config` until SIGTERM or Ctrl-C, or until the lake has all that the source has now.

    Waits for a broker that does not answer, and restarts a failed connector. An archive has an end, where this
    returns.

    Raises:
        NotCaughtUp: the source's position at the start was not reached, or nobody can tell.
        UsageError: another process runs this mirror on this machine.
        FencedError: another process, elsewhere, writes this mirror.
        DataLossError: events that the lake lacks are gone from the log.
        ReplicatorError: anything else that repeating cannot mend.
    """
    if isinstance(config.log, ArchiveLog):
        return replay(config, config.log.path, on_batch=on_batch)
    with (
        watching(config, until_caught_up=until_caught_up) as goal,
        _started(config, KafkaChangeLog(config.log), on_batch) as mirror,
    ):
        follow(mirror, config.log, until_caught_up=until_caught_up, goal=goal)
        return mirror.summary()


def replay(
    config: Config, archive: Path, *, on_progress: OnProgress | None = None, on_batch: OnBatch | None = None
) -> RunSummary:
    """Bring the lake up to the end of an archive, with the same code and the same guarantees as `run`.

    Raises:
        ArchiveError: the archive is damaged.
    """
    with _started(config, ArchiveChangeLog(archive, config.log.topic_prefix), on_batch) as mirror:
        go_through(mirror, on_progress)
        return mirror.summary()


@contextlib.contextmanager
def _started(config: Config, log: ChangeLog, on_batch: OnBatch | None) -> Iterator[Scheduler]:
    """A mirror that is the only one on this machine and stops on SIGTERM and Ctrl-C."""
    ColumnRuleBook(config)  # A key that is missing should be said before the JVM starts.
    with only_one(config):
        log.offsets()  # A log that cannot be reached should be said before the JVM starts.
        with running_session(config) as spark:
            mirror = open_scheduler(config, log, spark, on_batch)
            with _stop_on_signals(mirror.stopping):
                yield mirror


def open_scheduler(
    config: Config, log: ChangeLog, spark: SparkSession, on_batch: OnBatch | None = None
) -> Scheduler:
    """A mirror on a session that is there already, with its namespaces in the lake. Its tables resume."""
    context = open_context(config, log, spark)
    context.quarantine.watch(context.ledger.resume_all())
    return Scheduler(context, on_batch)


def open_context(config: Config, log: ChangeLog, spark: SparkSession) -> MirrorContext:
    """What a mirror works with."""
    rules = ColumnRuleBook(config)
    if (catalog := config.lake.catalog_file) is not None:
        # SQLite makes the file, but not the folder.
        catalog.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lake = Lake(spark)
    for namespace in (config.lake.namespace, config.lake.changes_namespace, config.lake.ops_namespace):
        lake.ensure_namespace(namespace)
    quarantine = Quarantine(lake, config.lake.ops_namespace, config.mirror.name)
    return MirrorContext(
        spark=spark,
        config=config,
        log=log,
        lake=lake,
        ledger=Ledger(lake, config),
        schemas=SchemaTracker(_event_format(config, log)),
        quarantine=quarantine,
        row_locations=RowLocationCache(),
        sizes=RecordSizes(),
        rules=rules,
    )


def _event_format(config: Config, log: ChangeLog) -> EventFormat:
    """The format of the log's events."""
    settings = config.log
    is_avro = isinstance(settings, KafkaLog) and settings.format == "avro"
    schemas: WriterSchemas | None = None
    if isinstance(log, ArchiveChangeLog):
        given = log.writer_schemas()
        schemas = None if given is None else GivenSchemas(given)
    elif isinstance(settings, KafkaLog) and is_avro:
        schemas = Registry.of(settings)
    if schemas is None:
        return JsonFormat(flattened=settings.flattened)
    # An archive of the log that is configured was written by the same converter.
    refuse = isinstance(settings, KafkaLog) and settings.nulls_are_lost and not settings.defaults_are_accepted
    return AvroFormat(schemas, refuse_defaults=refuse and is_avro, flattened=settings.flattened)


@contextlib.contextmanager
def only_one(config: Config) -> Iterator[None]:
    """Hold the mirror's lock on this machine. Raises UsageError where another process has it."""
    folder = config.mirror.state_dir
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lock = FileLock(folder / "lock", wait=False)
    except LockHeld as held:
        raise UsageError(
            f"mirror {config.mirror.name!r} is already running, as process {held.holder or '?'}",
            "stop that process first, or give this mirror another name and namespace",
        ) from None
    with lock:
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
