"""Write an event archive so that a crash at any point leaves a complete archive that can be appended to."""

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import fastavro

from replicator import failpoints
from replicator.errors import ArchiveError
from replicator.sources.archive.documents import manifest_json, page_json, parse_manifest
from replicator.sources.archive.format import (
    EVENT_SCHEMA,
    MANIFEST_NAME,
    ArchivedRows,
    Encoding,
    Event,
    FileEntry,
    FileRef,
    Manifest,
    PartitionKey,
    Segment,
)
from replicator.sources.archive.positions import PositionReader, SourceSpan
from replicator.sources.archive.storage import Storage, locked, open_storage

MAX_EVENTS: Final = 100_000
MAX_BYTES: Final = 64 * 2**20
OWN_FILE_BYTES: Final = 512 * 2**10
"""A topic with at least this many bytes in a flush gets a file of its own, so that its readers need no others."""
BLOCK_BYTES: Final = 2**20
"""Large blocks compress better; readers hold one block in memory at a time."""
_PARSED_SCHEMA: Final = fastavro.parse_schema(EVENT_SCHEMA)


class ArchiveWriter:
    """Append events to the archive at `path`, which is created if needed; one writer at a time.

    `path` is a folder, the URL of one in an object store, or its storage. `encoding` is written to the manifest of a
    new archive; an existing archive keeps its own.

    Events are kept in memory until `max_events` or `max_bytes` (of keys and values) are reached, or until `flush`.
    Flushed events survive a crash; the rest must be appended again, from `end_offset` on.

    `before_flush` is called before events are written; if it raises, they are not. `connector_reads_rows` is noted in
    the manifest of a new archive.
    """

    def __init__(
        self,
        path: Path | str | Storage,
        *,
        topic_prefix: str,
        encoding: Encoding,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
        before_flush: Callable[[], None] = lambda: None,
        connector_reads_rows: bool | None = None,
    ) -> None:
        self._connector_reads_rows = connector_reads_rows
        self._storage = open_storage(path) if isinstance(path, Path | str) else path
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._before_flush = before_flush
        self._pending: dict[PartitionKey, list[Event]] = {}
        self._pending_events = 0
        self._pending_bytes = 0
        self._ends: dict[PartitionKey, int] = {}
        self._schemas: dict[int, str] = {}
        self._topic_ids: dict[str, str] = {}
        self._partition_counts: dict[str, int] = {}
        self._rows: dict[str, ArchivedRows] = {}
        self._positions = PositionReader(self._schema)
        self._text: str | None = None
        """The manifest as it is in the archive; None if there is none."""
        self._lock = locked(self._storage)
        try:
            self.manifest = self._open(topic_prefix, encoding)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, topic_prefix: str, encoding: Encoding) -> Manifest:
        self._text = self._read_manifest()
        if self._text is None:
            return Manifest(topic_prefix, encoding, connector_reads_rows=self._connector_reads_rows)
        location = self._storage.location
        manifest = parse_manifest(self._text, f"{location}/{MANIFEST_NAME}")
        if manifest.topic_prefix != topic_prefix:
            raise ArchiveError(
                f"{location} contains events of {manifest.topic_prefix!r}, not of {topic_prefix!r}",
                "Record into another directory.",
            )
        if manifest.events and (manifest.encoding == "avro") != (encoding == "avro"):
            raise ArchiveError(
                f"{location} contains events in {manifest.encoding}, not in {encoding}",
                "Record into another directory.",
            )
        return manifest if manifest.events else replace(manifest, encoding=encoding)

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
        self._pending_bytes += _size(event)
        if self._pending_events >= self._max_events or self._pending_bytes >= self._max_bytes:
            self.flush()

    def add_schema(self, writer: int, text: str) -> None:
        """Store the writer schema of events in Avro under its id `writer`; repeated calls have no effect."""
        if writer not in self.manifest.schemas:
            self._schemas[writer] = text

    def has_schema(self, writer: int) -> bool:
        """Return whether the schema is in the archive or pending."""
        return writer in self.manifest.schemas or writer in self._schemas

    def add_topic(self, topic: str, topic_id: str | None = None, *, partitions: int | None = None) -> None:
        """Note the id of a topic, and the number of its partitions, before its events are appended.

        If the archive has events of the topic without them, it stays unknown which topic these are of, or how many
        partitions it had.
        """
        if topic_id is not None:
            self._topic_ids[topic] = topic_id
        if partitions is not None and not any((topic, p) in self._pending for p in range(partitions)):
            self._partition_counts[topic] = partitions

    def add_rows(self, rows: Mapping[str, ArchivedRows]) -> None:
        """Note the rows of tables, by the topic of each, after their events and those up to their position."""
        self._rows = dict(rows)

    def advance(self, topic: str, partition: int, end: int) -> None:
        """Record that the log has no event of this partition between the last appended one and `end`."""
        self._ends[(topic, partition)] = end

    def flush(self) -> None:
        """Make everything appended so far durable: events and schemas first, the manifest last."""
        if self._pending:
            self._before_flush()
        manifest = self._with_topics(self._write_schemas(self.manifest))
        for keys in self._groups():
            manifest = self._write_file(manifest, keys)
        for (topic, partition), end in self._ends.items():
            manifest = manifest.with_end(topic, partition, end)
        if self._rows:
            manifest = replace(manifest, rows={**manifest.rows, **self._rows})
        if manifest is not self.manifest or self._text is None:
            self._check_alone()
            if manifest.is_full:
                manifest = self._write_page(manifest)
            failpoints.reach("before-archive-manifest")
            text = manifest_json(manifest)
            self._write(MANIFEST_NAME, text.encode())
            failpoints.reach("after-archive-manifest")
            self.manifest, self._text = manifest, text
        self._pending.clear()
        self._ends.clear()
        self._schemas.clear()
        self._rows.clear()
        self._pending_events = self._pending_bytes = 0

    def _groups(self) -> list[list[PartitionKey]]:
        """Return the pending partitions by file, in order: those of each large topic, and all others."""
        sizes: dict[str, int] = {}
        for (topic, _), events in self._pending.items():
            sizes[topic] = sizes.get(topic, 0) + sum(map(_size, events))
        groups: dict[str, list[PartitionKey]] = {}
        for key in sorted(self._pending):
            groups.setdefault(key[0] if sizes[key[0]] >= OWN_FILE_BYTES else "", []).append(key)
        return list(groups.values())

    def _with_topics(self, manifest: Manifest) -> Manifest:
        """Return the manifest plus what was noted of the topics of which it gets the first events."""
        new = {topic for topic, _ in self._pending} - {topic for topic, _ in manifest.partitions}
        ids = {topic: self._topic_ids[topic] for topic in new & self._topic_ids.keys()}
        counts = {topic: self._partition_counts[topic] for topic in new & self._partition_counts.keys()}
        if not ids and not counts:
            return manifest
        return replace(
            manifest,
            topic_ids={**manifest.topic_ids, **ids},
            partition_counts={**manifest.partition_counts, **counts},
        )

    def _write_schemas(self, manifest: Manifest) -> Manifest:
        if not self._schemas:
            return manifest
        refs = {
            writer: self._write(f"schemas/{writer}.avsc", text.encode())
            for writer, text in self._schemas.items()
        }
        return replace(manifest, schemas={**manifest.schemas, **refs})

    def _write_file(self, manifest: Manifest, keys: Iterable[PartitionKey]) -> Manifest:
        # A file that a crash left without a manifest entry has this same name and is replaced.
        name = f"events/{manifest.file_count + 1:06d}{self._storage.writer_suffix}.avro"
        events = {key: self._pending[key] for key in keys}
        ref = self._write(name, _container(event for part in events.values() for event in part))
        failpoints.reach("after-archive-file")
        segments = tuple(self._segment(name, part) for part in events.values())
        count = sum(segment.count for segment in segments)
        return manifest.with_file(FileEntry(name, count, ref.bytes, ref.sha256, segments))

    def _segment(self, name: str, events: list[Event]) -> Segment:
        first, last = events[0], events[-1]
        times = [max(0, event.timestamp) for event in events]
        return Segment(
            path=name,
            topic=first.topic,
            partition=first.partition,
            first=first.offset,
            last=last.offset,
            count=len(events),
            times=(min(times), max(times)),
            source=SourceSpan.of(self._positions.read(event.value) for event in events),
        )

    def _write_page(self, manifest: Manifest) -> Manifest:
        number = 1 if manifest.pages is None else manifest.pages.pages + 1
        name = f"index/{number:06d}{self._storage.writer_suffix}.json"
        ref = self._write(name, page_json(manifest.page()).encode())
        failpoints.reach("after-archive-page")
        return manifest.with_page(ref)

    def _write(self, name: str, content: bytes) -> FileRef:
        try:
            self._storage.write(name, content)
        except OSError as error:
            raise ArchiveError(
                f"cannot write {name} to {self._storage.location}: {error.strerror or error}",
                "Free some space or choose another directory.",
            ) from error
        return FileRef(name, len(content), hashlib.sha256(content).hexdigest())

    def _check_alone(self) -> None:
        """Check that the manifest is the one that this writer knows.

        A lock of this machine does not exclude writers on others. Their files have other names, so nothing is lost.
        """
        if self._read_manifest() != self._text:
            raise ArchiveError(
                f"another process has written to {self._storage.location}",
                "Stop it, then start this command again; it continues at the end of the archive.",
            )

    def _read_manifest(self) -> str | None:
        try:
            return self._storage.read(MANIFEST_NAME).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ArchiveError(f"cannot read {MANIFEST_NAME} of {self._storage.location}: {error}") from error

    def _schema(self, writer: int) -> str | None:
        """Return a writer schema, pending or archived; None if there is none, or if it cannot be read."""
        if writer in self._schemas:
            return self._schemas[writer]
        ref: Mapping[int, FileRef] = self.manifest.schemas
        try:
            return self._storage.read(ref[writer].path).decode() if writer in ref else None
        except (OSError, UnicodeDecodeError):
            return None

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


def _size(event: Event) -> int:
    return len(event.key or b"") + len(event.value or b"")


def _container(events: Iterable[Event]) -> bytes:
    """Return a container file with these events."""
    stream = io.BytesIO()
    fastavro.writer(
        stream,
        _PARSED_SCHEMA,
        map(_record, events),
        codec="deflate",
        codec_compression_level=6,
        sync_interval=BLOCK_BYTES,
    )
    return stream.getvalue()


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
