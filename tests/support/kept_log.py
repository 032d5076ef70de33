"""A log that deletes its oldest records as Kafka does, on an archive's files instead of a broker, and its recorder."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa

from replicator.errors import DataLossError
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import PartitionKey
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from replicator.sources.change_log import LogPart, TooLarge
from replicator.sources.joined_log import JoinedLog, RecordedPast
from replicator.sources.kafka.log import KafkaChangeLog
from replicator.sources.kafka.topic_states import TopicState
from tests.support.archived_events import append_event

Kept = dict[PartitionKey, int]
"""(topic, partition) → offset of the oldest record that was not deleted; 0 if it is missing."""


def id_of(topic: str) -> str:
    """Return the id of a topic that was never recreated."""
    return f"id of {topic}"


class KeptLog(ArchiveChangeLog):
    """The records from `kept` on. Whoever reads an earlier one gets the error of a deleted record."""

    grows = True

    def __init__(self, path: Path, kept: Kept, topic_ids: Mapping[str, str] | None = None) -> None:
        super().__init__(path)
        self._kept = kept
        self._topic_ids = {} if topic_ids is None else topic_ids
        self.begin_at(kept)

    def topic_id(self, topic: str) -> str:
        return self._topic_ids.get(topic, id_of(topic))

    def schema_topic(self) -> TopicState:
        topic = self.topic_prefix
        ends = {p: end for (name, p), end in self.reader.end_offsets().items() if name == topic}
        return TopicState(None, {p: self._kept.get((topic, p), 0) for p in ends}, ends)

    def schema_topic_id(self) -> str:
        return self.topic_id(self.topic_prefix)

    def records(self, ranges: Sequence[OffsetRange]) -> Iterator[RawRecord]:
        self._check(ranges)
        for r in ranges:
            yield from self.reader.events(r.topic, r.partition, r.start, r.end)

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        self._check(ranges)
        return super().fetch(ranges, max_bytes)

    def parts(self, ranges: Sequence[OffsetRange], tasks: int) -> Sequence[LogPart]:
        self._check(ranges)
        return super().parts(ranges, tasks)

    def close(self) -> None:
        """Do nothing."""

    def _check(self, ranges: Sequence[OffsetRange]) -> None:
        for r in ranges:
            if r.count and r.start < self._kept.get((r.topic, r.partition), 0):
                raise DataLossError(f"{r.topic} partition {r.partition}: offset {r.start} was deleted")


def joined(live: KeptLog, past: RecordedPast) -> JoinedLog:
    """Return a log with its archive."""
    return JoinedLog(cast("KafkaChangeLog", live), past)


def record_log(source: Path, to: Path, *, with_ids: bool = True, leave: int = 0) -> None:
    """Continue the archive `to` with the records at `source`, except the `leave` newest ones of each partition."""
    reader = ArchiveReader(source)
    ends = reader.end_offsets()
    counts = Counter(topic for topic, _ in ends)
    with ArchiveWriter(to, topic_prefix=reader.manifest.topic_prefix, encoding="json") as writer:
        for (topic, partition), end in ends.items():
            if with_ids:
                writer.add_topic(topic, id_of(topic), partitions=counts[topic])
            for event in reader.events(
                topic, partition, writer.end_offset(topic, partition) or 0, end - leave
            ):
                append_event(writer, event)
