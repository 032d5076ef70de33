"""Record a mirror's Kafka topics into an event archive, which outlives the broker's retention."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from replicator.config import Config, KafkaLog
from replicator.errors import ArchiveError, ConfigError, DataLossError, DecodeError, ReplicatorError
from replicator.model.document import parse_json
from replicator.operations.record_events import (
    Messages,
    by_partition,
    offset_of,
    partition_of,
    records_of,
    source_columns,
)
from replicator.operations.record_rows import (
    RowsConnector,
    archived_rows,
    await_main_connector,
    lacking_tables,
)
from replicator.sources.archive.format import Encoding, Manifest, PartitionKey
from replicator.sources.archive.pending import Records
from replicator.sources.archive.reader import find_manifest
from replicator.sources.archive.storage import Storage, open_storage
from replicator.sources.archive.writer import MAX_BYTES, ArchiveWriter
from replicator.sources.connector.settings import kafka_log
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin, kafka_errors, translated
from replicator.sources.kafka.messages import reading_ahead
from replicator.sources.kafka.schema_registry import HEADER_BYTES, Registry, writer_id

_AT_ONCE: Final = 500
"""Number of messages that are taken from the client at once; see `sources.kafka.worker_reads`."""
_CHECKED_AT_ONCE: Final = 5_000
_CHECKED_BYTES: Final = 16 << 20
_GATHER_S: Final = 0.5
"""Number of messages that are checked at once, their size, and how long they may take: few cost as much as many."""
_LEAST_EVENT_BYTES: Final = 512
"""An event in memory takes about this much besides its key and value, so small events count as this large."""

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """The times of a recording, in seconds.

    Attributes:
        segment: a segment with events is completed at least this often; its events are durable from then on.
        refresh: a recording that follows the topics looks for new ones this often.
        request: the limit of a request about topics.
        outage: how long a recording without progress waits for an unavailable broker.
    """

    segment: float = 300.0
    refresh: float = 30.0
    request: float = PATIENT_S
    outage: float = 60.0


_TIMES: Final = RecordTimes()


@dataclass(frozen=True, slots=True)
class RewrittenTopics:
    """Topics that are written again for each recording, with the same events at the same offsets.

    Attributes:
        check: called with the next events of a partition before they are archived; raises if it refuses one.
        from_beginning: whether events that the archive has are read too, for `check`.
    """

    check: Callable[[PartitionKey, Records], None]
    from_beginning: bool


@dataclass(frozen=True, slots=True)
class RecordProgress:
    """Progress of a recording: events archived by this run, their bytes, and events known to remain."""

    events: int
    bytes: int
    remaining: int

    def after(self, earlier: "RecordProgress") -> "RecordProgress":
        """Return this progress plus what was archived earlier."""
        return RecordProgress(earlier.events + self.events, earlier.bytes + self.bytes, self.remaining)


def record(
    config: Config,
    to: Path | str,
    *,
    until_caught_up: bool,
    on_progress: Callable[[RecordProgress], None] | None = None,
    stop: threading.Event | None = None,
    times: RecordTimes = _TIMES,
    segment_bytes: int = MAX_BYTES,
    rewritten: RewrittenTopics | None = None,
    with_rows: bool = False,
) -> RecordProgress:
    """Append the events of the mirror's topics to the archive at `to`, a folder or a URL, from the archive's end.

    With `until_caught_up`, it ends at the high watermarks that the topics had at the start; otherwise it follows
    them, and topics that appear later, until `stop` is set. It reads committed events only, joins no
    consumer group and commits no offsets. A segment is completed when its keys and values have `segment_bytes` in all
    or after `times.segment` seconds. If the process is killed, the next one reads the events of incomplete segments
    again. The archive has the ids of the topics. A topic that was recreated is refused, except `rewritten` ones.

    With `with_rows`, the archive first gets the rows of the tables that it does not have from their beginning.

    Raises:
        ConfigError: the configuration names an archive as its log, or no topic has the prefix.
        ConnectError: the rows cannot be read.
        LogUnavailable: the broker or the schema registry cannot be reached or refuses the request.
        DataLossError: the broker no longer has the events after the archive's end, or a topic was recreated.
        ArchiveError: the archive cannot be written, another process is writing it, or it has events that `rewritten`
            topics lack.
    """
    if not isinstance(config.log, KafkaLog):
        raise ConfigError("recording needs the topics of a broker", 'Set kind = "kafka" in [log].')
    storage = open_storage(to, config.lake.catalog_options)
    stop, show = stop or threading.Event(), on_progress or (lambda _: None)
    before = RecordProgress(0, 0, 0)
    if with_rows:
        # Only then it is known of which tables the archive lacks rows.
        before = record(config, to, until_caught_up=True, on_progress=on_progress, stop=stop, times=times)
        before = _record_rows(config, storage, stop, times, segment_bytes).after(before)
    # Of tables from before binary logs, only the definition is known.
    reads_rows = rewritten is None and not config.reads_new_tables
    with _Source(config.log, find_manifest(storage), times, rewritten) as source:
        if until_caught_up and not source.targets:
            raise ConfigError(
                f"no topic of {config.log.bootstrap_servers} starts with {config.log.topic_prefix!r}",
                "Check log.topic_prefix, and that the connector is running.",
            )
        recorder = _Recorder(source, config.log, storage, times, segment_bytes, show, reads_rows)
        return recorder.run(until_caught_up, stop)


def _record_rows(
    config: Config, archive: Storage, stop: threading.Event, times: RecordTimes, segment_bytes: int
) -> RecordProgress:
    """Append the rows of the tables that the archive does not have from their beginning, and the events up to them."""
    log, done = kafka_log(config), RecordProgress(0, 0, 0)
    tables = [] if stop.is_set() else lacking_tables(config, archive)
    if not tables:
        return done
    connector = RowsConnector(config)
    with connector.sent(tables, stop.is_set) as at:
        if at is None:
            return done
        with _Source(connector.log, find_manifest(archive), times, None) as source:
            recorder = _Recorder(source, log, archive, times, segment_bytes, lambda _: None, False)
            done = recorder.run(True, stop)
    await_main_connector(config, at, stop.is_set)
    if stop.is_set():
        return done
    where = archive.location
    done = record(config, where, until_caught_up=True, stop=stop, times=times).after(done)
    if not stop.is_set() and (manifest := find_manifest(archive)) is not None:
        with ArchiveWriter(archive, topic_prefix=log.topic_prefix, encoding=manifest.encoding) as writer:
            writer.add_rows(archived_rows(config, connector.log.topic_prefix, tables, at))
    return done


def recorded_topics(names: Iterable[str], prefix: str) -> list[str]:
    """Return the topics to record: of the tables (`prefix.database.table`) and of schema changes (`prefix`).

    Heartbeats, transaction boundaries and the connector's internal history contain no rows.
    """
    return sorted(
        name
        for name in names
        if name == prefix or (name.startswith(f"{prefix}.") and "." in name[len(prefix) + 1 :])
    )


def encoding_of(value: bytes, log_format: str = "json") -> Encoding:
    """Return how an event of a log in `log_format` is encoded, and for JSON whether it has a schema."""
    if log_format == "avro":
        return "avro"
    try:
        document = parse_json(value)
    except DecodeError:
        return "json"
    has_schema = isinstance(document, dict) and document.keys() == {"schema", "payload"}
    return "json-schemas" if has_schema else "json"


class _Source:
    """The assigned partitions: `ends` are the offsets read so far, `targets` the known high watermarks.

    `archived` are the archive's ends at the start. `remaining` is the number of offsets from `ends` to `targets`.
    `topic_ids` are those of all topics that were found; empty if they may change. `partition_counts` are the numbers
    of their partitions.
    """

    def __init__(
        self,
        log: KafkaLog,
        manifest: Manifest | None,
        times: RecordTimes,
        rewritten: RewrittenTopics | None,
    ) -> None:
        self.rewritten = rewritten
        self._prefix = log.topic_prefix
        self._servers = log.bootstrap_servers
        self._manifest = manifest
        self._outage = times.outage
        self._last_error: KafkaError | None = None
        self._moved = time.monotonic()
        self.archived: dict[PartitionKey, int] = {}
        self.ends: dict[PartitionKey, int] = {}
        self.targets: dict[PartitionKey, int] = {}
        self.remaining = 0
        self.topic_ids: dict[str, str] = {} if manifest is None else dict(manifest.topic_ids)
        self.partition_counts: dict[str, int] = {}
        settings = {
            **reading_ahead(log.client_options()),
            # The client requires a group id; nothing joins the group or commits to it.
            "group.id": "replicator-record",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "error_cb": self._on_error,
        }
        self._admin = KafkaAdmin(log, timeout_s=times.request)
        with kafka_errors(self._servers):
            self._consumer = Consumer(settings, logger=_log)

    def __enter__(self) -> Self:
        try:
            self.refresh()
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        self._last_error = error

    def refresh(self) -> None:
        """Assign partitions that appeared since the last call, at the archive's end or the beginning."""
        topics = self.check_topics()
        new = [
            (name, partition)
            for name, partitions in topics.items()
            for partition in partitions
            if (name, partition) not in self.targets
        ]
        first, ends = self._admin.first_offsets(new), self._admin.end_offsets(new, committed=True)
        starts = [self._start(key, first[key], ends[key]) for key in new]
        if starts:
            with kafka_errors(self._servers):
                self._consumer.incremental_assign(starts)

    def check_topics(self) -> dict[str, list[int]]:
        """Return the partitions of every topic to record.

        Raises:
            DataLossError: a topic was deleted and recreated: its offsets begin again.
        """
        found = self._admin.partitions()
        topics = {name: found[name] for name in recorded_topics(found, self._prefix)}
        self.partition_counts = {name: len(partitions) for name, partitions in topics.items()}
        ids = self._admin.topic_ids(topics) if self.rewritten is None else {}
        for name, topic_id in ids.items():
            if self.topic_ids.setdefault(name, topic_id) != topic_id:
                raise DataLossError(
                    f"{name} was deleted and recreated: the archive has events of the earlier topic",
                    "Record into another directory.",
                )
        return topics

    def _start(self, key: PartitionKey, low: int, high: int) -> TopicPartition:
        topic, partition = key
        held = self._manifest.end_offset(topic, partition) if self._manifest is not None else None
        if held is not None and not low <= held <= high:
            if self.rewritten is not None:
                raise _too_few(key, held, high)
            raise DataLossError(
                f"{topic}-{partition}: the archive ends at offset {held}, the broker has {low} to {high}",
                "The next events were deleted, or the topic was recreated; record into another directory.",
            )
        self.targets[key] = high
        self.archived[key] = low if held is None else held
        from_beginning = held is None or (self.rewritten is not None and self.rewritten.from_beginning)
        self.ends[key] = low if from_beginning or held is None else held
        self.remaining += max(0, high - self.ends[key])
        return TopicPartition(topic, partition, OFFSET_BEGINNING if from_beginning else self.ends[key])

    def poll(self) -> Messages:
        """Return some messages; none after half a second without any. Advances `ends`."""
        with kafka_errors(self._servers):
            polled = self._consumed()
        messages = polled
        if any(map(Message.error, polled)):
            messages = [message for message in polled if not self._is_end(message)]
        found = by_partition(messages)
        for key, some in found.items():
            self._advance(key, offset_of(some[-1]) + 1)
        self._check_patience(bool(polled))
        return found

    def _consumed(self) -> list[Message]:
        found: list[Message] = self._consumer.consume(_AT_ONCE, timeout=0.5)
        if self.rewritten is not None:
            size, more, until = sum(map(len, found)), found, time.monotonic() + _GATHER_S
            while (
                more and len(found) < _CHECKED_AT_ONCE and size < _CHECKED_BYTES and time.monotonic() < until
            ):
                more = self._consumer.consume(_AT_ONCE, timeout=0.1)
                size += sum(map(len, more))
                found += more
        return found

    def _is_end(self, message: Message) -> bool:
        """Return whether a message only reports the end of its partition; raises if it reports another error."""
        failure = message.error()
        if failure is None:
            return False
        if failure.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own public name
            raise _translated(failure, self._servers)
        # The end of a partition is reported at an offset after any control records.
        self._advance(partition_of(message), offset_of(message))
        return True

    def _advance(self, key: PartitionKey, end: int) -> None:
        before, target = self.ends[key], self.targets[key]
        self.ends[key] = max(before, end)
        self.remaining -= max(0, target - before) - max(0, target - self.ends[key])

    def _check_patience(self, moved: bool) -> None:
        now = time.monotonic()
        if moved:
            self._moved, self._last_error = now, None
        elif self._last_error is not None and now - self._moved > self._outage:
            # While the log is quiet, no message tells that a lost connection was made again.
            self._admin.partitions()
            self._moved, self._last_error = now, None


