"""Define the contents of an event archive: events, files with their index, and the manifest.

The manifest lists the newest files, and what the archive has of each partition. It is rewritten by each flush, so it
must stay small: the entries of older files are in pages, which are never changed. The manifest names the newest page,
and each page names the one before it. `documents` has the JSON formats.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WrapSerializer

from replicator.errors import ArchiveError
from replicator.model.events import RawRecord
from replicator.sources.archive.positions import BinlogName, Interval, Number, SourceSpan

MANIFEST_NAME: Final = "manifest.json"
RESTORE: Final = "Restore the file from a copy."
"""The hint for a damaged file."""

PAGE_SEGMENTS: Final = 512
"""With at least this many segments, the files of a manifest move to a page: about 200 KB."""

Encoding = Literal["json", "json-schemas", "avro"]

# The schema of files in Avro, as schemas/event-archive-v1.avsc; a test keeps the two equal.
EVENT_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "replicator.archive.v1",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "timestamp", "type": "long"},
        {"name": "key", "type": ["null", "bytes"]},
        {"name": "value", "type": ["null", "bytes"]},
        {
            "name": "headers",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Header",
                    "fields": [
                        {"name": "key", "type": "string"},
                        {"name": "value", "type": ["null", "bytes"]},
                    ],
                },
            },
        },
    ],
}

PartitionKey = tuple[str, int]


def _inner_path(value: str) -> str:
    """Return the path of a file within the archive. Another file of the machine must not be read as one of it."""
    path = PurePosixPath(value)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in str(path):
        raise ValueError(f"{value!r:.60} is not a path within the archive")
    return value


_Path = Annotated[str, AfterValidator(_inner_path)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_SORTED: Final = WrapSerializer(lambda value, write: write(dict(sorted(value.items()))))
_IF_ANY: Final = Field(exclude_if=lambda value: not value)


@dataclass(frozen=True, slots=True)
class Event(RawRecord):
    """One record of a change log, unchanged."""

    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of one partition that is in one file: all events from offset `first` to `last`, inclusive.

    Attributes:
        path: the file.
        count: number of events.
        times: lowest and highest time of the log, milliseconds since the epoch; None in files of versions 1 and 2.
        source: positions and times in the source; None if no event has a position, and in files of versions 1 and 2.
    """

    path: Annotated[str, Field(exclude=True)]
    topic: str
    partition: Number
    first: Number
    last: Number
    count: Number
    times: Interval | None = None
    source: SourceSpan | None = None

    @property
    def key(self) -> PartitionKey:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def is_indexed(self) -> bool:
        """Whether positions were looked up. If so, None in `source` means that there is no position."""
        return self.times is not None


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One container file.

    Attributes:
        events: number of events.
        bytes: size.
        sha256: checksum of the content, in hexadecimal; None for files of versions 1 and 2.
        segments: the partitions in it, sorted.
    """

    path: _Path
    events: Number
    bytes: Number
    sha256: _Sha256 | None
    segments: Annotated[tuple[Segment, ...], Field(alias="partitions")]


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file that is not a container: its path, size in bytes, and checksum, which old schemas lack."""

    path: _Path
    bytes: Number
    sha256: _Sha256 | None


@dataclass(frozen=True, slots=True)
class Pages:
    """The files that are listed in pages: number of pages, files, events and bytes, and the newest page."""

    pages: Number
    files: Number
    events: Number
    bytes: Number
    last: FileRef


