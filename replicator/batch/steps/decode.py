"""Decodes the records of a batch: raw records → typed events, the source's schema, and batch statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from replicator.batch.context import column_rules
from replicator.batch.events import statistics
from replicator.batch.events.executors import DriverEvents, MaterializedEvents
from replicator.batch.events.net_changes import has_short_key, key_columns
from replicator.batch.evolution.late_definitions import check_definition
from replicator.batch.plan.epochs import oldest_version
from replicator.batch.steps.written import worker_writing, written_events
from replicator.batch.task import Segment, TableTask
from replicator.batch.values import BatchSchema, DecodedBatch
from replicator.config import TableOptions
from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.event_frame import EVENT_DETAILS
from replicator.decode.records import DriverRecords
from replicator.decode.schemas.resolution import ResolvedSchema
from replicator.errors import MissingKey, MissingSchema, UnknownWriter
from replicator.jvm.spark import local_frame
from replicator.model.batch_stats import UNDECODABLE, UNKNOWN_SCHEMA, BatchStats
from replicator.model.commit_marker import PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableSchema
from replicator.model.types import STRING
from replicator.schema.history.versions import BEGINNING, SchemaHistory, SchemaVersion
from replicator.sources.change_log import RECORDS

_FIRST_EVENTS: Final = 50
"""Number of events, in all, that are examined before the others are decoded."""


def decode(segment: Segment, before: Mapping[int, PartitionProgress]) -> DecodedBatch | None:
    """Decode the records of a task and collect their statistics.

    `before` is partition → progress of the table; events at or before it are redelivered ones.

    Returns None if the records have a schema version that was not known: the task must be split at its barriers again.

    Raises:
        UnknownWriter: the writer schema of Avro events cannot be read.
        MissingSchema: change events have no known schema.
        LateDefinition: events without a schema have other columns than the known definition.
        TransactionsNotNumbered: nothing tells whether an event was delivered before.
        TransactionInterrupted: as above, because of a fail-over.
    """
    try:
        return _decode_known(segment, before)
    except UnknownWriter:
        raise
    except MissingSchema as error:
        return _decode_without_schema(segment, before, error)


def current_schema(segment: Segment) -> BatchSchema:
    """Return the schema of a segment without change events."""
    if segment.history:
        return _batch_schema(segment, [], None)
    nothing = TableSchema(())
    history = SchemaHistory((SchemaVersion(BEGINNING, SourcePosition("", 0), 0, nothing, {}),))
    return BatchSchema(history, 0, ResolvedSchema((), nothing, nothing, ()))


def _decode_known(segment: Segment, before: Mapping[int, PartitionProgress]) -> DecodedBatch | None:
    """Decode with the known schemas; discover the schemas in the records if these do not fit."""
    since = oldest_version(segment, before)
    discovery = _SchemaDiscovery(segment)
    writer_schemas = discovery.expected(since)
    if discovery.found_version():
        return None
    check_definition(segment, since)
    batch = _decode(segment, before, writer_schemas, since, UNKNOWN_SCHEMA)
    if not batch.stats.unknown_schema:
        return batch
    batch.events.release()
    learned = discovery.learn()
    if discovery.found_version():
        return None
    return _decode(segment, before, learned, since, UNDECODABLE)


class _SchemaDiscovery:
    """Finds the writer schemas of a task's records, in the records themselves if necessary."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._schemas = segment.context.schemas
        self._note_followed()
        self._known_versions = self._versions()

    def _note_followed(self) -> None:
        progress = self._segment.progress
        markers = [m for m in (progress.mirror, progress.changelog) if m is not None]
        if (at := progress.newest_schema_at) is not None and markers:
            until_ms = max(m.watermark_ms or 0 for m in markers)
            self._schemas.follow(self._segment.table, at, until_ms)

    def _versions(self) -> int:
        return len(self._schemas.history(self._segment.table).versions)

    def found_version(self) -> bool:
        """Return whether the records have shown a schema version that was not known."""
        known, found = self._known_versions, self._versions()
        followed = self._segment.progress.schema_at is not None
        return found > max(known, 1) or (found > known and followed)

    def expected(self, since: int | None) -> Sequence[WriterSchema]:
        """Return the schemas that the records may have: the known ones, else those of the first or of all records."""
        schemas, table, context = self._schemas, self._segment.table, self._segment.context
        carried = False
        if schemas.discovery.needs_inspection(table):
            first = _fetch_first_events(self._segment)
            values = first.column("value").to_pylist()
            carried = any(map(schemas.format.carries_schema, values))
            if carried:
                sample = DriverRecords(first)
                learned = schemas.discovery.learn_from_sample(table, sample, patient=context.log.grows)
                if learned or self.found_version():
                    return learned
            elif values:
                schemas.discovery.inspect_values(table, values)
        # Definitions alone do not fit events that carry their schema.
        if (
            schemas.discovery.knows(table)
            and not carried
            and (known := schemas.discovery.writer_schemas(table, since, self._segment.task.target_schema_at))
        ):
            return known
        return self.learn()

    def learn(self) -> Sequence[WriterSchema]:
        """Return the schemas of all records."""
        patient = self._segment.context.log.grows
        return self._schemas.discovery.learn(self._segment.table, self._segment.records(), patient=patient)


