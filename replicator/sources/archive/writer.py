"""Write an event archive so that a crash at any point leaves a complete archive that can be appended to."""

import contextlib
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from replicator import failpoints
from replicator.errors import ArchiveError
from replicator.sources.archive.containers import SUFFIX, container
from replicator.sources.archive.documents import manifest_json, page_json, parse_manifest
from replicator.sources.archive.format import (
    MANIFEST_NAME,
    ArchivedRows,
    Encoding,
    FileEntry,
    FileRef,
    Manifest,
    PartitionKey,
    Segment,
)
from replicator.sources.archive.pending import PendingEvents, Records
from replicator.sources.archive.spans import SourceColumns, SpanReader, no_columns
from replicator.sources.archive.storage import Storage, locked, open_storage

MAX_EVENTS: Final = 100_000
MAX_BYTES: Final = 64 * 2**20
OWN_FILE_BYTES: Final = 512 * 2**10
"""A topic with at least this many bytes in a flush gets a file of its own, so that its readers need no others."""


@dataclass(frozen=True, slots=True)
class _Flush:
    """What a flush makes durable. It is kept until the manifest has it, so that a failed flush can be repeated.

    Attributes:
        events: the events of each partition.
        files: what the writer's thread returns; None if it must begin again.
        ends, schemas, rows: what was noted before it, as by `advance`, `add_schema` and `add_rows`.
    """

    events: Mapping[PartitionKey, PendingEvents]
    ends: Mapping[PartitionKey, int]
    schemas: Mapping[int, str]
    rows: Mapping[str, ArchivedRows]
    files: Future[list[FileEntry]] | None = None

    @property
    def is_written(self) -> bool:
        """Whether the thread has ended, successfully or not."""
        return self.files is not None and self.files.done()


