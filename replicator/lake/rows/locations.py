"""Know where the rows of a table are, so that a batch need not search the table for the rows that it deletes.

For each table, the process keeps an index from key to location. It begins empty: a key that is not in it must be
searched in a snapshot of the table, the base, because all changes since the base are in the index. Once searching has
taken as long as reading all keys would take, and before the first search of a small table, all keys are read into the
index, and nothing is searched any more.

The index is an optimization and never a source of truth. It is valid for one snapshot: the one that this process
committed last, or one with the same rows in other files. After a restart, or after a commit by another process that
changes rows, it begins empty again.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from replicator.lake.catalog.tables import LakeTable, lake_errors
from replicator.lake.files.data_files import FilePositions
from replicator.lake.files.partitions import DataFileRef
from replicator.lake.rows.keys import (
    DELETED,
    ENTRY_BYTES,
    UNKNOWN,
    KeyHasher,
    KeyHashes,
    LocationIndex,
    Words,
)
from replicator.model.types import LakeType

_REWRITE: Final = "replace"
"""The operation of a snapshot that rewrote files without changing rows; Iceberg's table spec, "Snapshots"."""


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """The files that rewrites added (Java objects) and that still exist, and the paths of those that they removed."""

    added: tuple[Any, ...]
    removed: set[str]


def rewritten_files(table: LakeTable, since: int) -> RewrittenFiles | None:
    """Return the files that were rewritten since the snapshot `since`.

    None if a commit since then changed rows instead of only rewriting files, or if `since` is not an ancestor of the
    current snapshot.
    """
    added: dict[str, Any] = {}
    removed: set[str] = set()
    with lake_errors(f"the snapshots of {table.namespace}.{table.name} cannot be read"):
        io, snapshot = table.java.io(), table.java.currentSnapshot()
        while snapshot is not None and int(snapshot.snapshotId()) != since:
            if snapshot.operation() != _REWRITE:
                return None
            added |= {str(file.location()): file for file in snapshot.addedDataFiles(io)}
            removed |= {str(file.location()) for file in snapshot.removedDataFiles(io)}
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.java.snapshot(parent)
    if snapshot is None:
        return None
    return RewrittenFiles(tuple(file for path, file in added.items() if path not in removed), removed)


KeyColumns = tuple[tuple[str, LakeType], ...]
"""Name and type of each key column of a table."""

_POSITION_BITS: Final = np.uint64(32)
"""Bits of a location for the position in the data file; the others are the number of the file."""
_ALWAYS_READ: Final = 200_000
"""A table without all its keys in the index forgets its locations if maintenance moved more rows than this."""


@dataclass(frozen=True, slots=True)
class ReadCost:
    """The seconds that Spark takes to read all keys of a table: a constant and a part for each row, on two cores.

    Up to `few` rows, they are read at once: mostly the driver can, in less time than a search takes.
    """

    constant: float = 0.3
    row: float = 1.1e-6
    few: int = 100_000

    def of(self, rows: int) -> float:
        """Return the seconds for a table of `rows` rows."""
        return 0.0 if rows <= self.few else self.constant + rows * self.row


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The keys of rows of a data file, and the positions of these rows in it; None if they are all rows, in order."""

    keys: pa.Table
    file: DataFileRef
    positions: Words | None = None


class KnownFiles:
    """The data files to which locations refer, with a number for each."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._files: dict[int, DataFileRef] = {}
        self._next = 0

    def number(self, file: DataFileRef) -> int:
        """Return the file's number; a new file gets one."""
        known = self._numbers.get(file.path)
        if known is None:
            known = self._numbers[file.path] = self._next
            self._files[known] = file
            self._next += 1
        return known

    def get(self, number: int) -> DataFileRef | None:
        """Return the file with a number; None if it was discarded."""
        return self._files.get(number)

    def discard(self, paths: Iterable[str]) -> None:
        """Discard files that are no longer part of the table."""
        for path in paths:
            number = self._numbers.pop(path, None)
            if number is not None:
                del self._files[number]


