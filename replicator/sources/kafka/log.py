"""Read Debezium's Kafka topics as a change log."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from replicator.config import KafkaLog
from replicator.errors import LogUnavailable
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.sources.change_log import Collected, Offsets, TooLarge, data_topic
from replicator.sources.kafka.admin import PATIENT_S, QUICK_START, KafkaAdmin, kafka_errors
from replicator.sources.kafka.messages import CONSUMER_OPTIONS, is_end
from replicator.sources.kafka.topic_states import TopicState
from replicator.sources.kafka.worker_reads import KafkaPart, divided

_FETCHED_AT_ONCE: Final = 1_000
_GATHER_S: Final = 0.02


class KafkaChangeLog:
    """The topics of one connector. Reads with isolation level read_committed and commits no offsets."""

    grows = True
    lists_partitions = True

    def __init__(self, log: KafkaLog, admin: KafkaAdmin | None = None) -> None:
        self._log = log
        self.topic_prefix = log.topic_prefix
        self._admin = KafkaAdmin(log, timeout_s=PATIENT_S) if admin is None else admin
        self._consumer: Consumer | None = None
        self._assigned_topics: set[str] = set()
        self._schema_offsets: dict[int, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._partitions: list[tuple[str, int]] = []

    def offsets(self) -> tuple[Offsets, Offsets]:
        topics = {t: ps for t, ps in self._admin.partitions().items() if data_topic(t, self.topic_prefix)}
        self._topic_ids = self._admin.topic_ids(topics)
        self._partitions = [(t, p) for t, ps in topics.items() for p in ps]
        return (
            _by_topic(self._admin.first_offsets(self._partitions)),
            _by_topic(self._admin.end_offsets(self._partitions)),
        )

    def readable_ends(self) -> Offsets:
        return _by_topic(self._admin.end_offsets(self._partitions, committed=True))

    def topic_id(self, topic: str) -> str | None:
        return self._topic_ids.get(topic)

    def first_partitions(self, _topic: str) -> None:
        """Return None: Kafka does not tell since when a topic has its partitions."""

    def compacted(self, topics: Collection[str]) -> frozenset[str]:
        return self._admin.compacted(topics)

    def parts(
        self, ranges: Sequence[OffsetRange], tasks: int, *, headers: bool = False
    ) -> Sequence[KafkaPart]:
        options = self._log.client_options()
        return [KafkaPart(options, part, headers) for part in divided(ranges, tasks)]

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        found = Collected(max_bytes)
        for r, message in self.messages(ranges):
            _, timestamp = message.timestamp()
            found.add(r.topic, r.partition, message.offset() or 0, timestamp, message.key(), message.value())
            if too_large := found.too_large:
                return too_large
        return found.tables()

    def schema_changes(self) -> Iterator[RawRecord]:
        found = self.schema_topic()
        starts = {p: max(first, self._schema_offsets.get(p, 0)) for p, first in found.first.items()}
        yield from self.records(
            [OffsetRange(self.topic_prefix, p, starts[p], end) for p, end in found.ends.items()]
        )
        self._schema_offsets |= found.ends

    def schema_topic(self) -> TopicState:
        """Return the offsets of the schema-change topic, without its id. Raises LogUnavailable."""
        topic = self.topic_prefix
        partitions = [(topic, p) for p in self._admin.partitions().get(topic, [])]
        first = _by_topic(self._admin.first_offsets(partitions)).get(topic, {})
        return TopicState(None, first, _by_topic(self._admin.end_offsets(partitions)).get(topic, {}))

    def schema_topic_id(self) -> str | None:
        """Return the id of the schema-change topic; None if Kafka has no ids. Raises LogUnavailable."""
        return self._admin.topic_ids([self.topic_prefix]).get(self.topic_prefix)

    def records(self, ranges: Sequence[OffsetRange]) -> Iterator[RawRecord]:
        """Yield the records of `ranges`, in offset order within each partition. Raises as `fetch`."""
        for r, message in self.messages([r for r in ranges if r.count]):
            _, timestamp = message.timestamp()
            place = (r.topic, r.partition, message.offset() or 0, timestamp)
            yield RawRecord(*place, message.key(), message.value())

    def close(self) -> None:
        """Close the connections. The log cannot be read any more."""
        if self._consumer is not None:
            self._consumer.close()

    def messages(self, ranges: Sequence[OffsetRange]) -> Iterator[tuple[OffsetRange, Message]]:
        """Yield the records of `ranges` of the client, in offset order of each partition. Raises as `fetch`."""
        if not ranges:
            return
        waiting = {(r.topic, r.partition): r for r in ranges}
        consumer = self._assigned(ranges)
        try:
            heard = time.monotonic()
            while waiting:
                # consume() waits until it has the requested number of records, so the timeout must be short.
                messages = consumer.consume(_FETCHED_AT_ONCE, _GATHER_S)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() > heard + PATIENT_S:
                    raise LogUnavailable(
                        f"no answer from Kafka at {self._log.bootstrap_servers} in {PATIENT_S:.0f} s"
                    )
                for message in messages:
                    r = waiting.get((message.topic() or "", message.partition() or 0))
                    if r is None:
                        continue
                    offset = message.offset() or 0
                    at_end = is_end(message, r, self._log.bootstrap_servers)
                    if not at_end and offset < r.end:
                        yield r, message
                    # A transaction's end marker at the end of a range is not a record; the end of the log is reported.
                    if offset + (0 if at_end else 1) >= r.end:
                        del waiting[r.topic, r.partition]
        finally:
            consumer.unassign()

    def _assigned(self, ranges: Sequence[OffsetRange]) -> Consumer:
        """Assign this log's consumer to the start of `ranges`; created once, as that takes longer than a small read."""
        topics = {r.topic for r in ranges}
        with kafka_errors(self._log.bootstrap_servers):
            if self._consumer is None:
                self._consumer = Consumer({**QUICK_START, **self._log.client_options(), **CONSUMER_OPTIONS})
            elif unknown := topics - self._assigned_topics:
                # Otherwise the client asks only a second later which broker has a topic that is new to it.
                only = {"topic": unknown.pop()} if len(unknown) == 1 else {}
                self._consumer.list_topics(**only, timeout=PATIENT_S)
        self._assigned_topics |= topics
        self._consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in ranges])
        return self._consumer


def _by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[partition] = offset
    return found
