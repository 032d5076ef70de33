"""Write an event archive so that a crash at any point leaves a complete archive that can be appended to."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import fastavro

from replicator.errors import ArchiveError
from replicator.locks import FileLock, LockHeld
from replicator.sources.archive.format import (
    EVENT_SCHEMA,
    MANIFEST_NAME,
    Encoding,
    Event,
    Manifest,
    PartitionKey,
    SchemaEntry,
    Segment,
)
from replicator.sources.archive.reader import load_manifest

MAX_EVENTS = 50_000
MAX_BYTES = 64 * 2**20
# Large blocks compress better; readers hold one block in memory at a time.
BLOCK_BYTES = 2**20


class ArchiveWriter:
    """Append events to the archive at `path`, which is created if needed; one writer at a time.

    `encoding` is written to the manifest of a new archive; an existing archive keeps its own.

    Events are kept in memory until `max_events` or `max_bytes` (of keys and values) are reached, or until
    `flush`. Flushed events survive a crash; the rest must be appended again, from `end_offset` on.
    """

    def __init__(
        self,
        path: Path,
        *,
        topic_prefix: str,
        encoding: Encoding,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = path
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._pending: dict[PartitionKey, list[Event]] = {}
        self._pending_events = 0
        self._pending_bytes = 0
        self._ends: dict[PartitionKey, int] = {}
        self._schemas: dict[int, str] = {}
        try:
            (path / "events").mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path / ".lock", wait=False)
        except LockHeld as error:
            raise ArchiveError(
                f"another process is writing to {path}", "Stop it, or record into another directory."
            ) from error
        except OSError as error:
            raise ArchiveError(f"cannot write an archive to {path}: {error.strerror}") from error
        try:
            self.manifest = self._open(topic_prefix, encoding)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, topic_prefix: str, encoding: Encoding) -> Manifest:
        if not (self.path / MANIFEST_NAME).exists():
            return Manifest(topic_prefix, encoding)
        manifest = load_manifest(self.path)
        if manifest.topic_prefix != topic_prefix:
            raise ArchiveError(
                f"{self.path} contains events of {manifest.topic_prefix!r}, not of {topic_prefix!r}",
                "Record into another directory.",
            )
        if manifest.files and (manifest.encoding == "avro") != (encoding == "avro"):
            raise ArchiveError(
                f"{self.path} contains events in {manifest.encoding}, not in {encoding}",
                "Record into another directory.",
            )
        return manifest if manifest.files else replace(manifest, encoding=encoding)

    def end_offset(self, topic: str, partition: int) -> int | None:
        """Return the offset at which appending continues, pending events included; None if there are no events."""
        pending = self._pending.get((topic, partition))
        if pending:
            return pending[-1].offset + 1
        return self.manifest.end_offset(topic, partition)

    def append(self, event: Event) -> None:
        """Append one event; the offsets of a partition must increase. Raises ArchiveError if they do not."""
        end = self.end_offset(event.topic, event.partition)
        if end is not None and event.offset < end:
            raise ArchiveError(
                f"{event.topic}-{event.partition}: offset {event.offset} after {end - 1}",
                "Each event is archived once and in order; continue at the end offset.",
            )
        self._pending.setdefault((event.topic, event.partition), []).append(event)
        self._pending_events += 1
        self._pending_bytes += len(event.key or b"") + len(event.value or b"")
        if self._pending_events >= self._max_events or self._pending_bytes >= self._max_bytes:
            self.flush()

    def add_schema(self, writer: int, text: str) -> None:
        """Store the writer schema of events in Avro under its id `writer`; repeated calls have no effect."""
        if writer not in self.manifest.schemas:
            self._schemas[writer] = text

    def has_schema(self, writer: int) -> bool:
        """Return whether the schema is in the archive or pending."""
        return writer in self.manifest.schemas or writer in self._schemas

    def advance(self, topic: str, partition: int, end: int) -> None:
        """Record that the log has no event of this partition between the last appended one and `end`."""
        self._ends[(topic, partition)] = end

    def flush(self) -> None:
        """Make everything appended so far durable: events and schemas first, the manifest last."""
        manifest = self._write_schemas(self.manifest)
        if self._pending_events:
            manifest = self._write_file(manifest)
        for (topic, partition), end in self._ends.items():
            manifest = manifest.with_end(topic, partition, end)
        if manifest is not self.manifest or not (self.path / MANIFEST_NAME).exists():
            _replace(self.path / MANIFEST_NAME, lambda stream: stream.write(manifest.to_json().encode()))
        self.manifest = manifest
        self._pending.clear()
        self._ends.clear()
        self._schemas.clear()
        self._pending_events = self._pending_bytes = 0

    def _write_schemas(self, manifest: Manifest) -> Manifest:
        if not self._schemas:
            return manifest
        (self.path / "schemas").mkdir(exist_ok=True)
        entries = dict(manifest.schemas)
        for writer, text in self._schemas.items():
            name, content = f"schemas/{writer}.avsc", text.encode()
            _replace(self.path / name, lambda stream, content=content: stream.write(content))
            entries[writer] = SchemaEntry(name, len(content))
        return replace(manifest, schemas=entries)

    def _write_file(self, manifest: Manifest) -> Manifest:
        # A file that a crash left without a manifest entry has this same name and is replaced.
        name = f"events/{len(manifest.files) + 1:06d}.avro"
        keys = sorted(self._pending)
        segments: dict[PartitionKey, Segment] = {}
        for key in keys:
            events = self._pending[key]
            segments[key] = Segment(name, events[0].offset, events[-1].offset, len(events))
        records = (_record(event) for key in keys for event in self._pending[key])
        _replace(self.path / name, lambda stream: _write_container(stream, records))
        return manifest.with_file(name, (self.path / name).stat().st_size, segments)

    def close(self) -> None:
        """Flush, and release the lock for other writers."""
        try:
            self.flush()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._lock.release()


def _record(event: Event) -> dict[str, Any]:
    return {
        "topic": event.topic,
        "partition": event.partition,
        "offset": event.offset,
        "timestamp": event.timestamp,
        "key": event.key,
        "value": event.value,
        "headers": [{"key": key, "value": value} for key, value in event.headers],
    }


def _write_container(stream: IO[bytes], records: Any) -> None:
    fastavro.writer(
        stream,
        fastavro.parse_schema(EVENT_SCHEMA),
        records,
        codec="deflate",
        codec_compression_level=9,
        sync_interval=BLOCK_BYTES,
    )


def _replace(file: Path, write: Any) -> None:
    """Write `file` through a temporary file, so that it is complete or unchanged, and durable on return."""
    temporary = file.with_name(file.name + ".tmp")
    try:
        with temporary.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        _sync_directory(file.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ArchiveError(
            f"cannot write {file}: {error.strerror}", "Free some space or choose another directory."
        ) from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
