"""Read Debezium's Kafka topics as a change log."""

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
from replicator.model.commit_marker import OffsetRange
from replicator.model.records import RawRecord
from replicator.sources.change_log import Collected, Offsets, TooLarge, data_topic

_TIMEOUT_S: Final = 20.0
_SPLIT_ABOVE: Final = 50_000
"""Above this number of events in a batch, several tasks read one partition."""

FETCH_OPTIONS: Final = {
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    # All events of a batch are already in Kafka. Only the consumer's read-ahead finds nothing, and by default the
    # broker holds that request, and every request queued behind it, for 500 ms.
    "kafka.fetch.max.wait.ms": "10",
    "failOnDataLoss": "true",
    # With the defaults, an unavailable broker is noticed only after three minutes.
    "kafka.default.api.timeout.ms": "20000",
    "kafka.request.timeout.ms": "15000",
}

_FETCHED_AT_ONCE: Final = 1_000
_GATHER_S: Final = 0.02
_QUIET: Final[Mapping[str, str | int | bool]] = {
    # While a broker is unavailable, the client would log every connection attempt, forty lines per second. The errors
    # are raised as exceptions too.
    "log_level": 2,
    "reconnect.backoff.ms": 250,
}
_CONSUMER_OPTIONS: Final[Mapping[str, str | int | bool]] = {
    **_QUIET,
    # The group is never joined and no offsets are committed; the client requires a name.
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
    """Return how much to fetch and parse at once for `records` records of a partition.

    A few large fetches: with the defaults (1 MiB, 500 records) reading takes 25 % longer. But whatever follows the
    wanted records is fetched and parsed in vain.
    """
    return {
        "kafka.max.partition.fetch.bytes": str(min(max(records << 10, 1 << 20), 16 << 20)),
        "kafka.max.poll.records": str(min(max(records, 500), 20_000)),
    }


def _passes(error: BaseException) -> bool:
    """Return whether the error is temporary, so that a retry may succeed."""
    return isinstance(error, KafkaException) and bool(error.args) and error.args[0].code() in _PASSING


class KafkaChangeLog:
    """The topics of one connector. Reads with isolation level read_committed and commits no offsets."""

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
        """Yield the records of `ranges`, in offset order within each partition."""
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
                    # A transaction's end marker at the end of a range is not a record; the end of the log is reported.
                    if offset + (0 if at_end else 1) >= r.end:
                        del waiting[r.topic, r.partition]
        finally:
            consumer.unassign()

    def _assigned(self, ranges: Sequence[OffsetRange]) -> Consumer:
        """Assign this log's consumer to the start of `ranges`; created once, as that takes longer than a small read."""
        if self._consumer is None:
            self._consumer = Consumer(self._log.client_options() | dict(_CONSUMER_OPTIONS))
        self._consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in ranges])
        return self._consumer

    def _is_end(self, message: Message, r: OffsetRange) -> bool:
        """Return whether this message reports the end of the partition. Raises if it reports any other error."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 the public name of the code
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            raise DataLossError(
                f"{r.topic} partition {r.partition}: offset {r.start} is no longer in the log",
                "replay an archive that has it, or drop the lake table and run a new snapshot",
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

    # For a moment, a partition that was just created or whose broker was just started has no leader.
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
            "check log.bootstrap_servers and that the broker is running: replicator check",
        )