@dataclass(slots=True)
class RowLocations:
    """The locations of rows of one table.

    Attributes:
        key_columns: the columns of the keys.
        base: the snapshot in which keys that are not in the index are searched; None if they have no row.
        head: the snapshot for which the locations are valid.
        index: key → location.
        files: the data files of the locations.
        unread: data files (Java objects) whose rows must be put into the index before it is used.
        searched_s: seconds that searches have taken since the index began.
    """

    key_columns: KeyColumns
    base: int | None
    head: int | None
    index: LocationIndex
    hasher: KeyHasher
    files: KnownFiles = field(default_factory=KnownFiles)
    unread: list[Any] = field(default_factory=list)
    searched_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether a key that is not in the index has no row."""
        return self.base is None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(name for name, _ in self.key_columns)

    def hash(self, keys: pa.Table) -> KeyHashes:
        """Hash keys, given as columns in the order of `key_columns`."""
        return self.hasher.hash(keys)

    def find(self, keys: pa.Table) -> tuple[list[FilePositions], Words]:
        """Return the locations of those of `keys` that have a row, and the indexes of those that must be searched."""
        found = self.index.find(self.hash(keys))
        unknown = found == UNKNOWN
        searched = np.flatnonzero(unknown).astype(np.uint64) if not self.is_complete else _NONE
        return list(self._by_file(found[~unknown & (found != DELETED)])), searched

    def _by_file(self, locations: Words) -> Iterable[FilePositions]:
        ordered = np.sort(locations)
        numbers = ordered >> _POSITION_BITS
        positions = (ordered & np.uint64(2**32 - 1)).astype(np.int64)
        for number, start, count in zip(
            *np.unique(numbers, return_index=True, return_counts=True), strict=True
        ):
            # A file that is no longer part of the table needs no deletes.
            if (file := self.files.get(int(number))) is not None:
                yield FilePositions(file, positions[start : start + count])

    def put(self, keys: pa.Table, files: Words, positions: Words) -> None:
        """Set the location of each key, which must be different: the number of a file, and the position in it."""
        self.index.put(self.hash(keys), (files << _POSITION_BITS) | positions)

    def put_files(self, written: Sequence[FileKeys]) -> None:
        """Set the locations of the keys of files."""
        if not written:
            return
        counts = [found.keys.num_rows for found in written]
        numbers = np.array([self.files.number(found.file) for found in written], np.uint64)
        places = [
            np.arange(count, dtype=np.uint64) if found.positions is None else found.positions
            for found, count in zip(written, counts, strict=True)
        ]
        # Each call adds a run to the index.
        keys = pa.concat_tables([found.keys for found in written])
        self.put(keys, np.repeat(numbers, counts), np.concatenate(places))

    def deleted(self, keys: pa.Table) -> None:
        """Record that keys have no row."""
        self.index.put(self.hash(keys), np.full(keys.num_rows, DELETED))

    def rewritten(self, added: Sequence[Any], removed: set[str], head: int | None) -> bool:
        """Record that the rows of `removed` data files are now in the files `added`, in the snapshot `head`.

        Return False if these are too many rows to be read, compared with those in the index.
        """
        self.unread = [f for f in self.unread if str(f.location()) not in removed] + list(added)
        if not self.is_complete and sum(int(f.recordCount()) for f in self.unread) > _ALWAYS_READ:
            return False
        self.files.discard(removed)
        self.head = head
        return True


_NONE: Final[Words] = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows that a staged commit changes.

    Attributes:
        known: the locations before the commit.
        keys: each changed key.
        written: the keys of the new data files; None if they are not known.
        unread: the new data files, if `written` is None.
        removed: the paths of the data files whose remaining rows are among those of `written`.
    """

    known: RowLocations
    keys: pa.Table
    written: Sequence[FileKeys] | None
    unread: Sequence[Any] = ()
    removed: frozenset[str] = frozenset()


