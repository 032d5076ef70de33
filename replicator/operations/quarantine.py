"""Replay or drop quarantined events.

Both write to the lake, so they run only while the mirror does not, and hold its lock.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby

import pyarrow as pa

from replicator.batch import MirrorContext, TableTask, replay_task
from replicator.config import ArchiveLog, ColumnRuleBook, Config
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import DataLossError, DecodeError, SchemaError
from replicator.jvm.spark import running_session
from replicator.lake.reading.quarantine import read_quarantine
from replicator.model.commit_marker import OffsetRange
from replicator.model.quarantine import (
    LogCoordinate,
    QuarantinedEvent,
    QuarantineFilter,
    ReplayResult,
    Resolution,
)
from replicator.model.table import TableId
from replicator.runner.archive_run import open_archive
from replicator.runner.build import open_context
from replicator.runner.kafka_log import open_kafka_log
from replicator.runner.lock import only_one
from replicator.runner.topic_tables import TopicTables
from replicator.sources.change_log import RECORDS, ChangeLog, TooLarge
from replicator.telemetry import Stopwatch

_OF_LOG_TABLE = "events of log tables are not replayed: send it again in a form that fits, and drop this one"
_FETCH_BYTES = 1 << 30
"""Higher than the value of any event."""


def replay_quarantined(config: Config, wanted: QuarantineFilter) -> ReplayResult:
    """Replay the quarantined events that match `wanted`, and mark those that the lake then contains. Idempotent.

    Raises:
        UsageError: the mirror is running on this machine.
        FencedError: the mirror is running on another machine.
        LogError, LakeError: the log or the lake cannot be reached.
    """
    ColumnRuleBook(config)
    with only_one(config):
        events = read_quarantine(config, wanted)
        if not events:
            return ReplayResult()
        with _log(config) as log:
            log.offsets()  # Report a log that cannot be reached before the JVM starts.
            with running_session(config) as spark:
                return replay_events(open_context(config, log, spark), events)


def drop_quarantined(config: Config, places: Collection[LogCoordinate]) -> int:
    """Drop the quarantined events at `places`. Return how many of them were unresolved.

    Raises:
        UsageError: the mirror is running on this machine.
        FencedError: the mirror is running on another machine.
    """
    with only_one(config), _log(config) as log, running_session(config) as spark:
        return open_context(config, log, spark).quarantine.resolve(places, Resolution.DROPPED)


def replay_events(context: MirrorContext, events: Sequence[QuarantinedEvent]) -> ReplayResult:
    """Replay quarantined events, table by table."""
    context.schemas.add_schema_changes(context.log.schema_changes())
    tables = TopicTables(context.log, context.schemas, context.config.includes)
    ordered = sorted(events, key=lambda e: (e.table or "", e.place))
    logs = {settings.table for settings in context.config.log_tables}
    done = ReplayResult()
    for (table, topic), group in groupby(ordered, key=lambda e: (e.table, e.place.topic)):
        if table is None:
            part = _replay_definitions(context.schemas, list(group))
        elif table in logs:
            part = ReplayResult(refused=[(event.place, _OF_LOG_TABLE) for event in group])
        else:
            part = _replay_table(context, tables.table(topic), topic, list(group))
        context.quarantine.resolve(part.taken, Resolution.REPLAYED)
        done += part
    return done


def _replay_definitions(schemas: SchemaTracker, events: Sequence[QuarantinedEvent]) -> ReplayResult:
    """Check records of the schema-change topic. They only need to be readable: each start of the mirror reads them."""
    done = ReplayResult()
    for event in events:
        try:
            schemas.format.definitions_in(event.value or b"")
            done += ReplayResult(taken=[event.place])
        except DecodeError as error:
            done += ReplayResult(bad=[(event.place, error.message)])
    return done


def _replay_table(
    context: MirrorContext, table: TableId, topic: str, events: Sequence[QuarantinedEvent]
) -> ReplayResult:
    resume_marker = context.ledger.progress(table).resume_marker
    passed = [
        e
        for e in events
        if resume_marker and (resume_marker.next_offset(topic, e.place.partition) or 0) > e.place.offset
    ]
    ahead = [e.place for e in events if e not in passed]
    records, gone = _records(context.log, passed)
    done = ReplayResult(ahead=ahead, gone=gone)
    if not records.num_rows:
        return done
    lost = set(gone)
    places = [e.place for e in passed if e.place not in lost]
    task = TableTask(table, topic, None, _ranges(topic, places), 0, records)
    try:
        bad = replay_task(context, task, Stopwatch())
    except SchemaError as error:
        return done + ReplayResult(refused=[(place, error.message) for place in places])
    return done + ReplayResult(
        taken=[p for p in places if (p.partition, p.offset) not in bad],
        bad=[(p, bad[p.partition, p.offset]) for p in places if (p.partition, p.offset) in bad],
    )


def _ranges(topic: str, places: Sequence[LogCoordinate]) -> tuple[OffsetRange, ...]:
    """Return one range for each partition, from its first event to its last."""
    offsets: dict[int, list[int]] = {}
    for place in places:
        offsets.setdefault(place.partition, []).append(place.offset)
    return tuple(OffsetRange(topic, p, min(found), max(found) + 1) for p, found in sorted(offsets.items()))


def _records(log: ChangeLog, events: Sequence[QuarantinedEvent]) -> tuple[pa.Table, list[LogCoordinate]]:
    """Read the records from the quarantine, or from the log if it keeps no payload. Also return the missing ones."""
    kept = [e for e in events if e.value is not None]
    rows = [(e.place.partition, e.place.offset, e.timestamp_ms or 0, e.key, e.value) for e in kept]
    tables = [pa.table([list(c) for c in zip(*rows, strict=True)], schema=RECORDS)] if rows else []
    gone: list[LogCoordinate] = []
    for event in events:
        if event.value is not None:
            continue
        at = event.place
        try:
            found = log.fetch([OffsetRange(at.topic, at.partition, at.offset, at.offset + 1)], _FETCH_BYTES)
        except DataLossError:
            gone.append(at)
            continue
        if not isinstance(found, TooLarge) and at.topic in found:
            tables.append(found[at.topic])
        else:
            gone.append(at)
    return pa.concat_tables(tables) if tables else RECORDS.empty_table(), gone


@contextmanager
def _log(config: Config) -> Iterator[ChangeLog]:
    if isinstance(config.log, ArchiveLog):
        yield open_archive(config)
    else:
        with closing(open_kafka_log(config, config.log)) as log:
            yield log
