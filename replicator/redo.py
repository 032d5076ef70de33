"""What is done with events in quarantine: they are applied after all, or dropped.

Both write to the lake, so they run only while the mirror does not, under its lock.
"""

from collections.abc import Collection, Sequence
from itertools import groupby

import pyarrow as pa

from replicator.batch import Engine, Work, process_again
from replicator.config import ArchiveLog, ColumnRuleBook, Config
from replicator.decode.schema_book import SchemaBook
from replicator.errors import DataLossError, DecodeError, SchemaError
from replicator.model.commit import OffsetRange
from replicator.model.quarantined import EventPlace, QuarantinedEvent, Replayed, Resolution, Wanted
from replicator.model.table import TableId
from replicator.observe import Stopwatch
from replicator.process import only_one, open_engine
from replicator.quarantined import read_quarantine
from replicator.source.archive import ArchiveChangeLog
from replicator.source.kafka import KafkaChangeLog
from replicator.source.log import RECORDS, ChangeLog, TooLarge
from replicator.spark import running_session
from replicator.topics import TopicTables

_FETCH_BYTES = 1 << 30
"""More than an event can have."""


def replay_quarantined(config: Config, wanted: Wanted) -> Replayed:
    """Apply what is `wanted` of the quarantine. What the lake has then is marked as replayed; it may be repeated.

    Raises:
        UsageError: the mirror runs on this machine.
        FencedError: it runs elsewhere.
        LogError, LakeError: one of them cannot be reached.
    """
    ColumnRuleBook(config)
    with only_one(config):
        events = read_quarantine(config, wanted)
        if not events:
            return Replayed()
        log = _log(config)
        log.offsets()  # A log that cannot be reached should be said before the JVM starts.
        with running_session(config) as spark:
            engine = open_engine(config, log, spark)
            return replay_events(engine, events)


def drop_quarantined(config: Config, places: Collection[EventPlace]) -> int:
    """Give up the events at `places`, which are in quarantine. Returns how many were still waiting there.

    Raises:
        UsageError: the mirror runs on this machine.
        FencedError: it runs elsewhere.
    """
    with only_one(config), running_session(config) as spark:
        return open_engine(config, _log(config), spark).quarantine.resolve(places, Resolution.DROPPED)


def replay_events(engine: Engine, events: Sequence[QuarantinedEvent]) -> Replayed:
    """Apply events of the quarantine, table by table."""
    engine.book.add_schema_changes(engine.log.schema_changes())
    tables = TopicTables(engine.log, engine.book, engine.config.includes)
    ordered = sorted(events, key=lambda e: (e.table or "", e.place))
    done = Replayed()
    for (table, topic), group in groupby(ordered, key=lambda e: (e.table, e.place.topic)):
        if table is None:
            part = _replay_definitions(engine.book, list(group))
        else:
            part = _replay_table(engine, tables.table(topic), topic, list(group))
        engine.quarantine.resolve(part.taken, Resolution.REPLAYED)
        done += part
    return done


def _replay_definitions(book: SchemaBook, events: Sequence[QuarantinedEvent]) -> Replayed:
    """Records of the schema-change topic. Each start of the mirror reads them all, so they need only be readable."""
    done = Replayed()
    for event in events:
        try:
            book.definitions_in(event.value or b"")
            done += Replayed(taken=[event.place])
        except DecodeError as error:
            done += Replayed(bad=[(event.place, error.message)])
    return done


def _replay_table(engine: Engine, table: TableId, topic: str, events: Sequence[QuarantinedEvent]) -> Replayed:
    behind = engine.ledger.progress(table).behind
    passed = [
        e for e in events if behind and (behind.next_offset(topic, e.place.partition) or 0) > e.place.offset
    ]
    ahead = [e.place for e in events if e not in passed]
    records, gone = _records(engine.log, passed)
    done = Replayed(ahead=ahead, gone=gone)
    if not records.num_rows:
        return done
    lost = set(gone)
    places = [e.place for e in passed if e.place not in lost]
    work = Work(table, topic, None, _ranges(topic, places), 0, records, again=True)
    try:
        bad = process_again(engine, work, Stopwatch())
    except SchemaError as error:
        return done + Replayed(refused=[(place, error.message) for place in places])
    return done + Replayed(
        taken=[p for p in places if (p.partition, p.offset) not in bad],
        bad=[(p, bad[p.partition, p.offset]) for p in places if (p.partition, p.offset) in bad],
    )


def _ranges(topic: str, places: Sequence[EventPlace]) -> tuple[OffsetRange, ...]:
    """One range for each partition, from its first event to its last."""
    offsets: dict[int, list[int]] = {}
    for place in places:
        offsets.setdefault(place.partition, []).append(place.offset)
    return tuple(OffsetRange(topic, p, min(found), max(found) + 1) for p, found in sorted(offsets.items()))


def _records(log: ChangeLog, events: Sequence[QuarantinedEvent]) -> tuple[pa.Table, list[EventPlace]]:
    """The records themselves: of the quarantine, or of the log where that keeps no payload; and what is gone there."""
    kept = [e for e in events if e.value is not None]
    rows = [(e.place.partition, e.place.offset, e.timestamp_ms or 0, e.key, e.value) for e in kept]
    tables = [pa.table([list(c) for c in zip(*rows, strict=True)], schema=RECORDS)] if rows else []
    gone: list[EventPlace] = []
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


def _log(config: Config) -> ChangeLog:
    if isinstance(config.log, ArchiveLog):
        return ArchiveChangeLog(config.log.path, config.log.topic_prefix)
    return KafkaChangeLog(config.log)
