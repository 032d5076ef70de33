"""Event archives: a change log kept as a directory of Avro container files.

`manifest.json` says what a directory holds and is always written last, so that a reader sees whole files
only. `format` has the types, `ArchiveReader` and `ArchiveWriter` the two directions.
"""

from replicator.archive.format import Event, Manifest, PartitionEntry, Segment
from replicator.archive.reader import ArchiveReader, read_events
from replicator.archive.writer import ArchiveWriter

__all__ = ["ArchiveReader", "ArchiveWriter", "Event", "Manifest", "PartitionEntry", "Segment", "read_events"]
