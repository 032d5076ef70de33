"""Remember the small files that this process wrote last, so that it can merge them itself.

Each small batch adds a data file and a delete file. The process knows which rows of these files were deleted since:
only its own commits did that. So it merges the files on the driver, without planning a scan and without a Spark job.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from replicator.lake.catalog import LakeTable
from replicator.lake.data_files import FilePositions, WrittenDeletes
from replicator.lake.driver_files import WrittenData

SMALL_BYTES: Final = 2_000_000
"""Larger files are merged by Spark."""
SMALL_DELETES: Final = 500_000
"""Delete files with more positions are merged by Spark."""
OWN_FILE: Final = 5_000
"""A data file with so many deleted rows gets a delete file of its own when delete files are merged."""

Positions = npt.NDArray[np.int64]


@dataclass(slots=True)
class SmallFiles:
    """The small files of a table that this process wrote, for the snapshot `head`.

    Attributes:
        data: data files, in the order in which they were written.
        deletes: delete files, in the same order. Only they delete rows of `data`.
    """

    head: int | None
    data: list[WrittenData] = field(default_factory=list)
    deletes: list[WrittenDeletes] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of data files, or of delete files if those are more; without those of a single data file."""
        shared = [file for file in self.deletes if len(file.positions) > 1 or file.count < OWN_FILE]
        return max(len(self.data), len(shared))

    def deleted(self, paths: Iterable[str]) -> dict[str, Positions]:
        """Return path → deleted positions, each once and in ascending order, for the files among `paths`."""
        wanted = set(paths)
        return {path: found for path, found in self._positions().items() if path in wanted}

    def kept_deletes(self, paths: Iterable[str]) -> list[FilePositions]:
        """Return the positions that the delete files delete in data files other than `paths`."""
        removed = set(paths)
        files = {p.file.path: p.file for d in self.deletes for p in d.positions}
        found = self._positions()
        return [FilePositions(files[path], found[path]) for path in sorted(found) if path not in removed]

    def _positions(self) -> dict[str, Positions]:
        pieces: dict[str, list[Positions]] = {}
        for deletes in self.deletes:
            for found in deletes.positions:
                pieces.setdefault(found.file.path, []).append(found.positions)
        return {path: np.unique(np.concatenate(parts)) for path, parts in pieces.items()}


class SmallFileLog:
    """The small files of all tables. Several threads may use it, each for different tables."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], SmallFiles] = {}

    def of(self, table: LakeTable) -> SmallFiles | None:
        """Return the files for `table` as it was loaded; None if another commit was made since."""
        known = self._tables.get((table.namespace, table.name))
        return known if known is not None and known.head == table.snapshot_id else None

    def committed(
        self,
        table: LakeTable,
        before: int | None,
        data: Sequence[WrittenData],
        deletes: Sequence[WrittenDeletes],
        head: int | None,
    ) -> None:
        """Record a commit of these files after the snapshot `before`; `head` is None if its snapshot is not known."""
        known = self._tables.get((table.namespace, table.name))
        if known is not None and known.head != before:
            known = None
        if head is None or any(file.count >= SMALL_DELETES for file in deletes):
            # Unknown positions could be in the known data files.
            self.forget(table)
            return
        if known is None:
            known = self._tables[table.namespace, table.name] = SmallFiles(head)
        known.head = head
        known.data += [file for file in data if file.size < SMALL_BYTES]
        known.deletes += deletes

    def merged(
        self,
        table: LakeTable,
        data: Sequence[WrittenData],
        deletes: Sequence[WrittenDeletes],
        head: int | None,
    ) -> None:
        """Record that all known files were replaced by these; `deletes` delete no rows of `data`."""
        self._tables[table.namespace, table.name] = SmallFiles(
            head,
            [file for file in data if file.size < SMALL_BYTES],
            [file for file in deletes if file.count < SMALL_DELETES],
        )

    def forget(self, table: LakeTable) -> None:
        """Discard the files of a table, because a commit changed it in another way."""
        self._tables.pop((table.namespace, table.name), None)
