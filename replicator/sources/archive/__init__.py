"""Event archives: a change log kept as a directory of Avro container files.

`manifest.json` lists the contents of the directory and is always written last, so that readers see only
complete files. `format` has the types, `ArchiveReader` and `ArchiveWriter` the two directions.
"""

from replicator.sources.archive.format import Event, Manifest, PartitionEntry, Segment
from replicator.sources.archive.reader import ArchiveReader, read_events
from replicator.sources.archive.writer import ArchiveWriter

__all__ = ["ArchiveReader", "ArchiveWriter", "Event", "Manifest", "PartitionEntry", "Segment", "read_events"]
