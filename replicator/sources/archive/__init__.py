"""Event archives: a change log kept as a folder of Avro container files, on a disk or in an object store.

`manifest.json` and the pages of its index list the contents of the folder. The manifest is always written last, so that
readers see only complete files. `format` has the types and `documents` their JSON formats, `storage` the folder, and
`ArchiveReader` and `ArchiveWriter` the two directions. `moments` finds the part of an archive up to a moment of the
source.
"""

from replicator.sources.archive.format import Event, FileEntry, Manifest, PartitionEntry, Segment
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import Storage, open_storage
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
