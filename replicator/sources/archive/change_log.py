"""Read a recorded event archive as a change log.

PySpark has no client of its own for object stores, and the engine reads each file once anyway, for its checksum.
"""

import contextlib
import json
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.errors import ArchiveError
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.sources.archive.format import EVENT_SCHEMA, PartitionKey
from replicator.sources.archive.origin import load_origin
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import LocalStorage, Storage
from replicator.sources.change_log import Collected, Offsets, TooLarge, data_topic

KEPT_BYTES: Final = 4 << 30
"""Files that were not used for the longest time are deleted above this size: a batch needs about 100 MB of them."""


class StagedFiles:
    """The copies, in `folder`, which is emptied at the start. Safe for several threads."""

    def __init__(self, reader: ArchiveReader, folder: Path, kept_bytes: int = KEPT_BYTES) -> None:
        self._reader = reader
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._sizes: dict[str, int] = {}
        """Name → size in bytes, in the order of the last use."""
        self._lock = threading.Lock()
        self.close()

    def paths(self, names: Sequence[str]) -> list[str]:
        """Return the copies of these files. Raises ArchiveError."""
        with self._lock:
            for name in names:
                if name in self._sizes:
                    self._sizes[name] = self._sizes.pop(name)
                else:
                    self._sizes[name] = self._copy(name)
            self._delete_unused(set(names))
            return [str(self._folder / name) for name in names]

    def follow(self, reader: ArchiveReader) -> None:
        """Copy later files from `reader`, of the same archive after it has grown."""
        with self._lock:
            self._reader = reader

    def close(self) -> None:
        """Delete all copies."""
        self._sizes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _copy(self, name: str) -> int:
        content = self._reader.content(name)
        file = self._folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_bytes(content)
        except OSError as error:
            raise ArchiveError(
                f"cannot copy {name} to {self._folder}: {error.strerror}",
                "Free some space, or choose another folder with mirror.state_dir.",
            ) from error
        return len(content)

    def _delete_unused(self, needed: set[str]) -> None:
        total = sum(self._sizes.values())
        for name in [name for name in self._sizes if name not in needed]:
            if total <= self._kept_bytes:
                return
            total -= self._sizes.pop(name)
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()


_AVRO_SCHEMA: Final = json.dumps(EVENT_SCHEMA)


class ArchiveChangeLog:
    """The topics in an archive, as listed by the manifest when this object was created or last refreshed.

    The checksum of each file is verified before Spark reads it. Spark gets the files of an object store from `staging`,
    a folder of this machine. Without it, Spark reads the store itself, for which it needs Hadoop's client.

    Attributes:
        reader: the archive.
    """

    grows = False
    lists_partitions = False

    def __init__(
        self,
        path: Path | str | Storage,
        topic_prefix: str | None = None,
        staging: Path | None = None,
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
        self._verified: set[str] = set()
        self._verifying = threading.Lock()
        is_local = isinstance(self.reader.storage, LocalStorage)
        self._staged = None if is_local or staging is None else StagedFiles(self.reader, staging)

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
        if self._staged is not None:
            self._staged.follow(reader)

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

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        names = self._names(ranges)
        wanted = F.lit(False)
        for r in ranges:
            inside = (F.col("offset") >= r.start) & (F.col("offset") < r.end)
            wanted |= (F.col("topic") == r.topic) & (F.col("partition") == r.partition) & inside
        files = spark.read.format("avro").option("avroSchema", _AVRO_SCHEMA).load(self._paths(names))
        return files.where(wanted).select("partition", "offset", "timestamp", "key", "value")

    def parts(self, _ranges: Sequence[OffsetRange], _tasks: int) -> None:
        """Return None: Java reads archives."""

    def _paths(self, names: Sequence[str]) -> list[str]:
        """Return the paths of files for Spark, after their checksums were verified."""
        if self._staged is not None:
            return self._staged.paths(names)
        with self._verifying:
            for name in names:
                if name not in self._verified:
                    self.reader.content(name)
                    self._verified.add(name)
        return [self.reader.storage.path(name) for name in names]

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        wanted = {(r.topic, r.partition): r for r in ranges}
        found = Collected(max_bytes)
        for name in self._names(ranges):
            for event in self.reader.file_events(name):
                r = wanted.get((event.topic, event.partition))
                if r is not None and r.start <= event.offset < r.end:
                    place = (event.topic, event.partition, event.offset, event.timestamp)
                    found.add(*place, event.key, event.value)
            if too_large := found.too_large:
                return too_large
        return found.tables()

    def schema_changes(self) -> Iterator[RawRecord]:
        if self._schema_read:
            return
        topic = self.topic_prefix
        for partition in self.reader.partitions(topic):
            for e in self.reader.events(topic, partition, end=self._ends.get((topic, partition))):
                yield RawRecord(e.topic, e.partition, e.offset, e.timestamp, e.key, e.value)
        self._schema_read = True

    def verify(self, ranges: Sequence[OffsetRange]) -> None:
        """Read the files that contain `ranges`. Raises ArchiveError if one is missing or damaged."""
        for name in self._names(ranges):
            self.reader.content(name)

    def writer_schemas(self) -> Mapping[int, str] | None:
        """Return id → Avro schema of the archive's events; None if they are in JSON. Raises ArchiveError."""
        return self.reader.writer_schemas()

    def close(self) -> None:
        """Delete the files that were staged for Spark."""
        if self._staged is not None:
            self._staged.close()

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
