"""Remember the small files that this process wrote last, so that it can merge them itself.

Each small batch adds a data file and a delete file. The process knows which rows of these files were deleted since:
only its own commits did that. So it merges the files on the driver, without planning a scan and without a Spark job:
a commit absorbs the newest of them, and maintenance merges the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

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
DATA_RATIO: Final = 3
"""A commit absorbs data files with up to so many times as many rows as all that is newer."""
DELETES_RATIO: Final = 6
"""As `DATA_RATIO`, for the positions of delete files, which are cheaper to write and dearer to read."""

Positions = npt.NDArray[np.int64]
_File = TypeVar("_File", WrittenData, WrittenDeletes)


@dataclass(frozen=True, slots=True)
class AbsorbedFiles:
    """Small files that a commit removes, because it writes their rows and positions again, together with its own."""

    data: Sequence[WrittenData] = ()
    deletes: Sequence[WrittenDeletes] = ()

    def __bool__(self) -> bool:
        return bool(self.data or self.deletes)

    @property
    def paths(self) -> set[str]:
        """The paths of the data files."""
        return {file.path for file in self.data}

    @property
    def positions(self) -> list[FilePositions]:
        """The positions in other data files; a data file may occur more than once."""
        gone = self.paths
        return [p for file in self.deletes for p in file.positions if p.file.path not in gone]


@dataclass(frozen=True, slots=True)
class SmallChanges:
    """The files of a commit that the driver wrote; no other files of the commit delete rows of earlier files."""

    data: Sequence[WrittenData] = ()
    deletes: Sequence[WrittenDeletes] = ()
    absorbed: AbsorbedFiles = field(default_factory=AbsorbedFiles)


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
        return max(len(self.data), len(self._shared_deletes()))

    @property
    def deleted_share(self) -> float:
        """The share of the rows of the data files that is deleted."""
        rows = sum(file.rows for file in self.data)
        deleted = sum(len(found) for found in self.deleted(file.path for file in self.data).values())
        return deleted / rows if rows else 0.0

    def to_absorb(self, rows: int, positions: int) -> AbsorbedFiles:
        """Return the files that a commit should absorb which adds `rows` rows and deletes `positions` others.

        These are the newest files, as long as each is not much larger than all that is newer. So equal commits leave
        a number of files that grows with the logarithm of theirs, and write each row about as often.
        """
        data = _newest(self.data, rows, lambda file: file.rows, DATA_RATIO)
        gone = {file.path for file in data}
        shared = _newest(self._shared_deletes(), positions, _count, DELETES_RATIO)
        chosen = {id(file) for file in (*shared, *self._own_deletes(shared))}
        deletes = [
            file
            for file in self.deletes
            if id(file) in chosen or all(p.file.path in gone for p in file.positions)
        ]
        return AbsorbedFiles(data, deletes)

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

    def commit(self, changes: SmallChanges, head: int) -> None:
        """Record the files of the commit with the snapshot `head`."""
        gone = {id(file) for file in (*changes.absorbed.data, *changes.absorbed.deletes)}
        paths = changes.absorbed.paths
        self.head = head
        self.data = [file for file in self.data if id(file) not in gone]
        self.deletes = [_without(file, paths) for file in self.deletes if id(file) not in gone]
        self.data += [replace(file, snapshot_id=head) for file in changes.data if file.size < SMALL_BYTES]
        self.deletes += [replace(file, snapshot_id=head) for file in changes.deletes]

    def _positions(self) -> dict[str, Positions]:
        pieces: dict[str, list[Positions]] = {}
        for deletes in self.deletes:
            for found in deletes.positions:
                pieces.setdefault(found.file.path, []).append(found.positions)
        return {path: np.unique(np.concatenate(parts)) for path, parts in pieces.items()}

    def _shared_deletes(self) -> list[WrittenDeletes]:
        """Return the delete files without those that have many positions of one data file."""
        return [file for file in self.deletes if not _is_own(file)]

    def _own_deletes(self, shared: Sequence[WrittenDeletes]) -> list[WrittenDeletes]:
        """Return the delete files of single data files that get another one if `shared` is absorbed."""
        counts = Counter[str]()
        for file in shared:
            counts.update({p.file.path: len(p.positions) for p in file.positions})
        found: list[WrittenDeletes] = []
        for path, count in counts.items():
            if count >= OWN_FILE:
                own = [f for f in self.deletes if _is_own(f) and f.positions[0].file.path == path]
                found += _newest(own, count, _count, DELETES_RATIO)
        return found


def _is_own(file: WrittenDeletes) -> bool:
    return len(file.positions) == 1 and file.count >= OWN_FILE


def _count(file: WrittenDeletes) -> int:
    return file.count


def _newest(files: Sequence[_File], size: int, size_of: Callable[[_File], int], ratio: int) -> list[_File]:
    """Return the newest of `files`, each at most `ratio` times as large as `size` and those after it together."""
    found: list[_File] = []
    for file in reversed(files):
        if size_of(file) > ratio * size:
            break
        found.append(file)
        size += size_of(file)
    return found[::-1]


def _without(deletes: WrittenDeletes, paths: set[str]) -> WrittenDeletes:
    """Return a delete file without its positions in data files that no longer exist."""
    if not any(p.file.path in paths for p in deletes.positions):
        return deletes
    return replace(deletes, positions=[p for p in deletes.positions if p.file.path not in paths])


class SmallFileLog:
    """The small files of all tables. Several threads may use it, each for different tables."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], SmallFiles] = {}

    def of(self, table: LakeTable) -> SmallFiles | None:
        """Return the files for `table` as it was loaded; None if another commit was made since."""
        known = self._tables.get((table.namespace, table.name))
        return known if known is not None and known.head == table.snapshot_id else None

    def committed(
        self, table: LakeTable, before: int | None, changes: SmallChanges, head: int | None
    ) -> None:
        """Record a commit of files after the snapshot `before`; `head` is None if its snapshot is not known."""
        known = self._tables.get((table.namespace, table.name))
        if known is not None and known.head != before:
            known = None
        if head is None or any(file.count >= SMALL_DELETES for file in changes.deletes):
            # Unknown positions could be in the known data files.
            self.forget(table)
            return
        if known is None:
            known = self._tables[table.namespace, table.name] = SmallFiles(head)
        known.commit(changes, head)

    def merged(
        self,
        table: LakeTable,
        data: Sequence[WrittenData],
        deletes: Sequence[WrittenDeletes],
        head: int,
    ) -> None:
        """Record that all known files were replaced by these; `deletes` delete no rows of `data`."""
        few = [file for file in deletes if file.count < SMALL_DELETES]
        merged = self._tables[table.namespace, table.name] = SmallFiles(head)
        merged.commit(SmallChanges(data, few), head)

    def forget(self, table: LakeTable) -> None:
        """Discard the files of a table, because a commit changed it in another way."""
        self._tables.pop((table.namespace, table.name), None)
