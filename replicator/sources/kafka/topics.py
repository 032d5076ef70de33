"""Read topics that are named one by one, and whose records may be anything."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from replicator.config import KafkaLog
from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import RECORDS, LogPart
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin
from replicator.sources.kafka.log import KafkaChangeLog
from replicator.sources.kafka.messages import HEADERS, headers_of
from replicator.sources.kafka.topic_states import TopicState, topic_states


class KafkaTopics:
    """Topics of a Kafka cluster, whose records may be anything. For one thread."""

    def __init__(self, log: KafkaLog) -> None:
        self._admin = KafkaAdmin(log, timeout_s=PATIENT_S)
        self._log = KafkaChangeLog(log, self._admin)

    def states(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Return the state of each topic that exists. Raises LogUnavailable."""
        return topic_states(self._admin, topics.__contains__)

    def parts(self, ranges: Sequence[OffsetRange], tasks: int, *, headers: bool) -> Sequence[LogPart]:
        """Return parts of ranges of one topic, as `KafkaChangeLog.parts`; with their `headers` if wanted."""
        return self._log.parts(ranges, tasks, headers=headers)

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> pa.Table | None:
        """Read few records at once, with their headers; None if their values are larger than `max_bytes`.

        Raises:
            LogUnavailable: the log does not answer.
            DataLossError: records of a range are no longer in the log.
        """
        columns: tuple[list[object], ...] = tuple([] for _ in range(len(RECORDS) + 1))
        left = max_bytes
        for r, message in self._log.messages(ranges):
            value = message.value()
            left -= len(value or b"")
            if left < 0:
                return None
            timestamp, headers = message.timestamp()[1], headers_of(message)
            cells = (r.partition, message.offset(), timestamp, message.key(), value, headers)
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
        schema = RECORDS.append(HEADERS)
        return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)

    def close(self) -> None:
        """Close the connections."""
        self._log.close()
