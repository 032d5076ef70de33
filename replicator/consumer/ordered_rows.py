"""Deliver the rows of files in the order of the log, with limited memory.

Files of one commit have ranges of offsets that follow each other, but merged files overlap. Files whose ranges overlap
are read together; if they have too many rows, they are read once for their coordinates, and then range by range.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replicator.consumer.cursor import Offsets
from replicator.consumer.files import Coordinate, FileReader, LogFile, change_column_of
from replicator.consumer.plan import first_offset
from replicator.model.changelog import RowKind

MOST_ROWS: Final = 1_000_000
"""Number of rows that are sorted in memory at once, unless more have one coordinate."""
_FEW_ROWS: Final = 10_000
"""Small files are read together up to this number of rows."""
_RESTATED: Final = pa.array(["h", "r"])
"""`op` of rows without an event of their own, which come after the event before them."""

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """The changes to deliver.

    Attributes:
        after: the offsets from which on changes are delivered; partitions that are missing, from the beginning.
        before: the offsets up to which (exclusive) they are; None for all.
    """

    after: Offsets = field(default_factory=dict)
    before: Offsets | None = None

    def may_contain(self, file: LogFile) -> bool:
        """Return whether a file may have changes to deliver."""
        after, (lowest, _), (highest, last) = first_offset(self.after), file.first, file.last
        if highest - lowest >= len(after):
            return True
        partitions = range(lowest, highest + 1)
        return any(p not in after or last >= after[p] for p in partitions)

    def mask(self, partitions: _Numbers, offsets: _Numbers) -> npt.NDArray[np.bool_]:
        """Return which of the changes at these coordinates to deliver."""
        found = np.ones(len(partitions), bool)
        for partition, offset in first_offset(self.after).items():
            found &= (partitions != partition) | (offsets >= offset)
        if self.before is not None:
            ends = first_offset(self.before)
            inside = np.zeros(len(partitions), bool)
            for partition, offset in ends.items():
                inside |= (partitions == partition) & (offsets < offset)
            found &= inside
        return found


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows in the order of the log.

    Attributes:
        whole: whether all rows of each coordinate are in it.
    """

    rows: pa.Table
    whole: bool = True


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Reads the rows of files in the order of the log.

    Attributes:
        reader: reads the files, with the struct column.
        window: the changes to deliver.
        most_rows: see `MOST_ROWS`.
    """

    reader: FileReader
    window: Window = field(default_factory=Window)
    most_rows: int = MOST_ROWS

    @property
    def change(self) -> str:
        """The name of the struct column."""
        return change_column_of(self.reader.schema)

    def of(self, files: Sequence[LogFile]) -> Iterator[Piece]:
        """Yield the rows of files; no coordinate is divided, except one with more than `most_rows` rows."""
        wanted = [file for file in files if self.window.may_contain(file)]
        for cluster in _clusters(wanted, min(_FEW_ROWS, self.most_rows)):
            if sum(file.rows for file in cluster) <= self.most_rows:
                rows = self._sorted(self._wanted(self.reader.read(cluster)))
                if rows.num_rows:
                    yield Piece(rows)
            else:
                yield from self._by_range(cluster)

    def _by_range(self, files: Sequence[LogFile]) -> Iterator[Piece]:
        for first, end, count in self._ranges(files):
            inside = [file for file in files if file.last >= first and (end is None or file.first < end)]
            if count > self.most_rows:
                yield from self._in_file_order(inside, first, end)
                continue
            parts = [
                self._between(part, first, end) for file in inside for part in self.reader.batches(file.data)
            ]
            yield Piece(self._sorted(pa.concat_tables(parts)))

    def _ranges(self, files: Sequence[LogFile]) -> list[tuple[Coordinate, Coordinate | None, int]]:
        """Return ranges of coordinates, end exclusive, each with its number of rows, mostly below `most_rows`."""
        coordinates = replace(
            self, reader=replace(self.reader, schema=self.reader.schema.select(self.change))
        )
        found = coordinates.all_of(files)
        partitions, offsets = (np.concatenate([pair[i] for pair in found]) for i in (0, 1))
        if not len(partitions):
            return []
        order = np.lexsort((offsets, partitions))
        partitions, offsets = partitions[order], offsets[order]
        begins = _begins(partitions, offsets)
        sizes = np.diff(np.r_[begins, len(partitions)])
        cuts, size = [0], 0
        for i, rows in enumerate(sizes):
            if size and size + rows > self.most_rows:
                cuts.append(i)
                size = 0
            size += int(rows)
        starts = [(int(partitions[begins[i]]), int(offsets[begins[i]])) for i in cuts]
        rows_before = [int(begins[i]) for i in cuts] + [len(partitions)]
        ends: list[Coordinate | None] = [*starts[1:], None]
        return [
            (start, end, rows_before[i + 1] - rows_before[i])
            for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]

    def _in_file_order(
        self, files: Sequence[LogFile], first: Coordinate, end: Coordinate | None
    ) -> Iterator[Piece]:
        """Yield the rows of one coordinate that has very many, all of a re-read: one for each key, in any order."""
        for restated in (False, True):
            for file in files:
                for part in self.reader.batches(file.data):
                    rows = self._between(part, first, end)
                    found = rows.filter(pc.equal(self._is_restated(rows), restated))
                    if found.num_rows:
                        yield Piece(found, whole=False)

    def _between(self, rows: pa.Table, first: Coordinate, end: Coordinate | None) -> pa.Table:
        rows = self._wanted(rows)
        partitions, offsets = self.numbers(rows)
        inside = (partitions > first[0]) | ((partitions == first[0]) & (offsets >= first[1]))
        if end is not None:
            inside &= (partitions < end[0]) | ((partitions == end[0]) & (offsets < end[1]))
        return rows.filter(pa.array(inside))

    def all_of(self, files: Sequence[LogFile]) -> list[tuple[_Numbers, _Numbers]]:
        """Return the coordinates of all rows to deliver, unsorted."""
        return [self.numbers(self._wanted(part)) for file in files for part in self.reader.batches(file.data)]

    def _wanted(self, rows: pa.Table) -> pa.Table:
        mask = self.window.mask(*self.numbers(rows))
        return rows if mask.all() else rows.filter(pa.array(mask))

    def numbers(self, rows: pa.Table) -> tuple[_Numbers, _Numbers]:
        """Return the partitions and the offsets of rows."""
        return coordinates_of(rows, self.change)

    def _is_restated(self, rows: pa.Table) -> pa.ChunkedArray:
        op = pc.struct_field(rows.column(self.change), "op")
        return pc.fill_null(pc.is_in(op, _RESTATED.cast(op.type)), False)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        if rows.num_rows < 2:
            return rows
        partitions, offsets = self.numbers(rows)
        kind = pc.struct_field(rows.column(self.change), "kind")
        is_after = pc.not_equal(kind, pa.scalar(str(RowKind.UPDATE_BEFORE), kind.type))
        keys = (
            is_after.to_numpy(),
            self._is_restated(rows).to_numpy(),
            offsets,
            partitions,
        )
        return rows.take(pa.array(np.lexsort(keys)))


def coordinates_of(rows: pa.Table, change: str) -> tuple[_Numbers, _Numbers]:
    """Return the partitions and the offsets of rows with the struct column `change`."""
    struct = rows.column(change)
    found = (pc.struct_field(struct, name).cast(pa.int64()).to_numpy() for name in ("partition", "offset"))
    partitions, offsets = found
    return partitions, offsets


def _begins(partitions: _Numbers, offsets: _Numbers) -> _Numbers:
    """Return the index of the first row of each coordinate."""
    return np.flatnonzero(np.r_[True, (partitions[1:] != partitions[:-1]) | (offsets[1:] != offsets[:-1])])


def slices(piece: Piece, change: str, most: int) -> Iterator[Piece]:
    """Cut a piece into smaller ones of about `most` rows that divide no coordinate, unless it is divided already."""
    rows = piece.rows
    if not piece.whole:
        for start in range(0, rows.num_rows, most):
            yield Piece(rows.slice(start, most), whole=False)
        return
    begins = np.r_[_begins(*coordinates_of(rows, change)), rows.num_rows]
    start = 0
    while start < rows.num_rows:
        wanted = min(start + most, rows.num_rows)
        end = int(begins[np.searchsorted(begins, wanted)])
        yield Piece(rows.slice(start, end - start))
        start = end


def _clusters(files: Sequence[LogFile], few: int) -> Iterator[list[LogFile]]:
    """Group files, sorted by their first coordinate, so that the groups do not overlap.

    Files that do not overlap are in one group too, as long as it has at most `few` rows.
    """
    cluster: list[LogFile] = []
    last: Coordinate | None = None
    for file in files:
        is_apart = last is not None and file.first > last
        if is_apart and sum(known.rows for known in cluster) + file.rows > few:
            yield cluster
            cluster = []
            last = None
        cluster.append(file)
        last = file.last if last is None else max(last, file.last)
    if cluster:
        yield cluster
