"""Read a recorded event archive as a change log."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.model.commit_marker import OffsetRange
from replicator.model.records import RawRecord
from replicator.sources.archive import ArchiveReader, read_events
from replicator.sources.archive.origin import load_origin
from replicator.sources.change_log import Collected, Offsets, TooLarge, data_topic


class ArchiveChangeLog:
    """The topics in an archive, as listed by the manifest when this object was created."""

    grows = False

    def __init__(self, path: Path, topic_prefix: str | None = None) -> None:
        self._reader = ArchiveReader(path)
        self.topic_prefix = topic_prefix or self._reader.manifest.topic_prefix
        self._origin = load_origin(path)
        self._schema_read = False

    def offsets(self) -> tuple[Offsets, Offsets]:
        return self._grouped(self._reader.start_offsets()), self._grouped(self._reader.end_offsets())

    def readable_ends(self) -> Offsets:
        return self._grouped(self._reader.end_offsets())

    def topic_id(self, topic: str) -> str | None:
        """Return None for topics that were recorded: the archive has each of them once."""
        return None if self._origin is None else self._origin.topic_id(topic)

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        files = self._files(ranges)
        wanted = F.lit(False)
        for r in ranges:
            inside = (F.col("offset") >= r.start) & (F.col("offset") < r.end)
            wanted |= (F.col("topic") == r.topic) & (F.col("partition") == r.partition) & inside
        frame = spark.read.format("avro").load([str(f) for f in files])
        return frame.where(wanted).select("partition", "offset", "timestamp", "key", "value")

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        wanted = {(r.topic, r.partition): r for r in ranges}
        found = Collected(max_bytes)
        for file in self._files(ranges):
            for event in read_events(file):
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
        for partition in self._reader.partitions(topic):
            for e in self._reader.events(topic, partition):
                yield RawRecord(e.topic, e.partition, e.offset, e.timestamp, e.key, e.value)
        self._schema_read = True

    def writer_schemas(self) -> Mapping[int, str] | None:
        """Return id → Avro schema of the archive's events; None if they are in JSON. Raises ArchiveError."""
        return self._reader.writer_schemas()

    def _files(self, ranges: Sequence[OffsetRange]) -> list[Path]:
        return sorted({f for r in ranges for f in self._reader.files(r.topic, r.partition, r.start, r.end)})

    def _grouped(self, offsets: dict[tuple[str, int], int]) -> Offsets:
        grouped: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            if data_topic(topic, self.topic_prefix) is not None:
                grouped.setdefault(topic, {})[partition] = offset
        return grouped
