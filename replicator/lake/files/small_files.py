"""Remember the small files that this process wrote last, and write them again together with newer ones.

Each small batch adds a data file and a delete file. The process knows which rows of these files were deleted since:
only its own commits did that. So it merges the files on the driver, without planning a scan and without a Spark job:
a commit absorbs the newest of them, and maintenance merges the others.

So the number of small files grows with the logarithm of the number of commits, as in a log-structured merge tree, and
no commit is needed for that alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.data_files import FilePositions, WrittenDeletes, joined
from replicator.lake.files.driver_files import WrittenData, read_data
from replicator.lake.files.partitions import PartitionRows, label_of

SMALL_BYTES: Final = 2_000_000
"""Larger files are merged by Spark."""
SMALL_DELETES: Final = 500_000
"""Delete files with more positions are merged by Spark."""
OWN_FILE: Final = 5_000
"""A data file with at least this number of deleted rows gets a delete file of its own when delete files are merged."""
MOST_FILES: Final = 200
"""Data files, and delete files of other data files, that a process remembers of a table."""
MOST_CONTENT: Final = 2_000_000
"""Content of data files that a process keeps of a table, in bytes."""
DATA_RATIO: Final = 3
"""A commit absorbs data files with at most this multiple of the rows of all newer files."""
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

    In a table with partitions, each partition is treated as a table of its own: only files of the same partition become
    one file.

    Attributes:
        data: data files, in the order in which they were written.
        deletes: delete files, in the same order. Only they delete rows of `data`.
        early: the part of the usual number of commits and files that the first merge does not wait for, at most half.
            It differs between tables: if all of them change in each batch, their merges must not be due after the same
            one.
        commits: how many commits were made since the last merge.
    """

    head: int | None
    data: list[WrittenData] = field(default_factory=list)
    deletes: list[WrittenDeletes] = field(default_factory=list)
    early: float = 0.0
    commits: int = 0

    def to_absorb(self, rows: Mapping[str, int], positions: Mapping[str, int]) -> AbsorbedFiles:
        """Return the files that a commit should absorb which adds rows and deletes positions of others.

        These are the newest files of each partition, as long as each is not much larger than all that is newer. So
        equal commits leave a number of files that grows with the logarithm of theirs, and write each row about as
        often.

        Args:
            rows: label of a partition → number of rows.
            positions: label of a partition → number of positions.
        """
        data, shared = _by_partition(self.data), _by_partition(self._shared_deletes())
        newest = [
            file
            for label, count in rows.items()
            for file in _newest(data.get(label, ()), count, lambda file: file.rows, DATA_RATIO)
        ]
        newest_deletes = [
            file
            for label, count in positions.items()
            for file in _newest(shared.get(label, ()), count, _count, DELETES_RATIO)
        ]
        return self._with_useless_deletes(newest, [*newest_deletes, *self._own_deletes(newest_deletes)])

    def counts(self) -> tuple[int, int]:
        """Return the numbers of data files and delete files that count for a merge."""
        return len(self.data), len(self._shared_deletes())

    def due_at(self, usual: int) -> int:
        """Return after how many commits, and with how many files, the next merge is due: at first fewer than usual."""
        return max(2, usual - int(self.early * usual))

    def to_merge(self, most: int, delete_ratio: float) -> AbsorbedFiles:
        """Return the files of the partitions that have at least `most` small data files or delete files.

        Delete files of a single data file do not count. A partition also needs a merge if more than `delete_ratio` of
        the rows of its small data files are deleted.
        """
        data, deletes = _by_partition(self.data), _by_partition(self.deletes)
        shared, gone = _by_partition(self._shared_deletes()), self.deleted(file.path for file in self.data)
        labels = [
            label
            for label in {**data, **shared}
            if max(len(data.get(label, ())), len(shared.get(label, ()))) >= most
            or _deleted_share(data.get(label, ()), gone) > delete_ratio
        ]
        if not labels:
            return AbsorbedFiles()
        return self._with_useless_deletes(
            [file for label in labels for file in data.get(label, ())],
            [file for label in labels for file in deletes.get(label, ())],
        )

    def deleted(self, paths: Iterable[str]) -> dict[str, Positions]:
        """Return path → deleted positions, each once and in ascending order, for the files among `paths`."""
        pieces: dict[str, list[Positions]] = {path: [] for path in paths}
        for deletes in self.deletes:
            for found in deletes.positions:
                if found.file.path in pieces:
                    pieces[found.file.path].append(found.positions)
        return {path: np.unique(np.concatenate(parts)) for path, parts in pieces.items() if parts}

    def commit(self, changes: SmallChanges, head: int) -> None:
        """Record the files of the commit with the snapshot `head`."""
        gone = {id(file) for file in (*changes.absorbed.data, *changes.absorbed.deletes)}
        paths = changes.absorbed.paths
        self.head = head
        self.commits += 1
        self.data = [file for file in self.data if id(file) not in gone]
        self.deletes = [_without(file, paths) for file in self.deletes if id(file) not in gone]
        self.data += [replace(file, snapshot_id=head) for file in changes.data if file.size < SMALL_BYTES]
        self.deletes += [replace(file, snapshot_id=head) for file in changes.deletes]
        self._limit()

    def _limit(self) -> None:
        """Forget the oldest files of a table with many partitions; delete files of known data files must stay known."""
        self.data = _with_less_content(self.data[-MOST_FILES:])
        known = {file.path for file in self.data}
        oldest = len(self.deletes) - MOST_FILES
        self.deletes = [
            file
            for i, file in enumerate(self.deletes)
            if (i >= oldest and file.count < SMALL_DELETES) or not known.isdisjoint(_paths(file))
        ]

    def _with_useless_deletes(
        self, data: Sequence[WrittenData], deletes: Sequence[WrittenDeletes]
    ) -> AbsorbedFiles:
        """Return files with the delete files that concern no other data files than `data`."""
        gone, chosen = {file.path for file in data}, {id(file) for file in deletes}
        return AbsorbedFiles(
            data, [file for file in self.deletes if id(file) in chosen or gone.issuperset(_paths(file))]
        )

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