class RowLocationCache:
    """The row locations of all tables. Several threads may use it, each for different tables.

    `folder` is where large indexes are stored, `most_bytes` limits the size of all indexes together.
    """

    def __init__(
        self, folder: Path | None = None, most_bytes: int = 8_000_000_000, cost: ReadCost | None = None
    ) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._cost = cost or ReadCost()
        self._tables: OrderedDict[tuple[str, str], RowLocations] = OrderedDict()

    def of(self, table: LakeTable, key: tuple[str, ...]) -> RowLocations:
        """Return the locations for `table` as it was loaded; empty if they are not known for its snapshot."""
        columns = table.columns()
        key_columns = tuple((name, columns[name]) for name in key)
        name = (table.namespace, table.name)
        known = self._tables.get(name)
        if known is not None and known.key_columns == key_columns and _is_current(known, table):
            self._tables.move_to_end(name)
            return known
        self._tables.pop(name, None)
        return self._empty(table, key_columns, 0.0 if known is None else known.searched_s)

    def _empty(self, table: LakeTable, key_columns: KeyColumns, searched_s: float) -> RowLocations:
        base = None if table.is_empty else table.snapshot_id
        index = LocationIndex(self._folder, is_complete=base is None)
        hasher = KeyHasher([lake_type for _, lake_type in key_columns])
        return RowLocations(key_columns, base, table.snapshot_id, index, hasher, searched_s=searched_s)

    def is_worth_reading(self, known: RowLocations, rows: int) -> bool:
        """Return whether all keys of a table of `rows` rows should be read into its index.

        They should if searching has taken as long as reading them would, and if the index and its next merge do not
        exceed the limit.
        """
        fits = 2 * rows * ENTRY_BYTES <= self._most_bytes
        return not known.is_complete and fits and known.searched_s >= self._cost.of(rows)

    def new_index(self) -> LocationIndex:
        """Return an empty index for all keys of a table."""
        return LocationIndex(self._folder, is_complete=True)

    def forget(self, table: LakeTable) -> None:
        """Discard the locations of a table, because its columns changed."""
        self._tables.pop((table.namespace, table.name), None)

    def committed(self, table: LakeTable, changes: RowChanges, head: int | None) -> None:
        """Record that snapshot `head` was committed with `changes`; None if the snapshot is not known.

        Raises:
            LakeUnavailable: the index cannot be stored; it is discarded.
        """
        name, known = (table.namespace, table.name), changes.known
        # Should the index fail, it is no longer known.
        self._tables.pop(name, None)
        if head is None:
            return
        known.deleted(changes.keys)
        if changes.written is None:
            known.unread += changes.unread
        else:
            known.put_files(changes.written)
        known.files.discard(changes.removed)
        known.head = head
        self._tables[name] = known
        self._shrink()

    def merged(
        self,
        table: LakeTable,
        since: int,
        removed: set[str],
        written: Sequence[tuple[pa.Table, DataFileRef]],
        head: int,
    ) -> None:
        """Record that a commit after the snapshot `since` moved rows to new files.

        Args:
            table: the table.
            since, head: the snapshots before and after the commit.
            removed: paths of the files in which the rows were.
            written: the rows of each new file, with all columns of the table, and the file.
        """
        name = (table.namespace, table.name)
        known = self._tables.get(name)
        if known is None or known.head != since or not removed.isdisjoint(_paths(known.unread)):
            return
        if not all(set(known.names) <= set(rows.column_names) for rows, _ in written):
            return
        # Should the index fail, it is no longer known.
        self._tables.pop(name, None)
        known.put_files([FileKeys(rows.select(known.names), file) for rows, file in written])
        self._tables[name] = known
        known.files.discard(removed)
        known.head = head

    def _shrink(self) -> None:
        """Discard the locations of the tables that were not used for longest, until the limit is kept."""
        sizes = {name: len(known.index) * ENTRY_BYTES for name, known in list(self._tables.items())}
        excess = sum(sizes.values()) - self._most_bytes
        for name, size in sizes.items():
            if excess <= 0:
                return
            self._tables.pop(name, None)
            excess -= size


def _paths(files: Iterable[Any]) -> set[str]:
    return {str(file.location()) for file in files}


def _is_current(known: RowLocations, table: LakeTable) -> bool:
    """Return whether locations are valid for a table, or became so because commits since then only moved rows."""
    if known.base is not None and not table.has_snapshot(known.base):
        # Maintenance has deleted the snapshot, so that it cannot be searched.
        return False
    if known.head == table.snapshot_id:
        return True
    rewrites = None if known.head is None else rewritten_files(table, known.head)
    return rewrites is not None and known.rewritten(rewrites.added, rewrites.removed, table.snapshot_id)
