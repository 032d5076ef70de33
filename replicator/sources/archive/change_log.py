"""Read a recorded event archive as a change log."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from replicator.errors import ArchiveError
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.sources.archive.containers import events_of, within
from replicator.sources.archive.format import PartitionKey
from replicator.sources.archive.origin import load_origin
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import Storage
from replicator.sources.archive.worker_reads import parts_of
from replicator.sources.change_log import Collected, LogPart, Offsets, TooLarge, data_topic


class ArchiveChangeLog:
    """The topics in an archive, as listed by the manifest when this object was created or last refreshed.

    Attributes:
        reader: the archive.
    """

    grows = False
    lists_partitions = False

    def __init__(
        self,
        path: Path | str | Storage,
        topic_prefix: str | None = None,
        *,
        check_sizes: bool = True,
    ) -> None:
        """With `check_sizes`, report files that are missing or have another size at once, not when they are read."""
        self._check_sizes = check_sizes
        self.reader = ArchiveReader(path, check_sizes=check_sizes)
        self.topic_prefix = topic_prefix or self.reader.manifest.topic_prefix
        self._origin = load_origin(self.reader.storage)
        self._schema_read = False
        self._starts: Mapping[PartitionKey, int] = {}
        self._ends: Mapping[PartitionKey, int] = {}

    def refresh(self) -> None:
        """Read the manifest again, because the archive has grown.

        Raises:
            ArchiveError: the archive cannot be read, or a file that it had was replaced.
        """
        reader = ArchiveReader(self.reader.storage, check_sizes=self._check_sizes)
        if any(reader.entries.get(name) != entry for name, entry in self.reader.entries.items()):
            raise ArchiveError(
                f"{self.reader.storage.location} was replaced by another archive while it was read",
                "start the mirror again",
            )
        self.reader = reader

    def begin_at(self, starts: Mapping[PartitionKey, int]) -> None:
        """Hide the events of these partitions that are before an offset; schema changes are not hidden."""
        self._starts = starts

    def end_at(self, ends: Mapping[PartitionKey, int]) -> None:
        """Hide the events of these partitions from an offset on, schema changes too."""
        self._ends = ends

    def offsets(self) -> tuple[Offsets, Offsets]:
        ends = self._limited_ends()
        starts = {
            key: min(max(first, self._starts.get(key, first)), ends[key])
            for key, first in self.reader.start_offsets().items()
            if key in ends
        }
        return self._grouped(starts), self._grouped(ends)

    def readable_ends(self) -> Offsets:
        return self._grouped(self._limited_ends())

    def _limited_ends(self) -> dict[PartitionKey, int]:
        ends = {key: min(end, self._ends.get(key, end)) for key, end in self.reader.end_offsets().items()}
        first = self.reader.start_offsets()
        return {key: end for key, end in ends.items() if end > first[key] or not self._is_added(key)}

    def _is_added(self, key: PartitionKey) -> bool:
        """Return whether a partition was added after the first events of its topic had been recorded."""
        topic, partition = key
        known = self.reader.manifest.partition_counts.get(topic)
        return known is not None and partition >= known

    def topic_id(self, topic: str) -> str | None:
        """Return None for topics that were recorded: the archive has each of them once."""
        return None if self._origin is None else self._origin.topic_id(topic)

    def first_partitions(self, topic: str) -> int | None:
        return self.reader.manifest.partition_counts.get(topic)

    def compacted(self, _topics: Collection[str]) -> frozenset[str]:
        return frozenset()

    def parts(self, ranges: Sequence[OffsetRange], tasks: int) -> Sequence[LogPart]:
        files = [self.reader.file(name) for name in self._names(ranges)]
        return parts_of(self.reader.storage, files, ranges, tasks)

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        found = Collected(max_bytes)
        for name in self._names(ranges):
            for batch in self.reader.file_batches(name):
                for e in events_of(within(batch, ranges)):
                    found.add(e.topic, e.partition, e.offset, e.timestamp, e.key, e.value)
            if too_large := found.too_large:
                return too_large
        return found.tables()

    def schema_changes(self) -> Iterator[RawRecord]:
        if self._schema_read:
            return
        topic = self.topic_prefix
        for partition in self.reader.partitions(topic):
            yield from self.reader.events(topic, partition, end=self._ends.get((topic, partition)))
        self._schema_read = True

    def verify(self, ranges: Sequence[OffsetRange]) -> None:
        """Read the files that contain `ranges`. Raises ArchiveError if one is missing or damaged."""
        for name in self._names(ranges):
            self.reader.content(name)

    def _names(self, ranges: Iterable[OffsetRange]) -> list[str]:
        return sorted(
            {s.path for r in ranges for s in self.reader.segments(r.topic, r.partition, r.start, r.end)}
        )

    def _grouped(self, offsets: Mapping[PartitionKey, int]) -> Offsets:
        grouped: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            if data_topic(topic, self.topic_prefix) is not None:
                grouped.setdefault(topic, {})[partition] = offset
        return grouped