def _deleted_share(files: Sequence[WrittenData], deleted: Mapping[str, Positions]) -> float:
    """Return the share of the rows of data files that is deleted."""
    rows = sum(file.rows for file in files)
    return sum(len(deleted.get(file.path, ())) for file in files) / rows if rows else 0.0


def _by_partition(files: Iterable[_File]) -> dict[str, list[_File]]:
    """Group files by the label of their partition, in their order."""
    found: dict[str, list[_File]] = {}
    for file in files:
        found.setdefault(label_of(file.partition), []).append(file)
    return found


def _paths(file: WrittenDeletes) -> set[str]:
    return {found.file.path for found in file.positions}


def _with_less_content(files: Sequence[WrittenData]) -> list[WrittenData]:
    """Return files of which only the newest have their content, `MOST_CONTENT` together; others can be read again."""
    size = 0
    found = []
    for file in reversed(files):
        size += len(file.content or b"")
        found.append(file if size <= MOST_CONTENT or file.content is None else replace(file, content=None))
    return found[::-1]


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

    def known(self, namespace: str, name: str) -> SmallFiles | None:
        """Return the files of a table after the newest commit of this process; others may have committed since."""
        return self._tables.get((namespace, name))

    def of(self, table: LakeTable) -> SmallFiles | None:
        """Return the files for `table` as it was loaded; None if another commit was made since."""
        known = self.known(table.namespace, table.name)
        return known if known is not None and known.head == table.snapshot_id else None

    def committed(
        self, table: LakeTable, before: int | None, changes: SmallChanges, head: int | None
    ) -> None:
        """Record a commit of files after the snapshot `before`; `head` is None if its snapshot is not known."""
        if head is None:
            self.forget(table)
            return
        known = self._tables.get((table.namespace, table.name))
        if known is None or known.head != before:
            early = crc32(f"{table.namespace}.{table.name}".encode()) / 2**33
            known = self._tables[table.namespace, table.name] = SmallFiles(head, early=early)
        known.commit(changes, head)
        if any(file.count >= SMALL_DELETES for file in known.deletes):
            # Their positions in the known data files would take too much memory.
            self.forget(table)

    def merged(self, table: LakeTable, before: int, changes: SmallChanges, head: int | None) -> None:
        """Record a merge as `committed`; the next one waits for the usual number of commits."""
        self.committed(table, before, changes, head)
        if (known := self.known(table.namespace, table.name)) is not None:
            known.commits, known.early = 0, 0.0

    def forget(self, table: LakeTable) -> None:
        """Discard the files of a table, because a commit changed it in another way."""
        self._tables.pop((table.namespace, table.name), None)


