"""Read the files of an archive in Spark's Python workers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive.format import FileRef
from replicator.sources.archive.reader import decode_records, whole_file
from replicator.sources.archive.storage import Storage
from replicator.sources.change_log import RECORDS

_BATCH: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
"""Number of records, and the size of their values, that become one batch of Arrow."""


@dataclass(frozen=True, slots=True)
class FileShare:
    """The blocks of a file whose number modulo `of` is `number`."""

    file: FileRef
    number: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """What one Spark task reads; it can be pickled."""

    storage: Storage
    shares: tuple[FileShare, ...]
    ranges: tuple[OffsetRange, ...]

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, as `RECORDS`.

        Raises:
            ArchiveError: a file is missing or damaged.
        """
        found, size = list[Mapping[str, Any]](), 0
        for record in self._records():
            found.append(record)
            size += len(record["value"] or b"")
            if len(found) >= _BATCH or size >= _BATCH_BYTES:
                yield _batch(found)
                found, size = [], 0
        if found:
            yield _batch(found)

    def _records(self) -> Iterator[Mapping[str, Any]]:
        wanted = {(r.topic, r.partition): r for r in self.ranges}
        left = sum(r.count for r in self.ranges)
        for share in self.shares:
            content, name = whole_file(self.storage, share.file), f"{self.storage.location}/{share.file.path}"
            for record in decode_records(content, name, share.number, share.of):
                r = wanted.get((record["topic"], record["partition"]))
                if r is not None and r.start <= record["offset"] < r.end:
                    yield record
                    left -= 1
                    if not left:
                        # Of few records at its beginning, the rest of a file is not decoded.
                        return


def _batch(records: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    columns = [pa.array([record[field.name] for record in records], field.type) for field in RECORDS]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def parts_of(
    storage: Storage, files: Sequence[FileRef], ranges: Sequence[OffsetRange], tasks: int
) -> list[ArchivePart]:
    """Divide files among at most `tasks` parts: their blocks too, if there are fewer files."""
    each = max(tasks // max(len(files), 1), 1)
    shares = [FileShare(file, number, each) for file in files for number in range(each)]
    count = min(tasks, len(shares))
    own = (shares[len(shares) * i // count : len(shares) * (i + 1) // count] for i in range(count))
    return [ArchivePart(storage, tuple(part), tuple(ranges)) for part in own]
