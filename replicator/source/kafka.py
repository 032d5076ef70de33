"""Debezium's Kafka topics as a change log."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import retry, retry_if_exception, stop_after_delay, wait_exponential

from replicator.config import KafkaLog
from replicator.errors import DataLossError, LogUnavailable
from replicator.model.commit import OffsetRange
from replicator.model.record import RawRecord
from replicator.source.log import Collected, Offsets, TooLarge, data_topic

_TIMEOUT_S: Final = 20.0
_SPLIT_ABOVE: Final = 50_000
"""Events in a batch from which on one partition is read by several tasks."""

FETCH_OPTIONS: Final = {
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    # A batch's events are all there. Only the consumer's reading ahead finds nothing, and the default lets the
    # broker hold that request, and whatever is asked behind it, for 500 ms.
    "kafka.fetch.max.wait.ms": "10",
    "failOnDataLoss": "true",
    # The defaults notice a broker that went away after three minutes.
    "kafka.default.api.timeout.ms": "20000",
    "kafka.request.timeout.ms": "15000",
}

_FETCHED_AT_ONCE: Final = 1_000
_GATHER_S: Final = 0.02
_QUIET: Final[Mapping[str, str | int | bool]] = {
    # While a broker is away the client would write a line for each try to connect, forty a second. What it finds is
    # raised as an error too.
    "log_level": 2,
    "reconnect.backoff.ms": 250,
}
_CONSUMER_OPTIONS: Final[Mapping[str, str | int | bool]] = {
    **_QUIET,
    # Never joined and never committed to; the client wants a name.
    "group.id": "replicator",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 10,
}

_PASSING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)


def _fetch_sizes(records: int) -> dict[str, str]:
    """How much to fetch and to parse at once for so many records of a partition.

    Few large pieces: with the defaults (1 MiB, 500 records) reading takes a quarter longer. But what lies behind the
    records that are wanted is fetched and parsed for nothing.
    """
    return {
        "kafka.max.partition.fetch.bytes": str(min(max(records << 10, 1 << 20), 16 << 20)),
        "kafka.max.poll.records": str(min(max(records, 500), 20_000)),
    }


def _passes(error: BaseException) -> bool:
    """Whether asking again soon may help."""
    return isinstance(error, KafkaException) and bool(error.args) and error.args[0].code() in _PASSING


class KafkaChangeLog:
    """The topics of one connector. Reads with isolation level read_committed; commits no offsets."""

    grows = True

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self.topic_prefix = log.topic_prefix
        self._admin = AdminClient(log.client_options() | dict(_QUIET))
        self._consumer: Consumer | None = None
        self._schema_offsets: dict[int, int] = {}
        self._topic_ids: dict[str, str] = {}

    def offsets(self) -> tuple[Offsets, Offsets]:
        topics = {t: ps for t, ps in self._partitions().items() if data_topic(t, self.topic_prefix)}
        self._topic_ids = self._ids(list(topics))
        places = [TopicPartition(t, p) for t, ps in topics.items() for p in ps]
        return self._list_offsets(places, OffsetSpec.earliest()), self._list_offsets(
            places, OffsetSpec.latest()
        )

    def topic_id(self, topic: str) -> str | None:
        return self._topic_ids.get(topic)

    def _ids(self, topics: list[str]) -> dict[str, str]:
        if not topics:
            return {}
        try:
            futures = self._admin.describe_topics(TopicCollection(topics), request_timeout=_TIMEOUT_S)
            return {topic: str(future.result().topic_id) for topic, future in futures.items()}
        except KafkaException as error:
            raise self._unavailable(error) from error

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        topic = ranges[0].topic
        most = max(r.count for r in ranges)
        options = self._log.spark_options() | FETCH_OPTIONS | _fetch_sizes(most)
        reader = spark.read.format("kafka").options(**options)
        reader = reader.options(
            assign=json.dumps({topic: [r.partition for r in ranges]}),
            startingOffsets=json.dumps({topic: {str(r.partition): r.start for r in ranges}}),
            endingOffsets=json.dumps({topic: {str(r.partition): r.end for r in ranges}}),
        )
        cores = spark.sparkContext.defaultParallelism
        if len(ranges) < cores and sum(r.count for r in ranges) > _SPLIT_ABOVE:
            reader = reader.option("minPartitions", cores)
        return reader.load().select(
            "partition", "offset", F.unix_millis("timestamp").alias("timestamp"), "key", "value"
        )

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        found = Collected(max_bytes)
        for r, message in self._messages(ranges):
            _, timestamp = message.timestamp()
            found.add(r.topic, r.partition, message.offset() or 0, timestamp, message.key(), message.value())
            if too_large := found.too_large:
                return too_large
        return found.tables()

    def schema_changes(self) -> Iterator[RawRecord]:
        partitions = self._partitions().get(self.topic_prefix, [])
        if not partitions:
            return
        places = [TopicPartition(self.topic_prefix, p) for p in partitions]
        first = self._list_offsets(places, OffsetSpec.earliest())[self.topic_prefix]
        end = self._list_offsets(places, OffsetSpec.latest())[self.topic_prefix]
        starts = {p: max(first[p], self._schema_offsets.get(p, 0)) for p in partitions}
        ranges = [OffsetRange(self.topic_prefix, p, starts[p], end[p]) for p in partitions]
        for r, message in self._messages([r for r in ranges if r.count]):
            _, timestamp = message.timestamp()
            place = (r.topic, r.partition, message.offset() or 0, timestamp)
            yield RawRecord(*place, message.key(), message.value())
        self._schema_offsets = dict(end)

    def _messages(self, ranges: Sequence[OffsetRange]) -> Iterator[tuple[OffsetRange, Message]]:
        """The records of `ranges`, each partition's in order."""
        if not ranges:
            return
        waiting = {(r.topic, r.partition): r for r in ranges}
        consumer = self._assigned(ranges)
        try:
            heard = time.monotonic()
            while waiting:
                # It waits for as many records as were asked for, so the wait must be short.
                messages = consumer.consume(_FETCHED_AT_ONCE, _GATHER_S)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() > heard + _TIMEOUT_S:
                    raise LogUnavailable(
                        f"no answer from Kafka at {self._log.bootstrap_servers} in {_TIMEOUT_S:.0f} s"
                    )
                for message in messages:
                    r = waiting.get((message.topic() or "", message.partition() or 0))
                    if r is None:
                        continue
                    offset = message.offset() or 0
                    at_end = self._is_end(message, r)
                    if not at_end and offset < r.end:
                        yield r, message
                    # What a transaction's end leaves at the end of a range is no record; the end of the log is told.
                    if offset + (0 if at_end else 1) >= r.end:
                        del waiting[r.topic, r.partition]
        finally:
            consumer.unassign()

    def _assigned(self, ranges: Sequence[OffsetRange]) -> Consumer:
        """This log's consumer, at the start of `ranges`; made once, as that takes longer than reading a small batch."""
        if self._consumer is None:
            self._consumer = Consumer(self._log.client_options() | dict(_CONSUMER_OPTIONS))
        self._consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in ranges])
        return self._consumer

    def _is_end(self, message: Message, r: OffsetRange) -> bool:
        """Whether this is not a record but the news that the log ends here. Raises where it is an error."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 the public name of the code
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            raise DataLossError(
                f"{r.topic} partition {r.partition}: offset {r.start} is no longer in the log",
                "replay an archive that has it, or drop the table in the lake and bootstrap it again",
            )
        raise self._unavailable(KafkaException(error))

    def _partitions(self) -> dict[str, list[int]]:
        try:
            metadata = self._admin.list_topics(timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._unavailable(error) from error
        return {
            name: sorted(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None
        }

    def _list_offsets(self, places: list[TopicPartition], spec: OffsetSpec) -> dict[str, dict[int, int]]:
        if not places:
            return {}
        try:
            return self._list_offsets_once(places, spec)
        except KafkaException as error:
            raise self._unavailable(error) from error

    # A partition that was just made, or whose broker was just started, has no leader for a moment.
    @retry(
        retry=retry_if_exception(_passes),
        wait=wait_exponential(0.1, max=2),
        stop=stop_after_delay(_TIMEOUT_S),
        reraise=True,
    )
    def _list_offsets_once(self, places: list[TopicPartition], spec: OffsetSpec) -> dict[str, dict[int, int]]:
        futures = self._admin.list_offsets(dict.fromkeys(places, spec), request_timeout=_TIMEOUT_S)
        offsets: dict[str, dict[int, int]] = {}
        for place, future in futures.items():
            offsets.setdefault(place.topic, {})[place.partition] = future.result().offset
        return offsets

    def _unavailable(self, error: KafkaException) -> LogUnavailable:
        reason = error.args[0].str() if error.args else str(error)
        return LogUnavailable(
            f"Kafka at {self._log.bootstrap_servers} cannot be read: {reason}",
            "check log.bootstrap_servers and that the broker runs: replicator check",
        )