class ArchiveWriter:
    """Append events to the archive at `path`, which is created if needed; one writer at a time.

    `path` is a folder, the URL of one in an object store, or its storage. `encoding` is written to the manifest of a
    new archive; an existing archive keeps its own.

    Events are kept in memory until `max_events` or `max_bytes` (of keys and values) are reached, or until `flush`.
    Then a thread writes them, while as many others are appended. Flushed events survive a crash; the rest must be
    appended again, from `end_offset` on.

    `before_flush` is called before events are written; if it raises, they are not. `connector_reads_rows` is noted in
    the manifest of a new archive. `sources` reads positions faster than one by one.
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
        sources: SourceColumns = no_columns,
    ) -> None:
        self._connector_reads_rows = connector_reads_rows
        self._storage = open_storage(path) if isinstance(path, Path | str) else path
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._before_flush = before_flush
        self._pending: dict[PartitionKey, PendingEvents] = {}
        self._pending_events = 0
        self._pending_bytes = 0
        self._next: dict[PartitionKey, int] = {}
        """The offset after the last appended event."""
        self._ends: dict[PartitionKey, int] = {}
        self._schemas: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        """The schemas that were added or read."""
        self._topic_ids: dict[str, str] = {}
        self._partition_counts: dict[str, int] = {}
        self._rows: dict[str, ArchivedRows] = {}
        self._flushing: _Flush | None = None
        self._thread = ThreadPoolExecutor(1, "archive")
        self._spans = SpanReader(sources, self)
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
        archived, appended = self.manifest.end_offset(topic, partition), self._next.get((topic, partition))
        return max((end for end in (archived, appended) if end is not None), default=None)

    def extend(self, topic: str, partition: int, records: Records) -> None:
        """Append events of a partition, whose offsets must increase. Raises ArchiveError if they do not."""
        end = self.end_offset(topic, partition)
        for offset in records.offsets:
            if end is not None and offset < end:
                raise ArchiveError(
                    f"{topic}-{partition}: offset {offset} after {end - 1}",
                    "Each event is archived once and in order; continue at the end offset.",
                )
            end = offset + 1
        if end is None or not len(records):
            return
        key = topic, partition
        self._next[key] = end
        self._pending.setdefault(key, PendingEvents(key)).add(records)
        self._pending_events += len(records)
        self._pending_bytes += records.size
        if self._pending_events >= self._max_events or self._pending_bytes >= self._max_bytes:
            self._begin_flush()
        else:
            self.settle()

    def settle(self) -> None:
        """Write the manifest if the thread has written its files; raise what hindered it."""
        if self._flushing is not None and self._flushing.is_written:
            self._end_flush()

    def add_schema(self, writer: int, text: str) -> None:
        """Store the writer schema of events in Avro under its id `writer`; repeated calls have no effect."""
        if not self.has_schema(writer):
            self._schemas[writer] = self._texts[writer] = text

    def has_schema(self, writer: int) -> bool:
        """Return whether the schema is in the archive or pending."""
        return writer in self.manifest.schemas or writer in self._texts

    def add_topic(self, topic: str, topic_id: str | None = None, *, partitions: int | None = None) -> None:
        """Note the id of a topic, and the number of its partitions, before its events are appended.

        If the archive has events of the topic without them, it stays unknown which topic these are of, or how many
        partitions it had.
        """
        if topic_id is not None:
            self._topic_ids[topic] = topic_id
        if partitions is not None and not any((topic, p) in self._next for p in range(partitions)):
            self._partition_counts[topic] = partitions

    def add_rows(self, rows: Mapping[str, ArchivedRows]) -> None:
        """Note the rows of tables, by the topic of each, after their events and those up to their position."""
        self._rows = dict(rows)

    def advance(self, topic: str, partition: int, end: int) -> None:
        """Record that the log has no event of this partition between the last appended one and `end`."""
        self._ends[(topic, partition)] = end

    def flush(self) -> None:
        """Make everything appended so far durable: events and schemas first, the manifest last."""
        self._begin_flush()
        self._end_flush()

    def _begin_flush(self) -> None:
        """Begin to write what is pending, after what is being written."""
        self._end_flush()
        if self._pending:
            self._before_flush()
        self._flushing = self._begun(_Flush(self._pending, self._ends, self._schemas, self._rows))
        self._pending, self._ends, self._schemas, self._rows = {}, {}, {}, {}
        self._pending_events = self._pending_bytes = 0

    def _begun(self, flush: _Flush) -> _Flush:
        number = self.manifest.file_count + 1
        return replace(flush, files=self._thread.submit(self._write_files, flush.events, number))

    def _end_flush(self) -> None:
        """Wait until the thread has written what it is writing, and write the manifest."""
        flush = self._flushing
        if flush is None:
            return
        if flush.files is None:
            flush = self._begun(flush)
        try:
            self._complete(flush)
        except BaseException:
            self._flushing = replace(flush, files=None)
            raise
        self._flushing = None

    def _complete(self, flush: _Flush) -> None:
        files = [] if flush.files is None else flush.files.result()
        manifest = self._with_topics(self._write_schemas(self.manifest, flush.schemas), flush.events)
        for entry in files:
            manifest = manifest.with_file(entry)
        for (topic, partition), end in flush.ends.items():
            manifest = manifest.with_end(topic, partition, end)
        if flush.rows:
            manifest = replace(manifest, rows={**manifest.rows, **flush.rows})
        if manifest is not self.manifest or self._text is None:
            self._check_alone()
            if manifest.is_full:
                manifest = self._write_page(manifest)
            failpoints.reach("before-archive-manifest")
            text = manifest_json(manifest)
            self._write(MANIFEST_NAME, text.encode())
            failpoints.reach("after-archive-manifest")
            self.manifest, self._text = manifest, text

    def _write_files(self, events: Mapping[PartitionKey, PendingEvents], number: int) -> list[FileEntry]:
        """Write the files of a flush, the first one with this number."""
        return [self._write_file(group, number + i) for i, group in enumerate(_groups(events))]

    def _write_file(self, events: Sequence[PendingEvents], number: int) -> FileEntry:
        # A file that a crash left without a manifest entry has this same name and is replaced.
        name = f"events/{number:06d}{self._storage.writer_suffix}{SUFFIX}"
        tables = [pending.table() for pending in events]
        ref = self._write(name, container(pa.concat_tables(tables)))
        failpoints.reach("after-archive-file")
        segments = tuple(
            self._segment(name, pending.key, table) for pending, table in zip(events, tables, strict=True)
        )
        return FileEntry(name, sum(map(len, tables)), ref.bytes, ref.sha256, segments)

    def _segment(self, name: str, key: PartitionKey, events: pa.Table) -> Segment:
        topic, partition = key
        offsets = events.column("offset")
        times = pc.min_max(pc.max_element_wise(events.column("timestamp"), 0)).as_py()
        return Segment(
            path=name,
            topic=topic,
            partition=partition,
            first=offsets[0].as_py(),
            last=offsets[-1].as_py(),
            count=len(events),
            times=(times["min"], times["max"]),
            source=self._spans.read(events.column("value")),
        )

    def _with_topics(self, manifest: Manifest, events: Collection[PartitionKey]) -> Manifest:
        """Return the manifest plus what was noted of the topics of which it gets the first events."""
        new = {topic for topic, _ in events} - {topic for topic, _ in manifest.partitions}
        ids = {topic: self._topic_ids[topic] for topic in new & self._topic_ids.keys()}
        counts = {topic: self._partition_counts[topic] for topic in new & self._partition_counts.keys()}
        if not ids and not counts:
            return manifest
        return replace(
            manifest,
            topic_ids={**manifest.topic_ids, **ids},
            partition_counts={**manifest.partition_counts, **counts},
        )

    def _write_schemas(self, manifest: Manifest, schemas: Mapping[int, str]) -> Manifest:
        if not schemas:
            return manifest
        refs = {
            writer: self._write(f"schemas/{writer}.avsc", text.encode()) for writer, text in schemas.items()
        }
        return replace(manifest, schemas={**manifest.schemas, **refs})

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

    def schema(self, writer: int) -> str | None:
        """Return a writer schema, pending or archived; None if there is none, or if it cannot be read."""
        ref = self.manifest.schemas.get(writer)
        if writer not in self._texts and ref is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self._texts[writer] = self._storage.read(ref.path).decode()
        return self._texts.get(writer)

    def close(self) -> None:
        """Flush, and release the lock for other writers."""
        try:
            self.flush()
        finally:
            self._release()

    def _release(self) -> None:
        # The thread may still write.
        self._thread.shutdown()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._release()


def _groups(events: Mapping[PartitionKey, PendingEvents]) -> list[list[PendingEvents]]:
    """Return the pending partitions by file, in order: those of each large topic, and all others."""
    sizes: dict[str, int] = {}
    for (topic, _), pending in events.items():
        sizes[topic] = sizes.get(topic, 0) + pending.size
    groups: dict[str, list[PendingEvents]] = {}
    for key, pending in sorted(events.items()):
        groups.setdefault(key[0] if sizes[key[0]] >= OWN_FILE_BYTES else "", []).append(pending)
    return list(groups.values())