def _fetch_first_events(segment: Segment) -> pa.Table:
    """Fetch the first few records of each partition, without tombstones; columns as `RECORDS`."""
    context, task = segment.context, segment.task
    each = -(-_FIRST_EVENTS // len(task.ranges))
    heads = [replace(r, end=min(r.end, r.start + each)) for r in task.ranges]
    if task.records is None:
        parts = context.log.parts(heads, 1)
        first = pa.Table.from_batches((batch for part in parts for batch in part()), RECORDS)
    else:
        partition, offset = pc.field("partition"), pc.field("offset")
        inside = [(partition == r.partition) & (offset < r.end) for r in heads]
        first = task.records.filter(reduce(or_, inside))
    return first.filter(pc.field("value").is_valid())


def _stats(
    segment: Segment,
    events: MaterializedEvents,
    before: Mapping[int, PartitionProgress],
    schema: BatchSchema | None = None,
) -> BatchStats:
    """Return the statistics of events. These get their keys, too, if the driver can hold them."""

    def fetch(partition: int, first: int, last: int) -> pa.Table:
        inside = (F.col("partition") == partition) & F.col("offset").between(first, last)
        return events.frame.where(inside).select(*EVENT_DETAILS).toArrow()

    short = schema is not None and has_short_key(schema.decoded)
    keys = key_columns(schema.decoded) if schema is not None and short else []
    columns = events.stats_columns(keys)
    try:
        return statistics.collect_stats(
            columns, segment.task.ranges, before, fetch, segment.context.compression.may_be_at
        )
    except BaseException:
        events.release()
        raise


def _decode_without_schema(
    segment: Segment, before: Mapping[int, PartitionProgress], error: MissingSchema
) -> DecodedBatch:
    """Decode records without a known schema, so that they can be quarantined. Raises `error` for a change event."""
    anything = TableSchema((Column("anything", STRING),))
    decoding = Decoding((WriterSchema(anything),), anything, True, UNDECODABLE)
    events = _events(segment, decoding)
    stats = _stats(segment, events, before)
    if stats.changes or stats.duplicates:
        events.release()
        raise error
    return DecodedBatch(segment, events, None, stats)


def _decode(
    segment: Segment,
    before: Mapping[int, PartitionProgress],
    writer_schemas: Sequence[WriterSchema],
    since: int | None,
    undecodable: str,
) -> DecodedBatch:
    """Decode the records."""
    options, schema = segment.options, _batch_schema(segment, writer_schemas, since)
    for_changelog = options.changelog or not schema.source.key
    decoding = Decoding(tuple(schema.resolved.writer_schemas), schema.decoded, for_changelog, undecodable)
    events = _events(segment, decoding, schema)
    return DecodedBatch(segment, events, schema, _stats(segment, events, before, schema))


def _events(segment: Segment, decoding: Decoding, schema: BatchSchema | None = None) -> MaterializedEvents:
    """Decode the records: few of them on the driver, others in Spark's workers, which write their files if they can."""
    context, task = segment.context, segment.task
    parser = context.schemas.format.parser(e.fingerprint for e in decoding.writer_schemas)
    if task.records is None:
        decoder = Decoder(parser, decoding, task.ranges)
        writing = None if schema is None else worker_writing(segment, schema, decoder)
        if writing is not None:
            return written_events(segment, writing)
        return task.executor.materialize(decoder.frame(segment.logged()))
    rows = Decoder(parser, decoding).decode(task.records)
    return DriverEvents(rows, lambda: local_frame(context.spark, rows))


def _batch_schema(segment: Segment, writer_schemas: Sequence[WriterSchema], since: int | None) -> BatchSchema:
    context, task, options = segment.context, segment.task, segment.options
    # The records may have shown a version since the segment began.
    history = context.schemas.history(task.table)
    known = segment.progress.schema_at
    at = known if task.target_schema_at is None else task.target_schema_at
    version = history.own if at is None else history.index_at(at)
    resolved = context.schemas.resolve(task.table, history, writer_schemas, since, version)
    if options.key:
        resolved = resolved.with_key(options.key)
    _check_key(resolved.schema, options, task)
    if rules := column_rules(context, task.table):
        resolved = resolved.with_rules(rules, str(task.table))
    return BatchSchema(history, version, resolved)


def _check_key(schema: TableSchema, options: TableOptions, task: TableTask) -> None:
    if not schema.key and options.keyless == "pause":
        raise MissingKey(
            f"{options.name} has no primary key, so its rows cannot be distinguished",
            f'name a unique key: key = ["…"] under [[table]] name = "{options.name}"; or set keyless there',
        )
    if not schema.key and options.keyless == "identity" and any(r.partition for r in task.ranges):
        raise MissingKey(
            f"{options.name} has no key, and its topic has several partitions: the order of its events is not known",
            "give it a topic of one partition, name a unique key (key), or mirror only its changes: "
            'keyless = "changelog"',
        )
    for name in schema.key:
        if schema.column(name) is None:
            raise MissingKey(
                f"{options.name} has no column {name}, which is configured as its key",
                f"its columns: {', '.join(schema.names)}",
            )
