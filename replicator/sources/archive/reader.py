"""Read an event archive: the files that contain a range of a partition, and the events themselves."""

import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from replicator.errors import ArchiveError
from replicator.sources.archive.format import MANIFEST_NAME, Event, Manifest, PartitionKey

_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError),
    *(MemoryError, RecursionError, struct.error, zlib.error),
)
"""Exceptions that fastavro raises for a truncated or modified file."""


class ArchiveReader:
    """An archive as listed by its manifest when this object was created; later appends are not visible."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = load_manifest(path)
        self._check_files()

    def _check_files(self) -> None:
        files = {name: entry.bytes for name, entry in self.manifest.files.items()}
        files |= {entry.path: entry.bytes for entry in self.manifest.schemas.values()}
        for name, wanted in files.items():
            file = self.path / name
            try:
                size = file.stat().st_size
            except OSError as error:
                raise ArchiveError(
                    f"{self.path}: {name} is in the manifest but cannot be read ({error.strerror})",
                    "The archive was copied partially; copy the whole directory again.",
                ) from error
            if size != wanted:
                raise ArchiveError(
                    f"{self.path}: {name} has {size} bytes, the manifest says {wanted}",
                    "The archive was copied partially; copy the whole directory again.",
                )

    def writer_schemas(self) -> dict[int, str] | None:
        """Return id → Avro schema as JSON text of events in Avro; None if the archive's events are JSON."""
        if self.manifest.encoding != "avro":
            return None
        try:
            return {
                writer: (self.path / entry.path).read_text(encoding="utf-8")
                for writer, entry in self.manifest.schemas.items()
            }
        except (OSError, UnicodeDecodeError) as error:
            raise ArchiveError(f"{self.path}: a schema cannot be read: {error}") from error

    def topics(self) -> list[str]:
        """Return the sorted names of the topics with at least one event."""
        return sorted({topic for topic, _ in self.manifest.partitions})

    def partitions(self, topic: str) -> list[int]:
        """Return the sorted partitions of `topic` with at least one event."""
        return sorted(partition for name, partition in self.manifest.partitions if name == topic)

    def start_offsets(self) -> dict[PartitionKey, int]:
        """Return (topic, partition) → the offset of the first event."""
        return {key: entry.first for key, entry in self.manifest.partitions.items()}

    def end_offsets(self) -> dict[PartitionKey, int]:
        """Return (topic, partition) → the offset after the last event (exclusive)."""
        return {key: entry.end for key, entry in self.manifest.partitions.items()}

    def files(self, topic: str, partition: int, start: int = 0, end: int | None = None) -> list[Path]:
        """Return the files with events of a partition at offsets from `start` to before `end`, in offset order.

        The files contain other partitions and offsets too: filter after reading.
        """
        entry = self.manifest.partitions.get((topic, partition))
        if entry is None:
            return []
        return [
            self.path / segment.path
            for segment in entry.segments
            if segment.last >= start and (end is None or segment.first < end)
        ]

    def count(self, topic: str, partition: int, start: int = 0, end: int | None = None) -> int:
        """Return an upper bound for the number of events in the range: partly included files are counted whole."""
        entry = self.manifest.partitions.get((topic, partition))
        if entry is None:
            return 0
        return sum(s.count for s in entry.segments if s.last >= start and (end is None or s.first < end))

    def events(self, topic: str, partition: int, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Yield the events of a partition at offsets from `start` to before `end`, in offset order."""
        for file in self.files(topic, partition, start, end):
            for event in read_events(file):
                if event.topic != topic or event.partition != partition or event.offset < start:
                    continue
                if end is not None and event.offset >= end:
                    break
                yield event


def load_manifest(path: Path) -> Manifest:
    """Load the manifest of the archive at `path`. Raises ArchiveError if there is none."""
    file = path / MANIFEST_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ArchiveError(
            f"{path} is not an event archive: it has no {MANIFEST_NAME}",
            "Give the directory that `replicator record --to` wrote.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiveError(f"cannot read {file}: {error}") from error
    return Manifest.from_json(text, str(file))


def read_events(file: Path) -> Iterator[Event]:
    """Yield every event of one container file, in file order. Raises ArchiveError if it is damaged."""
    try:
        with file.open("rb") as stream:
            for record in fastavro.reader(stream):
                yield _event(record)
    except (*_DAMAGE, SchemaResolutionError, SchemaParseException, UnknownType) as error:
        raise ArchiveError(
            f"{file} is damaged: {type(error).__name__}: {error}", "Restore the file from a copy."
        ) from error


def _event(record: Any) -> Event:
    fields: Mapping[str, Any] = record
    return Event(
        topic=fields["topic"],
        partition=fields["partition"],
        offset=fields["offset"],
        timestamp=fields["timestamp"],
        key=fields["key"],
        value=fields["value"],
        headers=tuple((header["key"], header["value"]) for header in fields["headers"]),
    )
