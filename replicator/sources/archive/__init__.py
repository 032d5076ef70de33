"""Event archives: a change log kept as a folder of Parquet files, on a disk or in an object store.

`manifest.json` and the pages of its index list the contents of the folder. The manifest is always written last, so that
readers see only complete files. `format` has the types and `documents` their JSON formats, `containers` the files with
events, `storage` the folder, and `ArchiveReader` and `ArchiveWriter` the two directions. `pending` has the events that
are not written yet, and `spans` their positions. `moments` finds the part of an archive up to a moment of the source.
"""

from typing import TYPE_CHECKING

from replicator.sources.archive.format import Event, FileEntry, Manifest, PartitionEntry, Segment
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import Storage, open_storage

if TYPE_CHECKING:
    from replicator.sources.archive.writer import ArchiveWriter

__all__ = [
    "ArchiveReader",
    "ArchiveWriter",
    "Event",
    "FileEntry",
    "Manifest",
    "PartitionEntry",
    "Segment",
    "Storage",
    "open_storage",
]


def __getattr__(name: str) -> object:
    # It imports PyArrow, which commands that only look at an archive do not need.
    if name == "ArchiveWriter":
        from replicator.sources.archive.writer import ArchiveWriter  # noqa: PLC0415

        return ArchiveWriter
    raise AttributeError(name)