@dataclass(frozen=True, slots=True)
class Absorption:
    """What a commit writes in place of small files and of its own rows and deletes.

    Attributes:
        rows: the new rows, each partition with the remaining rows of the data files that it removes; None if the driver
            does not write the new rows.
        positions: the positions to delete in all other data files.
        files: the files that the commit removes.
    """

    rows: Sequence[PartitionRows] | None
    positions: Sequence[FilePositions]
    files: AbsorbedFiles = field(default_factory=AbsorbedFiles)


def absorb(
    table: LakeTable,
    small: SmallFiles | None,
    rows: Sequence[PartitionRows] | None,
    positions: Sequence[FilePositions],
) -> Absorption:
    """Choose the small files that a commit absorbs.

    Args:
        table: the table; `small` are its small files, None if they are not known.
        small: see above.
        rows: the new rows, by partition; None if the driver does not write them.
        positions: the positions of the rows that the commit deletes, each data file once, with its partition.
    """
    # A commit that only inserts stays an append, which others can read incrementally. The rows of a table with row
    # lineage have ids, which the driver does not know.
    if small is None or not positions or table.has_deletion_vectors:
        return Absorption(rows, positions)
    added = {label_of(part.partition): part.rows.num_rows for part in rows or ()}
    deleted = Counter[str]()
    for found in positions:
        deleted[label_of(found.file.partition)] += len(found.positions)
    files = small.to_absorb(added, deleted)
    if rows is not None and files.data:
        together = _with_older(table, rows, files, _deleted(small, files, positions))
        if together is None:
            files = small.to_absorb({}, deleted)
        else:
            rows = together
    gone = files.paths
    kept = [found for found in positions if found.file.path not in gone]
    return Absorption(rows, joined([*files.positions, *kept]) if files.deletes else kept, files)


def _with_older(
    table: LakeTable, rows: Sequence[PartitionRows], files: AbsorbedFiles, deleted: Mapping[str, Positions]
) -> list[PartitionRows] | None:
    """Return new rows, each partition after the remaining rows of its absorbed files.

    None if Arrow cannot convert them.
    """
    together = []
    for part in rows:
        label = label_of(part.partition)
        older = [file for file in files.data if label_of(file.partition) == label]
        remaining = remaining_rows(table, older, deleted)
        if remaining is None:
            return None
        together.append(replace(part, rows=pa.concat_tables([*remaining, part.rows])))
    return together


def remaining_rows(
    table: LakeTable, files: Sequence[WrittenData], deleted: Mapping[str, Positions]
) -> list[pa.Table] | None:
    """Return the rows of each data file, as the table has them, without those at `deleted` (path → positions).

    None if Arrow cannot convert them.
    """
    parts = []
    for file in files:
        rows = read_data(table, file)
        if rows is None:
            return None
        parts.append(_without_rows(rows, deleted.get(file.path)))
    return parts


def in_manifests(table: LakeTable, files: Sequence[WrittenData] | Sequence[WrittenDeletes]) -> list[Any]:
    """Return Iceberg's objects of files, with the manifests in which they are: Iceberg then searches only these."""
    found = []
    for file in files:
        path = str(file.file.location())
        method = "addedDataFiles" if isinstance(file, WrittenData) else "addedDeleteFiles"
        snapshot = None if file.snapshot_id is None else table.java.snapshot(file.snapshot_id)
        added = [] if snapshot is None else getattr(snapshot, method)(table.java.io())
        found.append(next((new for new in added if str(new.location()) == path), file.file))
    return found


def _deleted(
    small: SmallFiles, files: AbsorbedFiles, positions: Sequence[FilePositions]
) -> dict[str, Positions]:
    """Return data file path → the positions that are deleted, by earlier commits and by `positions`."""
    deleted, gone = small.deleted(files.paths), files.paths
    for found in positions:
        if (path := found.file.path) in gone:
            earlier = deleted.get(path)
            deleted[path] = found.positions if earlier is None else np.union1d(earlier, found.positions)
    return deleted


def _without_rows(rows: pa.Table, positions: Positions | None) -> pa.Table:
    if positions is None:
        return rows
    kept = np.ones(rows.num_rows, bool)
    kept[positions] = False
    return rows.filter(pa.array(kept))
