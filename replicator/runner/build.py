"""Build the objects of a mirror from its configuration."""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from replicator.batch import MirrorContext
from replicator.batch.events.ahead import WorkersAhead
from replicator.batch.state.driver_limits import DriverLimits, RecordSizes
from replicator.config import ColumnRuleBook, Config, KafkaLog
from replicator.decode.avro.format import AvroFormat
from replicator.decode.event_format import EventFormat
from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.lake.catalog.tables import Lake
from replicator.lake.files.small_files import SmallFileLog
from replicator.lake.ledger import Ledger
from replicator.lake.quarantine import Quarantine
from replicator.lake.reading.folders import local_path
from replicator.lake.recoveries import Recoveries
from replicator.lake.rows.locations import RowLocationCache
from replicator.recovery.noted_failure import NotedFailure
from replicator.recovery.request import Requests, Watch
from replicator.recovery.service import Recovery
from replicator.runner.scheduler import OnBatch, Scheduler
from replicator.runner.summary import RunTotals
from replicator.runner.table_states import TableStates
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.change_log import ChangeLog
from replicator.sources.compressed_positions import CompressedPositions
from replicator.sources.kafka.schema_registry import GivenSchemas, Registry, WriterSchemas
from replicator.sources.source_positions import source_positions
from replicator.watch.failed_connector import FailedConnector
from replicator.watch.scheduled_checks import ScheduledChecks


@dataclass(frozen=True, slots=True)
class Supervision:
    """What is observed besides the events of a mirror.

    Attributes:
        noted: what a thread notes of the connector: why it failed.
        definitions, values: whether definitions and rows are compared with the source.
    """

    noted: NotedFailure
    definitions: bool
    values: bool

    @classmethod
    def of(cls, config: Config, *, definitions: bool = False, values: bool = False) -> "Supervision":
        """Return the supervision of a mirror that reads Kafka."""
        return cls(NotedFailure(config), definitions, values)


def open_scheduler(
    context: MirrorContext,
    on_batch: OnBatch | None = None,
    *,
    only: Collection[str] = (),
    totals: RunTotals | None = None,
    supervision: Supervision | None = None,
) -> Scheduler:
    """Create the scheduler of a mirror, and resume its paused tables. With `only`, see `TableStates`.

    With `totals`, continue those of an earlier scheduler of the process. What is to be observed by `supervision` is
    observed once its recovery is started.

    Raises:
        LakeUnavailable: the catalog does not answer.
    """
    context.quarantine.watch(context.ledger.resume_all())
    tables, stopping = TableStates(context, only=only), threading.Event()
    recovery, checks = None, None
    if context.log.grows:
        recovery = _recovery(context, tables, stopping, supervision)
        tables.keep_lasting_pauses()
        recovery.open()
        if supervision is not None and supervision.values:
            checks = ScheduledChecks(context.config, recovery, stopping)
    return Scheduler(
        context,
        on_batch,
        tables=tables,
        source=source_positions(context.config),
        totals=totals,
        recovery=recovery,
        checks=checks,
        stopping=stopping,
    )


def _recovery(
    context: MirrorContext, tables: TableStates, stopping: threading.Event, supervision: Supervision | None
) -> Recovery:
    if supervision is None or not isinstance(context.config.log, KafkaLog):
        return Recovery(context, tables, stopping)
    return Recovery(context, tables, stopping, supervision.noted, partial(_watches, context, supervision))


def _watches(context: MirrorContext, supervision: Supervision, requests: Requests) -> list[Watch]:
    """Return what watches for a mirror, in the order in which the steps of each follow those of the others."""
    # SQLAlchemy takes a second to import.
    from replicator.watch.binlog_watch import BinlogWatch  # noqa: PLC0415
    from replicator.watch.definition_checks import DefinitionChecks  # noqa: PLC0415

    binlog = BinlogWatch(context, requests) if context.config.source.watch_binlog else None
    found: list[Watch] = [] if binlog is None else [binlog]
    if supervision.definitions:
        found.append(DefinitionChecks(context, requests, lambda: 0 if binlog is None else binlog.statements))
    return [*found, FailedConnector(context, requests, supervision.noted, binlog)]


def open_context(config: Config, log: ChangeLog, spark: SparkSession) -> MirrorContext:
    """Create the services of a mirror for an existing session, and its namespaces in the lake.

    Raises:
        ConfigError: a key for hashing is missing.
        LakeUnavailable: the catalog does not answer.
    """
    rules = ColumnRuleBook(config)
    if (catalog := config.lake.catalog_file) is not None:
        # SQLite creates the file, but not the folder.
        catalog.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lake = Lake(spark)
    if local_path(config.lake.warehouse or "") is not None:
        lake.classes.delete_in_calling_thread()
    for namespace in config.lake.namespaces:
        lake.ensure_namespace(namespace)
    quarantine = Quarantine(lake, config.lake.ops_namespace, config.mirror.name)
    recoveries = Recoveries(lake, config.lake.ops_namespace)
    return MirrorContext(
        spark=spark,
        config=config,
        log=log,
        lake=lake,
        ledger=Ledger(lake, config),
        schemas=SchemaTracker(
            event_format(config, log),
            reads_again=log.grows and config.can_read_source,
            was_recovered=recoveries.has,
        ),
        quarantine=quarantine,
        row_locations=RowLocationCache(config.mirror.state_dir, config.apply.max_index_size),
        small_files=SmallFileLog(),
        driver_limits=DriverLimits.of(config.apply),
        sizes=RecordSizes(),
        rules=rules,
        compression=CompressedPositions.of(config, log_grows=log.grows),
        recoveries=recoveries,
        ahead=WorkersAhead(spark, config.apply.parallel_tables),
    )


def event_format(config: Config, log: ChangeLog) -> EventFormat:
    """Return the format of the log's events."""
    settings = config.log
    is_avro = isinstance(settings, KafkaLog) and settings.format == "avro"
    schemas: WriterSchemas | None = None
    if isinstance(log, ArchiveChangeLog):
        given = log.reader.writer_schemas()
        schemas = None if given is None else GivenSchemas(given)
    elif isinstance(settings, KafkaLog) and is_avro:
        schemas = Registry.of(settings)
    if schemas is None:
        return JsonFormat(flattened=settings.flattened)
    # An archive was written by the same converter as the configured log.
    refuse = isinstance(settings, KafkaLog) and settings.nulls_are_lost and not settings.defaults_are_accepted
    return AvroFormat(schemas, refuse_defaults=refuse and is_avro, flattened=settings.flattened)
