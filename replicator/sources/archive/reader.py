"""Read an event archive: the files that contain a range of a partition, and the events themselves."""

import errno
import hashlib
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replicator.errors import ArchiveError
from replicator.model.commit_marker import OffsetRange
from replicator.model.common import counted
from replicator.sources.archive.documents import parse_manifest, parse_page
from replicator.sources.archive.format import (
    MANIFEST_NAME,
    RESTORE,
    Event,
    FileEntry,
    FileRef,
    Manifest,
    PartitionKey,
    Segment,
)
from replicator.sources.archive.storage import Storage, open_storage

if TYPE_CHECKING:
    import pyarrow as pa

_COPY_AGAIN: Final = "The archive was copied partially; copy the whole directory again."


class ArchiveReader:
    """An archive as listed by its manifest when this object was created; later appends are not visible.

    `path` is a folder, the URL of one in an object store, or its storage. The content of a file is compared with its
    checksum whenever it is read; files of versions 1 and 2 have none.

    Attributes:
        entries: path → every container file, in the order in which they were written.
    """

    def __init__(self, path: Path | str | Storage, *, check_sizes: bool = True) -> None:
        """With `check_sizes`, report files that are missing or have another size at once, not when they are read."""
        self.storage = open_storage(path) if isinstance(path, Path | str) else path
        self.manifest = load_manifest(self.storage)
        self.entries: dict[str, FileEntry] = {entry.path: entry for entry in self._all_files()}
        self._segments: dict[PartitionKey, list[Segment]] = {}
        for entry in self.entries.values():
            for segment in entry.segments:
                self._segments.setdefault(segment.key, []).append(segment)
        if check_sizes:
            self._check_files()

    def _all_files(self) -> list[FileEntry]:
        pages = []
        ref = None if self.manifest.pages is None else self.manifest.pages.last
        while ref is not None:
            page = parse_page(
                _decoded(whole_file(self.storage, ref), ref.path), f"{self.storage.location}/{ref.path}"
            )
            pages.append(page.files)
            ref = page.previous
        files = [entry for page in reversed(pages) for entry in page]
        if self.manifest.pages is not None and len(files) != self.manifest.pages.files:
            raise ArchiveError(
                f"{self.storage.location}: the index has {counted(len(files), 'file')}, the manifest says "
                f"{self.manifest.pages.files}",
                _COPY_AGAIN,
            )
        return [*files, *self.manifest.files]

    def _check_files(self) -> None:
        """Compare the size of every file with the archive's index. Raises ArchiveError."""
        wanted = {entry.path: entry.bytes for entry in self.entries.values()}
        wanted |= {ref.path: ref.bytes for ref in self.manifest.schemas.values()}
        sizes: dict[str, int] = {}
        for folder in sorted({name.rpartition("/")[0] for name in wanted}):
            try:
                sizes |= self.storage.sizes(folder)
            except OSError as error:
                raise _missing(self.storage, f"{folder}/", error) from error
        for name, size in wanted.items():
            if name not in sizes:
                raise _missing(self.storage, name, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
            if sizes[name] != size:
                raise _wrong_size(self.storage, name, sizes[name], size)

    def content(self, name: str) -> bytes:
        """Return a container file, whose size and checksum are compared with the index. Raises ArchiveError."""
        return whole_file(self.storage, self.file(name))

    def file(self, name: str) -> FileRef:
        """Return what identifies the content of a container file."""
        entry = self.entries[name]
        return FileRef(name, entry.bytes, entry.sha256)

    def writer_schemas(self) -> dict[int, str] | None:
        """Return id → Avro schema as JSON text of events in Avro; None if they are in JSON. Raises ArchiveError."""
        if self.manifest.encoding != "avro":
            return None
        return {
            writer: _decoded(whole_file(self.storage, ref), ref.path)
            for writer, ref in self.manifest.schemas.items()
        }

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

    def segments(self, topic: str, partition: int, start: int = 0, end: int | None = None) -> list[Segment]:
        """Return the segments with events of a partition at offsets from `start` to before `end`, in offset order."""
        return [
            segment
            for segment in self._segments.get((topic, partition), ())
            if segment.last >= start and (end is None or segment.first < end)
        ]

    def events(self, topic: str, partition: int, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Yield the events of a partition at offsets from `start` to before `end`, in offset order."""
        # Slow to import, and not needed for the manifest.
        from replicator.sources.archive.containers import events_of, within  # noqa: PLC0415

        for segment in self.segments(topic, partition, start, end):
            wanted = OffsetRange(topic, partition, start, segment.last + 1 if end is None else end)
            for batch in self.file_batches(segment.path):
                yield from events_of(within(batch, [wanted]))

    def file_batches(self, name: str) -> "Iterator[pa.RecordBatch]":
        """Yield the events of one container file, in file order, as `EVENTS`. Raises ArchiveError if it is damaged."""
        from replicator.sources.archive.containers import read_batches  # noqa: PLC0415

        return read_batches(self.content(name), f"{self.storage.location}/{name}")

    def file_events(self, name: str) -> Iterator[Event]:
        """Yield what `file_batches` does, as events."""
        from replicator.sources.archive.containers import events_of  # noqa: PLC0415

        return chain.from_iterable(map(events_of, self.file_batches(name)))


def whole_file(storage: Storage, ref: FileRef) -> bytes:
    """Return a file of an archive, whose size and checksum are compared with the index. Raises ArchiveError."""
    try:
        content = storage.read(ref.path)
    except OSError as error:
        raise _missing(storage, ref.path, error) from error
    if len(content) != ref.bytes:
        raise _wrong_size(storage, ref.path, len(content), ref.bytes)
    if ref.sha256 is not None and hashlib.sha256(content).hexdigest() != ref.sha256:
        raise ArchiveError(
            f"{storage.location}/{ref.path} is damaged: its content does not match its checksum", RESTORE
        )
    return content


def _missing(storage: Storage, name: str, error: OSError) -> ArchiveError:
    return ArchiveError(
        f"{storage.location}: {name} belongs to the archive but cannot be read ({error.strerror or error})",
        _COPY_AGAIN,
    )


def _wrong_size(storage: Storage, name: str, size: int, wanted: int) -> ArchiveError:
    return ArchiveError(
        f"{storage.location}: {name} has {size} bytes, the archive's index says {wanted}", _COPY_AGAIN
    )


def load_manifest(storage: Storage) -> Manifest:
    """Load the manifest of an archive. Raises ArchiveError if there is none."""
    manifest = find_manifest(storage)
    if manifest is None:
        raise ArchiveError(
            f"{storage.location} is not an event archive: it has no {MANIFEST_NAME}",
            "Give the directory that `replicator record --to DIR` wrote.",
        )
    return manifest


def find_manifest(storage: Storage) -> Manifest | None:
    """Load the manifest of an archive; None if there is no archive. Raises ArchiveError if it cannot be read."""
    name = f"{storage.location}/{MANIFEST_NAME}"
    try:
        content = storage.read(MANIFEST_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArchiveError(f"cannot read {name}: {error}") from error
    return parse_manifest(_decoded(content, name), name)


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ArchiveError(f"{name} is damaged: {error}", RESTORE) from error