class _Recorder:
    def __init__(
        self,
        source: _Source,
        log: KafkaLog,
        to: Storage,
        times: RecordTimes,
        segment_bytes: int,
        on_progress: Callable[[RecordProgress], None],
        connector_reads_rows: bool,
    ) -> None:
        self._connector_reads_rows = connector_reads_rows
        self._source = source
        self._log = log
        self._registry = Registry.of(log) if log.format == "avro" else None
        self._strange: set[int] = set()
        self._to = to
        self._times = times
        self._segment_bytes = segment_bytes
        self._on_progress = on_progress
        self._events = self._bytes = 0

    def run(self, until_caught_up: bool, stop: threading.Event) -> RecordProgress:
        first: Messages = {}
        while not first and not self._finished(until_caught_up, stop):
            first = self._source.poll()
            if not self._source.targets and not until_caught_up:
                self._source.refresh()
        values = (message.value() for messages in first.values() for message in messages)
        encoding = encoding_of(next((value for value in values if value is not None), b""), self._log.format)
        with ArchiveWriter(
            self._to,
            topic_prefix=self._log.topic_prefix,
            encoding=encoding,
            max_events=max(1, self._segment_bytes // _LEAST_EVENT_BYTES),
            max_bytes=self._segment_bytes,
            # Events that were read before the check are of the topics whose ids it compares.
            before_flush=self._check_topics,
            connector_reads_rows=self._connector_reads_rows,
            sources=partial(source_columns, self._log),
        ) as writer:
            self._add_topics(writer)
            self._append(writer, first, until_caught_up)
            flushed = refreshed = time.monotonic()
            while not self._finished(until_caught_up, stop):
                self._append(writer, self._source.poll(), until_caught_up)
                # While the log is quiet, no event tells the writer that a file is complete.
                writer.settle()
                now = time.monotonic()
                if now - flushed > self._times.segment:
                    self._flush(writer, until_caught_up)
                    flushed = now
                if not until_caught_up and now - refreshed > self._times.refresh:
                    self._source.refresh()
                    self._add_topics(writer)
                    refreshed = now
            self._flush(writer, until_caught_up)
        return self._progress()

    def _check_topics(self) -> None:
        self._source.check_topics()

    def _add_topics(self, writer: ArchiveWriter) -> None:
        source = self._source
        for topic, count in source.partition_counts.items():
            writer.add_topic(topic, source.topic_ids.get(topic), partitions=count)

    def _finished(self, until_caught_up: bool, stop: threading.Event) -> bool:
        return stop.is_set() or (until_caught_up and self._source.remaining == 0)

    def _append(self, writer: ArchiveWriter, found: Messages, until_caught_up: bool) -> None:
        for key, messages in found.items():
            records = self._wanted(key, messages, until_caught_up)
            self._keep_schemas(writer, records)
            writer.extend(*key, records)
            self._events += len(records)
            self._bytes += records.size
        self._on_progress(self._progress())

    def _wanted(self, key: PartitionKey, messages: Sequence[Message], until_caught_up: bool) -> Records:
        """Return those events that the archive lacks, once `rewritten` has checked them and the others."""
        target, archived = self._source.targets[key], self._source.archived[key]
        if until_caught_up and self._source.ends[key] > target:
            messages = [message for message in messages if offset_of(message) < target]
        records = records_of(messages)
        if (rewritten := self._source.rewritten) is not None:
            rewritten.check(key, records)
            if records.offsets and records.offsets[0] < archived:
                return records_of([message for message in messages if offset_of(message) >= archived])
        return records

    def _keep_schemas(self, writer: ArchiveWriter, records: Records) -> None:
        """Archive the writer schemas of events in Avro too, so that the archive can be read without a registry.

        If the registry does not have a schema, the event is archived nevertheless; readers report it as unreadable.
        """
        if self._registry is None:
            return
        given = filter(None, chain(records.keys, records.values))
        # The id of a schema is in the first bytes, which most events have in common.
        for data in {data[: HEADER_BYTES + 1] for data in given}:
            number = writer_id(data)
            if number is None or number in self._strange or writer.has_schema(number):
                continue
            schema = self._registry.schema(number)
            if schema is None:
                self._strange.add(number)
            else:
                writer.add_schema(number, schema)

    def _flush(self, writer: ArchiveWriter, until_caught_up: bool) -> None:
        for key, end in self._source.ends.items():
            target = self._source.targets[key]
            read = min(end, target) if until_caught_up else end
            writer.advance(*key, max(read, self._source.archived[key]))
        writer.flush()

    def _progress(self) -> RecordProgress:
        return RecordProgress(self._events, self._bytes, self._source.remaining)


def _too_few(key: PartitionKey, archived: int, end: int) -> ArchiveError:
    topic, partition = key
    return ArchiveError(
        f"{topic}-{partition}: the archive ends at offset {archived}, but the import ends at offset {end}",
        "Import all files again that were imported before, or import into another directory.",
    )


_OUT_OF_RANGE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001


def _translated(error: KafkaError, servers: str) -> ReplicatorError:
    """Return the error to raise for a failed read."""
    if error.code() in _OUT_OF_RANGE:
        return DataLossError(
            f"the broker no longer has the next events to record: {error.str()}",
            "Raise the topics' retention, and record into another directory.",
        )
    return translated(error, servers)
