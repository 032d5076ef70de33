"""Topics in memory, as a broker has them: some events may be deleted, and a topic created again."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import RECORDS, LogPart
from replicator.sources.kafka.messages import HEADERS
from replicator.sources.kafka.topic_states import TopicState
from replicator.sources.kafka.topics import KafkaTopics
from replicator.sources.kafka.worker_reads import divided

Record = tuple[bytes | None, bytes | None, dict[str, bytes]]
"""Key, value and headers."""


@dataclass
class MemoryTopic:
    """A topic.

    Attributes:
        records: partition → its records, by their offsets; None for one that is no record.
        first: partition → the first offset that was not deleted.
    """

    id: str = "1"
    records: dict[int, list[Record | None]] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)

    def send(self, *values: str | bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        for value in values:
            self.send_record(key, value, {}, partition=partition)

    def send_record(
        self, key: bytes | None, value: str | bytes | None, headers: dict[str, bytes], *, partition: int = 0
    ) -> None:
        content = value.encode() if isinstance(value, str) else value
        self.records.setdefault(partition, []).append((key, content, headers))


@dataclass
class MemoryTopics(KafkaTopics):
    """Topics by name, instead of those of a cluster."""

    topics: dict[str, MemoryTopic] = field(default_factory=dict)

    def topic(self, name: str) -> MemoryTopic:
        return self.topics.setdefault(name, MemoryTopic())

    def states(self, topics: Collection[str]) -> dict[str, TopicState]:
        return {
            name: TopicState(
                topic.id,
                {p: topic.first.get(p, 0) for p in topic.records},
                {p: len(records) for p, records in topic.records.items()},
            )
            for name, topic in self.topics.items()
            if name in topics
        }

    def parts(self, ranges: Sequence[OffsetRange], tasks: int, *, headers: bool) -> list[LogPart]:
        found = [self._records(part) for part in divided(ranges, tasks)]
        return [partial(_batches, rows if headers else rows.drop_columns(["headers"])) for rows in found]

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> pa.Table | None:
        found = self._records(ranges)
        size = sum(len(value or b"") for value in found.column("value").to_pylist())
        return None if size > max_bytes else found

    def _records(self, ranges: Sequence[OffsetRange]) -> pa.Table:
        rows = [
            {
                "partition": r.partition,
                "offset": offset,
                "timestamp": 1_700_000_000_000 + offset,
                "key": record[0],
                "value": record[1],
                "headers": [{"key": name, "value": value} for name, value in record[2].items()],
            }
            for r in ranges
            for offset in range(r.start, r.end)
            if (record := self.topics[r.topic].records[r.partition][offset]) is not None
        ]
        return pa.Table.from_pylist(rows, RECORDS.append(HEADERS))

    def close(self) -> None:
        """Do nothing."""


def _batches(records: pa.Table, _prefixes: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    yield from records.to_batches()
