"""Debezium's Kafka topics as a change log."""

import json
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import retry, retry_if_exception, stop_after_delay, wait_exponential

from replicator.config import KafkaLog
from replicator.errors import LogUnavailable
from replicator.model.commit import OffsetRange
from replicator.source.log import Offsets, data_topic

_TIMEOUT_S: Final = 20.0
_SPLIT_ABOVE: Final = 50_000
"""Events in a batch from which on one partition is read by several tasks."""

FETCH_OPTIONS: Final = {
    "kafka.isolation.level": "read_committed",
    # Fewer, larger fetches: the defaults (1 MiB, 500 records) cost a quarter of the reading time.
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": str(1 << 20),
    "failOnDataLoss": "true",
    # The defaults notice a broker that went away after three minutes.
    "kafka.default.api.timeout.ms": "20000",
    "kafka.request.timeout.ms": "15000",
}


_PASSING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)


def _passes(error: BaseException) -> bool:
    """Whether asking again soon may help."""
    return isinstance(error, KafkaException) and bool(error.args) and error.args[0].code() in _PASSING


class KafkaChangeLog:
    """The topics of one connector. Reads with isolation level read_committed; commits no offsets."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self.topic_prefix = log.topic_prefix
        self._admin = AdminClient(log.client_options())
        self._schema_offsets: dict[int, int] = {}

    def offsets(self) -> tuple[Offsets, Offsets]:
        topics = self._partitions()
        places = [
            TopicPartition(t, p) for t, ps in topics.items() for p in ps if data_topic(t, self.topic_prefix)
        ]
        return self._list_offsets(places, OffsetSpec.earliest()), self._list_offsets(
            places, OffsetSpec.latest()
        )

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        topic = ranges[0].topic
        reader = spark.read.format("kafka").options(**self._log.spark_options() | FETCH_OPTIONS)
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

    def schema_changes(self) -> list[bytes]:
        partitions = self._partitions().get(self.topic_prefix, [])
        if not partitions:
            return []
        places = [TopicPartition(self.topic_prefix, p) for p in partitions]
        first = self._list_offsets(places, OffsetSpec.earliest())[self.topic_prefix]
        end = self._list_offsets(places, OffsetSpec.latest())[self.topic_prefix]
        starts = {p: max(first[p], self._schema_offsets.get(p, 0)) for p in partitions}
        values = self._consume({p: (starts[p], end[p]) for p in partitions if starts[p] < end[p]})
        self._schema_offsets = dict(end)
        return values

    def _consume(self, ranges: dict[int, tuple[int, int]]) -> list[bytes]:
        if not ranges:
            return []
        options = self._log.client_options() | {
            "group.id": "replicator-schema-changes",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(options)
        values: list[bytes] = []
        waiting = set(ranges)
        try:
            consumer.assign([TopicPartition(self.topic_prefix, p, start) for p, (start, _) in ranges.items()])
            while waiting:
                message = consumer.poll(_TIMEOUT_S)
                if message is None:
                    raise LogUnavailable(
                        f"no answer from Kafka at {self._log.bootstrap_servers} in {_TIMEOUT_S:.0f} s"
                    )
                partition, offset, value = int(message.partition() or 0), message.offset(), message.value()
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 the public name of the code
                        raise self._unavailable(KafkaException(error))
                    waiting.discard(partition)
                    continue
                if value is not None:
                    values.append(value)
                if offset is not None and offset + 1 >= ranges[partition][1]:
                    waiting.discard(partition)
        finally:
            consumer.close()
        return values

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
