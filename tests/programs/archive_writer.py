"""Append events 0 to 99 of one partition to the archive in the folder given, as far as it lacks them."""

import sys

from replicator.sources.archive import format as archive_format
from replicator.sources.archive.pending import Records
from replicator.sources.archive.writer import ArchiveWriter

archive_format.PAGE_SEGMENTS = 2  # type: ignore[misc]
with ArchiveWriter(sys.argv[1], topic_prefix="shop", encoding="json", max_events=10) as writer:
    for offset in range(writer.end_offset("shop.shop.t", 0) or 0, 100):
        writer.extend("shop.shop.t", 0, Records([offset], [1], [None], [b"%d" % offset], [()]))
