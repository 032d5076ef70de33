"""Read the files of an archive in Spark's Python workers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive.containers import read_batches, within
from replicator.sources.archive.format import FileRef
from replicator.sources.archive.reader import whole_file
from replicator.sources.archive.storage import Storage
from replicator.sources.change_log import RECORDS

_COLUMNS: Final = ("topic", *RECORDS.names)


@dataclass(frozen=True, slots=True)
class FileShare:
    """The parts of a file (see `read_batches`) whose number modulo `of` is `number`."""

    file: FileRef
    number: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """What one Spark task reads; it can be pickled."""

    storage: Storage
    shares: tuple[FileShare, ...]
    ranges: tuple[OffsetRange, ...]

    def __call__(self, prefixes: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the records of the ranges, as `RECORDS`. Values are whole.

        Raises:
            ArchiveError: a file is missing or damaged.
        """
        left = sum(r.count for r in self.ranges)
        for share in self.shares:
            content, name = whole_file(self.storage, share.file), f"{self.storage.location}/{share.file.path}"
            for batch in read_batches(content, name, share.number, share.of, columns=_COLUMNS):
                found = within(batch, self.ranges)
                left -= found.num_rows
                if found.num_rows:
                    yield found.select(RECORDS.names)
                if not left:
                    # Of few records at its beginning, the rest of a file is not decoded.
                    return


def parts_of(
    storage: Storage, files: Sequence[FileRef], ranges: Sequence[OffsetRange], tasks: int
) -> list[ArchivePart]:
    """Divide files among at most `tasks` parts: also the parts of a file, if there are fewer files."""
    each = max(tasks // max(len(files), 1), 1)
    shares = [FileShare(file, number, each) for file in files for number in range(each)]
    count = min(tasks, len(shares))
    own = (shares[len(shares) * i // count : len(shares) * (i + 1) // count] for i in range(count))
    return [ArchivePart(storage, tuple(part), tuple(ranges)) for part in own]
