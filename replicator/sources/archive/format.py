"""Define the contents of an event archive: events, the manifest, and the manifest's JSON format."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self, cast

from replicator.errors import ArchiveError, DecodeError
from replicator.model.document import parse_json
from replicator.model.records import RawRecord

FORMAT = "replicator-archive"
VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 2 added events in Avro and their writer schemas."""
MANIFEST_NAME = "manifest.json"

Encoding = Literal["json", "json-schemas", "avro"]

# The same schema is published as schemas/event-archive-v1.avsc; a test keeps the two equal.
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


@dataclass(frozen=True, slots=True)
class Event(RawRecord):
    """One record of a change log, unchanged."""

    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One container file: number of events, and size in bytes."""

    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One writer schema of events in Avro: its file, and the size in bytes."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of one partition that is in one file: all events from offset `first` to `last`, inclusive."""

    path: str
    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The events of one partition. Recording continues at offset `end`."""

    segments: tuple[Segment, ...]
    end: int

    @property
    def first(self) -> int:
        """Return the offset of the first event."""
        return self.segments[0].first

    @property
    def last(self) -> int:
        """Return the offset of the last event."""
        return self.segments[-1].last

    @property
    def count(self) -> int:
        """Return the number of events."""
        return sum(segment.count for segment in self.segments)


PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of an archive. `files` is keyed by path, `partitions` by (topic, partition).

    `encoding` describes the first event. A connector may start or stop sending schemas at any time, so
    readers check each event. `schemas` is keyed by the id in the headers of events in Avro.
    """

    topic_prefix: str
    encoding: Encoding
    created: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    partitions: Mapping[PartitionKey, PartitionEntry] = field(default_factory=dict)
    schemas: Mapping[int, SchemaEntry] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """Return the number of events in the whole archive."""
        return sum(entry.events for entry in self.files.values())

    def end_offset(self, topic: str, partition: int) -> int | None:
        """Return the offset at which recording of a partition continues; None if the archive has no events of it."""
        entry = self.partitions.get((topic, partition))
        return None if entry is None else entry.end

    def with_file(self, path: str, size: int, segments: Mapping[PartitionKey, Segment]) -> Self:
        """Return this manifest plus one file of `size` bytes with `segments`."""
        partitions = dict(self.partitions)
        for key, segment in segments.items():
            before = partitions.get(key)
            if before is not None and segment.first < before.end:
                raise ArchiveError(
                    f"{key[0]}-{key[1]}: offset {segment.first} is already in the archive, which ends at "
                    f"{before.end}",
                    "Each event is archived once; continue at the end offset.",
                )
            earlier = () if before is None else before.segments
            partitions[key] = PartitionEntry((*earlier, segment), segment.last + 1)
        events = sum(segment.count for segment in segments.values())
        return replace(self, files={**self.files, path: FileEntry(events, size)}, partitions=partitions)

    def with_end(self, topic: str, partition: int, end: int) -> Self:
        """Return this manifest with a partition's end offset raised to `end`; it is never lowered."""
        entry = self.partitions.get((topic, partition))
        if entry is None or end <= entry.end:
            return self
        partitions = {**self.partitions, (topic, partition): PartitionEntry(entry.segments, end)}
        return replace(self, partitions=partitions)

    def to_json(self) -> str:
        """Serialize as manifest.json (schemas/archive-manifest-v2.json)."""
        topics: dict[str, dict[str, Any]] = {}
        for (topic, partition), entry in sorted(self.partitions.items()):
            topics.setdefault(topic, {})[str(partition)] = _entry_to_json(entry)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "topic_prefix": self.topic_prefix,
            "encoding": self.encoding,
            "created": self.created.astimezone(UTC).isoformat(),
            "files": {
                path: {"events": entry.events, "bytes": entry.bytes} for path, entry in self.files.items()
            },
            "topics": topics,
            "schemas": {
                str(writer): {"path": entry.path, "bytes": entry.bytes}
                for writer, entry in sorted(self.schemas.items())
            },
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Self:
        """Parse manifest.json; `where` names it in errors. Raises ArchiveError."""
        try:
            document = parse_json(text)
        except DecodeError as error:
            raise ArchiveError(f"{where} is {error.message}", "Restore the file from a copy.") from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ArchiveError(f"{where} is not the manifest of an event archive")
        version = document.get("version")
        if type(version) is not int or version not in READABLE_VERSIONS:
            raise ArchiveError(
                f"{where} has version {version!r}; this program reads versions up to {VERSION}",
                "Use the release of replicator that wrote it, or a newer one.",
            )
        try:
            return cls._from_document(document)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise ArchiveError(
                f"{where} is damaged: {type(error).__name__}: {error}", "Restore the file from a copy."
            ) from error

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        encoding = document["encoding"]
        if encoding not in {"json", "json-schemas", "avro"}:
            raise ValueError(f"unknown encoding {encoding!r}")
        files = {
            path: FileEntry(_number(f["events"]), _number(f["bytes"]))
            for path, f in document["files"].items()
        }
        return cls(
            topic_prefix=_text(document["topic_prefix"]),
            encoding=cast("Encoding", encoding),
            created=datetime.fromisoformat(document["created"]),
            files=files,
            partitions={
                (topic, int(partition)): _entry_from_json(entry, files)
                for topic, partitions in document["topics"].items()
                for partition, entry in partitions.items()
            },
            schemas={
                int(writer): SchemaEntry(_text(entry["path"]), _number(entry["bytes"]))
                for writer, entry in document.get("schemas", {}).items()
            },
        )


def _entry_to_json(entry: PartitionEntry) -> dict[str, Any]:
    return {
        "first": entry.first,
        "last": entry.last,
        "count": entry.count,
        "end": entry.end,
        "files": [
            {"path": s.path, "first": s.first, "last": s.last, "count": s.count} for s in entry.segments
        ],
    }


def _entry_from_json(entry: dict[str, Any], files: Mapping[str, FileEntry]) -> PartitionEntry:
    segments = tuple(
        Segment(_text(s["path"]), _number(s["first"]), _number(s["last"]), _number(s["count"]))
        for s in entry["files"]
    )
    parsed = PartitionEntry(segments, _number(entry["end"]))
    totals = [_number(entry[name]) for name in ("first", "last", "count")]
    if [parsed.first, parsed.last, parsed.count] != totals:
        raise ValueError("a partition's totals differ from the sum of its files")
    if parsed.end <= parsed.last:
        raise ValueError("a partition ends before its last event")
    if not all(segment.path in files for segment in segments):
        raise ValueError("a partition has a file that is not in the list of files")
    return parsed


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.60} is not a number of at least 0")
    return value
