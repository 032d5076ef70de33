"""The log of a story, which behaves as Kafka does, with an archive's files."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from replicator.model.events import RawRecord
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.change_log import Offsets


class StoryLog(ArchiveChangeLog):
    """An archive that grows while a mirror follows it, with topics that have ids.

    If `partitions` are given, it lists that many of each topic, also empty ones, as Kafka does.
    """

    grows = True

    def __init__(self, path: Path, ids: Mapping[str, str], partitions: int | None) -> None:
        super().__init__(path)
        self._ids = ids
        self._read: dict[int, int] = {}
        self._partitions = range(partitions or 0)
        self.lists_partitions = partitions is not None

    def offsets(self) -> tuple[Offsets, Offsets]:
        first, ends = super().offsets()
        empty = dict.fromkeys(self._partitions, 0)
        return {t: {**empty, **p} for t, p in first.items()}, {t: {**empty, **p} for t, p in ends.items()}

    def list_partitions(self, number: int) -> None:
        """List this many partitions of each topic from now on."""
        self._partitions = range(number)

    def topic_id(self, topic: str) -> str:
        return self._ids.get(topic, "first")

    def schema_changes(self) -> Iterator[RawRecord]:
        topic = self.topic_prefix
        for partition in self.reader.partitions(topic):
            for e in self.reader.events(topic, partition, self._read.get(partition, 0)):
                self._read[partition] = e.offset + 1
                yield RawRecord(e.topic, e.partition, e.offset, e.timestamp, e.key, e.value)
