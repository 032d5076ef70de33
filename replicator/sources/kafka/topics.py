"""Read topics that are named one by one, and whose records may be anything."""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from replicator.config import KafkaLog
from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import RECORDS
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin
from replicator.sources.kafka.log import KafkaChangeLog
from replicator.sources.kafka.topic_states import TopicState, topic_states

HEADERS: Final = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


class Topics(Protocol):
    """Topics whose records may be anything."""

    def states(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Return the state of each topic that exists. Raises LogUnavailable."""
        ...

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange], *, headers: bool) -> DataFrame:
        """Read the records of ranges of one topic, as `KafkaChangeLog.read`; with their `headers` if wanted."""
        ...

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> pa.Table | None:
        """Read few records at once, with their headers; None if their values are larger than `max_bytes`.

        Raises:
            LogUnavailable: the log does not answer.
            DataLossError: records of a range are no longer in the log.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class KafkaTopics:
    """Topics of a Kafka cluster. For one thread."""

    def __init__(self, log: KafkaLog) -> None:
        self._admin = KafkaAdmin(log, timeout_s=PATIENT_S)
        self._log = KafkaChangeLog(log, self._admin)

    def states(self, topics: Collection[str]) -> dict[str, TopicState]:
        return topic_states(self._admin, topics)

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange], *, headers: bool) -> DataFrame:
        return self._log.read(spark, ranges, headers=headers)

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> pa.Table | None:
        columns: tuple[list[object], ...] = tuple([] for _ in range(len(RECORDS) + 1))
        left = max_bytes
        for r, message in self._log.messages(ranges):
            value, headers = message.value(), message.headers()
            left -= len(value or b"")
            if left < 0:
                return None
            pairs = [{"key": pair[0], "value": _bytes(pair[1])} for pair in headers or ()]
            cells = (r.partition, message.offset(), message.timestamp()[1], message.key(), value, pairs)
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
        schema = RECORDS.append(HEADERS)
        return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)

    def close(self) -> None:
        self._log.close()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
