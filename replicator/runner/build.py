"""Build the objects of a mirror from its configuration."""

from collections.abc import Collection

from pyspark.sql import SparkSession

from replicator.batch import MirrorContext
from replicator.batch.state.decode_queries import DecodeQueries
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
from replicator.lake.recoveries import Recoveries
from replicator.lake.rows.locations import RowLocationCache
from replicator.recovery.service import Rereads
from replicator.runner.scheduler import OnBatch, Scheduler
from replicator.runner.summary import RunTotals
from replicator.runner.table_states import TableStates
from replicator.runner.topic_prefix import notice_other_prefix
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.change_log import ChangeLog
from replicator.sources.compressed_positions import CompressedPositions
from replicator.sources.kafka.schema_registry import GivenSchemas, Registry, WriterSchemas
from replicator.sources.source_positions import source_positions
from replicator.watch.failed_connector import FailedConnector
from replicator.watch.noted_failure import NotedFailure


def open_scheduler(
    context: MirrorContext,
    on_batch: OnBatch | None = None,
    *,
    only: Collection[str] = (),
    totals: RunTotals | None = None,
) -> Scheduler:
    """Create the scheduler of a mirror, and resume its paused tables. With `only`, see `TableStates`.

    With `totals`, continue those of an earlier scheduler of the process.

    Raises:
        LakeUnavailable: the catalog does not answer.
    """
    context.quarantine.watch(context.ledger.resume_all())
    tables = TableStates(context, only=only)
    source = source_positions(context.config)
    scheduler = Scheduler(context, on_batch, tables=tables, source=source, totals=totals)
    if context.log.grows:
        scheduler.rereads = Rereads(context, scheduler.tables, scheduler.stopping)
        scheduler.tags.rereads = scheduler.rereads
        scheduler.rereads.repair.load()
        tables.keep_lasting_pauses()
        notice_other_prefix(context, tables)
        scheduler.rereads.notice_returned()
    return scheduler


def start_binlog_watch(scheduler: Scheduler) -> None:
    """Watch the source's binlog until the scheduler is closed, if the mirror does and has a source.

    Raises:
        LakeUnavailable: the catalog does not answer.
    """
    config, rereads = scheduler.context.config, scheduler.rereads
    if rereads is None or not isinstance(config.log, KafkaLog) or not config.source.watch_binlog:
        return
    # SQLAlchemy takes a second to import.
    from replicator.watch.binlog_watch import BinlogWatch  # noqa: PLC0415

    rereads.watch = BinlogWatch(scheduler.context, scheduler.tables)
    rereads.watch.start()


def treat_failures(scheduler: Scheduler, noted: NotedFailure) -> None:
    """Let a mirror bring its connector back if a failure of it is `noted`."""
    if (rereads := scheduler.rereads) is not None:
        failed = FailedConnector(scheduler.context, scheduler.tables, rereads, noted)
        rereads.repair.before_step = failed.step


def start_definition_checks(scheduler: Scheduler) -> None:
    """Compare definitions with the source until the scheduler is closed, if the mirror reads Kafka."""
    config, rereads = scheduler.context.config, scheduler.rereads
    if rereads is None or not isinstance(config.log, KafkaLog):
        return
    # SQLAlchemy takes a second to import.
    from replicator.watch.definition_checks import DefinitionChecks  # noqa: PLC0415

    rereads.definitions = DefinitionChecks(scheduler.context, scheduler.tables, rereads.repair)
    rereads.definitions.start()


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
    for namespace in (config.lake.namespace, config.lake.changes_namespace, config.lake.ops_namespace):
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
        decode_queries=DecodeQueries(spark, config.mirror.state_dir),
        quarantine=quarantine,
        row_locations=RowLocationCache(config.mirror.state_dir, config.apply.max_index_size),
        small_files=SmallFileLog(),
        driver_limits=DriverLimits.of(config.apply),
        sizes=RecordSizes(),
        rules=rules,
        compression=CompressedPositions.of(config, log_grows=log.grows),
        recoveries=recoveries,
    )


def event_format(config: Config, log: ChangeLog) -> EventFormat:
    """Return the format of the log's events."""
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
    # An archive was written by the same converter as the configured log.
    refuse = isinstance(settings, KafkaLog) and settings.nulls_are_lost and not settings.defaults_are_accepted
    return AvroFormat(schemas, refuse_defaults=refuse and is_avro, flattened=settings.flattened)