@dataclass(frozen=True, slots=True)
class Page:
    """Some files, in the order in which they were written; `previous` is the page before this one."""

    previous: FileRef | None
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The events of one partition: first and last offset, and their number. Recording continues at offset `end`."""

    first: Number
    last: Number
    count: Number
    end: Number


@dataclass(frozen=True, slots=True)
class ArchivedRows:
    """The rows of a table at one position of the source. They were read apart: its topic has no events of them.

    Attributes:
        database, table: the source table.
        topic: the topic of the rows in the archive; it has no events if there were no rows.
        file, pos: the position. The archive has all events of the table up to it, and from it on.
        server_id: the server's id.
        ts_ms: the source's time after that, milliseconds since the epoch.
    """

    database: str
    table: str
    topic: str
    file: BinlogName
    pos: Number
    server_id: Number
    ts_ms: Number


def _by_partition(topics: Mapping[str, Mapping[str, Any]]) -> dict[PartitionKey, Any]:
    return {
        (topic, int(partition)): PartitionEntry(*(entry[name] for name in ("first", "last", "count", "end")))
        for topic, partitions in topics.items()
        for partition, entry in partitions.items()
    }


def _by_topic(partitions: Mapping[PartitionKey, PartitionEntry]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for (topic, partition), entry in sorted(partitions.items()):
        topics.setdefault(topic, {})[str(partition)] = asdict(entry)
    return topics


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an archive.

    `encoding` describes the first event. A connector may start or stop sending schemas at any time, so readers check
    each event.

    Attributes:
        files: the newest files, in the order of writing. The older ones are in `pages`.
        pages: the older files; None if there are none.
        partitions: (topic, partition) → what the archive has of it, in all files.
        schemas: writer schemas of events in Avro, by the id in the headers of events.
        topic_ids: topic → Kafka's id of it, which all of its events share. A topic is left out if the id is unknown:
            an earlier version recorded its first events, or it is not from Kafka.
        partition_counts: topic → how many partitions it had when its first events were recorded, if known.
    """

    topic_prefix: str
    encoding: Encoding
    created: Annotated[datetime, PlainSerializer(lambda time: time.astimezone(UTC).isoformat())] = field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0)
    )
    pages: Annotated[Pages | None, Field(alias="index")] = None
    files: tuple[FileEntry, ...] = ()
    partitions: Annotated[
        Mapping[PartitionKey, PartitionEntry],
        Field(alias="topics"),
        BeforeValidator(_by_partition),
        PlainSerializer(_by_topic),
    ] = field(default_factory=dict)
    schemas: Annotated[Mapping[int, FileRef], _SORTED] = field(default_factory=dict)
    topic_ids: Annotated[Mapping[str, str], _SORTED, _IF_ANY] = field(default_factory=dict)
    partition_counts: Annotated[Mapping[str, Number], _SORTED, _IF_ANY] = field(default_factory=dict)
    connector_reads_rows: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    rows: Annotated[Mapping[str, ArchivedRows], _SORTED, _IF_ANY] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """Number of events in the whole archive."""
        return sum(f.events for f in self.files) + (0 if self.pages is None else self.pages.events)

    @property
    def bytes(self) -> int:
        """Size of all container files, in bytes."""
        return sum(f.bytes for f in self.files) + (0 if self.pages is None else self.pages.bytes)

    @property
    def file_count(self) -> int:
        """Number of container files in the whole archive."""
        return len(self.files) + (0 if self.pages is None else self.pages.files)

    @property
    def is_full(self) -> bool:
        """Whether the files should move to a page."""
        return sum(len(f.segments) for f in self.files) >= PAGE_SEGMENTS

    def end_offset(self, topic: str, partition: int) -> int | None:
        """Return the offset at which recording of a partition continues; None if the archive has no events of it."""
        entry = self.partitions.get((topic, partition))
        return None if entry is None else entry.end

    def with_file(self, entry: FileEntry) -> Self:
        """Return this manifest plus one file. Raises ArchiveError if it repeats offsets."""
        partitions = dict(self.partitions)
        for segment in entry.segments:
            before = partitions.get(segment.key)
            if before is not None and segment.first < before.end:
                raise ArchiveError(
                    f"{segment.topic}-{segment.partition}: offset {segment.first} is already in the archive, which "
                    f"ends at {before.end}",
                    "Each event is archived once; continue at the end offset.",
                )
            partitions[segment.key] = PartitionEntry(
                segment.first if before is None else before.first,
                segment.last,
                segment.count + (0 if before is None else before.count),
                segment.last + 1,
            )
        return replace(self, files=(*self.files, entry), partitions=partitions)

    def with_end(self, topic: str, partition: int, end: int) -> Self:
        """Return this manifest with a partition's end offset raised to `end`; it is never lowered."""
        entry = self.partitions.get((topic, partition))
        if entry is None or end <= entry.end:
            return self
        return replace(self, partitions={**self.partitions, (topic, partition): replace(entry, end=end)})

    def page(self) -> Page:
        """Return the page that takes over the files of this manifest."""
        return Page(None if self.pages is None else self.pages.last, self.files)

    def with_page(self, ref: FileRef) -> Self:
        """Return this manifest after its files were moved to the page `ref`."""
        pages = 1 + (0 if self.pages is None else self.pages.pages)
        return replace(self, files=(), pages=Pages(pages, self.file_count, self.events, self.bytes, ref))
