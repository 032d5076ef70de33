"""Tables for tests of checks: described without a server, with both sides in memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from replicator.model.table import TableId
from replicator.sources.mysql.table_rows import SourceTable, _column, _key_column
from replicator.verify.canonical import compared_column
from replicator.verify.chunks import (
    BucketChunks,
    Chunks,
    ChunkSums,
    KeyRange,
    RangeChunks,
)
from replicator.verify.compared_table import ComparedTable, _ranges
from replicator.verify.lake_rows import Checksum, Row, hash_rows
from replicator.verify.lake_side import LakeSide
from replicator.verify.later_changes import LaterChanges
from replicator.verify.row_comparison import rows_of as rows_of_forms
from replicator.verify.source_side import SourceSide
from replicator.verify.table_check import TableCheck
from tests.support.compared_rows import arrow_type


def described(columns: Mapping[str, Mapping[str, Any]], key: Sequence[str] = ()) -> ComparedTable:
    """Return a table with `columns`: name → values of information_schema.columns."""
    empty = dict.fromkeys(("charset", "digits", "scale", "fraction", "size"))
    rows = [
        {"name": name, "whole": values["kind"], "nullable": "YES", **empty, **values}
        for name, values in columns.items()
    ]
    found = tuple(_column(row) for row in rows)
    keys = tuple(_key_column(row) for name in key for row in rows if row["name"] == name)
    source = SourceTable(TableId("shop", "t"), found, keys, 10, 100, 200)
    compared = {c.column.name: compared_column(c, c.column.name) for c in found}
    return ComparedTable(
        source,
        tuple(compared.values()),
        tuple(compared[name] for name in key),
        _ranges(source, compared),
        declared_key=tuple(key),
    )


ORDERS = described(
    {
        "id": {"kind": "bigint", "nullable": "NO"},
        "line": {"kind": "int", "whole": "int unsigned", "nullable": "NO"},
        "note": {"kind": "varchar", "charset": "utf8mb4", "size": 100},
        "price": {"kind": "decimal", "whole": "decimal(20,8)", "digits": 20, "scale": 8},
        "document": {"kind": "json"},
    },
    ("id", "line"),
)
"""A table with a key of two integers."""
UUIDS = described(
    {
        "uid": {"kind": "binary", "whole": "binary(2)", "nullable": "NO"},
        "n": {"kind": "bigint", "whole": "bigint unsigned", "nullable": "NO"},
        "note": {"kind": "varchar", "charset": "utf8mb4", "size": 100},
    },
    ("uid", "n"),
)
"""A table with a key of bytes and an unsigned integer."""
NAMES = described(
    {
        "name": {"kind": "varchar", "charset": "utf8mb4", "size": 100, "nullable": "NO"},
        "size": {"kind": "double"},
    },
    ("name",),
)
"""A table whose key is a text."""
KEYLESS = described({"at": {"kind": "int"}, "note": {"kind": "varchar", "charset": "latin1", "size": 9}})
"""A table without a key."""


def rows_of(table: ComparedTable, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return rows with the types of the lake."""
    values = list(rows)
    return pa.table(
        {
            c.lake: pa.array([row[i] for row in values], arrow_type(c.type))
            for i, c in enumerate(table.columns)
        }
    )


def no_changes(table: ComparedTable) -> LaterChanges:
    """Return that nothing changed later."""
    none = np.zeros(0, bool)
    return LaterChanges(table, rows_of(table, ()), none, none, none)


def checksum_of(table: ComparedTable, rows: pa.Table) -> Checksum:
    """Return the checksum of rows."""
    sums = ChunkSums(1, distinct=table.is_distinct)
    sums.add(np.zeros(rows.num_rows, np.int64), hash_rows(rows, table.hashed))
    return sums[0]


@dataclass
class MemorySource:
    """The source, in memory. `asked` counts the rows that were fetched."""

    table: ComparedTable
    content: pa.Table
    rows_of_chunk: int = 7
    asked: int = 0

    def chunk_rows(self, _: KeyRange) -> int:
        return self.rows_of_chunk

    def ranges(self, within: KeyRange, rows: int) -> Iterator[KeyRange]:
        columns = [self.content.column(c.lake).to_pylist() for c in self.table.ranges]
        keys = sorted(zip(*columns, strict=True))
        inside = [
            k
            for k in keys
            if (within.after is None or k > within.after) and (within.upto is None or k <= within.upto)
        ]
        ends = inside[rows - 1 : -1 : rows]
        afters = [within.after, *ends]
        return (KeyRange(*pair) for pair in zip(afters, [*ends, within.upto], strict=True))

    def checksum(self, chunk: KeyRange) -> Checksum:
        return self._checksum(self._inside(chunk))

    def bucket_checksums(self, chunks: BucketChunks) -> dict[int, Checksum]:
        numbers = chunks.numbers(self.content)
        return {
            int(n): self._checksum(self.content.filter(pa.array(numbers == n))) for n in np.unique(numbers)
        }

    def rows(self, chunk: KeyRange | BucketChunks) -> Iterator[Row]:
        for row in rows_of_forms(self._inside(chunk), self.table.columns):
            self.asked += 1
            yield row

    def rows_with(self, keys: Sequence[Row]) -> Iterator[Row]:
        wanted = set(keys)
        inside = [key in wanted for key in rows_of_forms(self.content, self.table.key)]
        for row in rows_of_forms(self.content.filter(pa.array(inside, pa.bool_())), self.table.columns):
            self.asked += 1
            yield row

    def _checksum(self, rows: pa.Table) -> Checksum:
        return checksum_of(self.table, rows)

    def _inside(self, chunk: KeyRange | BucketChunks) -> pa.Table:
        chunks: Chunks = RangeChunks(self.table, (chunk,)) if isinstance(chunk, KeyRange) else chunk
        return self.content.filter(pa.array(chunks.numbers(self.content) >= 0))


@dataclass
class MemoryLake:
    """The mirror, in memory."""

    table: ComparedTable
    content: pa.Table

    def add_checksums(self, chunks: Chunks, sums: ChunkSums, within: KeyRange | None = None) -> int:
        rows = self._within(within)
        sums.add(chunks.numbers(rows), hash_rows(rows, self.table.hashed))
        return int(rows.num_rows)

    def rows_in(self, chunks: Chunks, within: KeyRange | None = None) -> pa.Table:
        rows = self._within(within)
        return rows.filter(pa.array(chunks.numbers(rows) >= 0))

    def _within(self, within: KeyRange | None) -> pa.Table:
        if within is None:
            return self.content
        numbers = RangeChunks(self.table, (within,)).numbers(self.content)
        return self.content.filter(pa.array(numbers >= 0))


def table_check(
    source: MemorySource, lake: MemoryLake, later: LaterChanges | None = None, **options: Any
) -> TableCheck:
    """Return the check of a table whose sides are in memory."""
    sides = cast("SourceSide", source), cast("LakeSide", lake)
    return TableCheck(source.table, *sides, later or no_changes(source.table), **options)
