"""The mirror process: alone on this machine, with a Spark session of its own, stopped by signals."""

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession

from replicator.apply.lake import Lake
from replicator.apply.recent import RecentPlaces
from replicator.batch import Engine
from replicator.config import ArchiveLog, ColumnRuleBook, Config, KafkaLog
from replicator.decode.avro_book import AvroBook
from replicator.decode.schema_book import SchemaBook
from replicator.errors import UsageError
from replicator.follow import follow, go_through
from replicator.held import RecordSizes
from replicator.ledger import Ledger
from replicator.mirror import Mirror, OnBatch, RunSummary
from replicator.quarantine import Quarantine
from replicator.registry import GivenSchemas, Registry, WriterSchemas
from replicator.source.archive import ArchiveChangeLog
from replicator.source.kafka import KafkaChangeLog
from replicator.source.log import ChangeLog
from replicator.spark import running_session

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
        follow(mirror, config.log, until_caught_up=until_caught_up)
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
def _started(config: Config, log: ChangeLog, on_batch: OnBatch | None) -> Iterator[Mirror]:
    """A mirror that is the only one on this machine and stops on SIGTERM and Ctrl-C."""
    ColumnRuleBook(config)  # A key that is missing should be said before the JVM starts.
    with only_one(config):
        log.offsets()  # A log that cannot be reached should be said before the JVM starts.
        with running_session(config) as spark:
            mirror = open_mirror(config, log, spark, on_batch)
            with _stop_on_signals(mirror.stopping):
                yield mirror


def open_mirror(
    config: Config, log: ChangeLog, spark: SparkSession, on_batch: OnBatch | None = None
) -> Mirror:
    """A mirror on a session that is there already, with its namespaces in the lake. Its tables resume."""
    engine = open_engine(config, log, spark)
    engine.quarantine.watch(engine.ledger.resume_all())
    return Mirror(engine, on_batch)


def open_engine(config: Config, log: ChangeLog, spark: SparkSession) -> Engine:
    """What a mirror works with."""
    rules = ColumnRuleBook(config)
    if (catalog := config.lake.catalog_file) is not None:
        # SQLite makes the file, but not the folder.
        catalog.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lake = Lake(spark)
    for namespace in (config.lake.namespace, config.lake.changes_namespace, config.lake.ops_namespace):
        lake.ensure_namespace(namespace)
    quarantine = Quarantine(lake, config.lake.ops_namespace, config.mirror.name)
    return Engine(
        spark=spark,
        config=config,
        log=log,
        lake=lake,
        ledger=Ledger(lake, config),
        book=_book(config, log),
        quarantine=quarantine,
        recent=RecentPlaces(),
        sizes=RecordSizes(),
        rules=rules,
    )


def _book(config: Config, log: ChangeLog) -> SchemaBook:
    """A schema book for events as the log has them."""
    settings = config.log
    is_avro = isinstance(settings, KafkaLog) and settings.format == "avro"
    schemas: WriterSchemas | None = None
    if isinstance(log, ArchiveChangeLog):
        given = log.writer_schemas()
        schemas = None if given is None else GivenSchemas(given)
    elif isinstance(settings, KafkaLog) and is_avro:
        schemas = Registry.of(settings)
    if schemas is None:
        return SchemaBook(flattened=settings.flattened)
    # An archive of the log that is configured was written by the same converter.
    refuse = isinstance(settings, KafkaLog) and settings.nulls_are_lost and not settings.defaults_are_accepted
    return AvroBook(schemas, refuse_defaults=refuse and is_avro, flattened=settings.flattened)


@contextlib.contextmanager
def only_one(config: Config) -> Iterator[None]:
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
