"""Read checksums and rows of a mirror at one snapshot, in batches of bounded size."""

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType

from replicator.consumer.files import FileReader, FilesGone, planned_files
from replicator.errors import LakeError
from replicator.verify.chunks import Chunks, ChunkSums, KeyRange
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import forms, hashes, row_texts
from replicator.verify.ordered_keys import Numbers

_SLICE_ROWS: Final = 16_384
_END: Final = object()
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LakeSide:
    """Reads a mirror.

    Attributes:
        table: the table.
        mirror: its mirror; the snapshot that is current when it was loaded is read.
        go_on: called between batches; it raises if reading must end.
    """

    table: ComparedTable
    mirror: Table
    go_on: Callable[[], None] = lambda: None

    def add_checksums(self, chunks: Chunks, sums: ChunkSums, within: KeyRange | None = None) -> int:
        """Add all rows to the checksums of their chunks. Return the number of rows read.

        Files that have no keys in `within` are left out.

        Raises:
            LakeError: as `batches`.
            SchemaError: a column is missing, or has a type that cannot be compared.
        """
        read = 0
        with closing(_ahead(self._texts(chunks, within))) as parts:
            for rows, numbers, texts in parts:
                read += rows
                sums.add(numbers, hashes(texts))
        return read

    def _texts(self, chunks: Chunks, within: KeyRange | None) -> Iterator[tuple[int, Numbers, pa.Array]]:
        """Yield the number of rows read, and the chunk and the row text of those that are in a chunk."""
        columns = self.table.hashed
        for batch in self.batches(within):
            # Arrays of this size are reused by the allocator, and stay in the cache of the processor.
            for start in range(0, batch.num_rows, _SLICE_ROWS):
                rows = batch.slice(start, _SLICE_ROWS)
                numbers = chunks.numbers(rows)
                inside = numbers >= 0
                kept = rows if inside.all() else rows.filter(pa.array(inside))
                yield rows.num_rows, numbers[inside], row_texts(forms(kept, columns), columns)

    def rows_in(self, chunks: Chunks, within: KeyRange | None = None) -> pa.Table:
        """Return the rows of some chunks.

        Raises:
            LakeError, SchemaError: as `add_checksums`.
        """
        found = []
        for rows in self.batches(within):
            inside = chunks.numbers(rows) >= 0
            if inside.any():
                found.append(rows.filter(pa.array(inside)))
        return pa.concat_tables(found) if found else self._reader().arrow_schema.empty_table()

    def batches(self, within: KeyRange | None = None) -> Iterator[pa.Table]:
        """Yield all rows, with the compared columns.

        Raises:
            UnsupportedChange: the mirror has equality deletes, which PyIceberg cannot read.
            LakeError: the snapshot was deleted while it was read.
        """
        reader, snapshot = self._reader(), self.mirror.current_snapshot()
        try:
            for task in () if snapshot is None else planned_files(self.mirror, snapshot.snapshot_id):
                if within is not None and not self._overlaps(task.file, within):
                    continue
                deletes = sorted(task.delete_files, key=lambda file: file.file_path)
                for part in reader.batches(task.file, deletes):
                    self.go_on()
                    if part.num_rows:
                        yield part
        except FilesGone as error:
            raise LakeError(
                f"the snapshot of {'.'.join(self.mirror.name())} was deleted while it was read",
                "check again; keep snapshots for longer ([maintenance] snapshot_age)",
            ) from error

    def _reader(self) -> FileReader:
        schema = self.mirror.schema()
        names = {field.name for field in schema.fields}
        return FileReader.of(
            self.mirror, schema.select(*(c.lake for c in self.table.columns if c.lake in names))
        )

    def _overlaps(self, file: DataFile, within: KeyRange) -> bool:
        """Return whether a file may have keys in a range, by the bounds of the first key column."""
        field = self.mirror.schema().find_field(self.table.ranges[0].lake)
        lower, upper = (_bound(field, bounds) for bounds in (file.lower_bounds, file.upper_bounds))
        behind = upper is not None and within.after is not None and upper < within.after[0]
        before = lower is not None and within.upto is not None and lower > within.upto[0]
        return not behind and not before


def _bound(field: NestedField, bounds: Mapping[int, bytes] | None) -> Any:
    """Return a bound of the values of a column in a file; None if it is not known."""
    found = None if not bounds else bounds.get(field.field_id)
    try:
        return (
            None
            if found is None or not isinstance(field.field_type, PrimitiveType)
            else from_bytes(field.field_type, found)
        )
    except struct.error:  # the file has a narrower type than the column has now
        return None


def _ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the items of an iterator, which runs in a thread of its own and is one item ahead.

    Close the result if it is not read to its end: the thread then ends with the item that it computes.
    """
    with ThreadPoolExecutor(1, "ahead") as pool:
        following = pool.submit(next, items, _END)
        while (item := following.result()) is not _END:
            following = pool.submit(next, items, _END)
            yield cast("Item", item)
