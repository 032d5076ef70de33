"""Divide the rows of a table into chunks that both sides can tell: ranges of keys, or buckets of hashes.

Ranges need a key that begins with integers or with BINARY: MySQL orders texts by collations, which nothing else
computes. Rows of other tables go into buckets, by the CRC-32 of their key (without a key: of the whole row). A bucket
is no range of an index, so each look at some of them reads the whole table.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from replicator.model.common import quoted
from replicator.sources.mysql.table_rows import key_range
from replicator.verify.canonical import row_text
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import Checksum, forms, hash_rows, row_texts
from replicator.verify.ordered_keys import Key, Numbers, encoded_keys, key_text, keys_of_rows


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys behind `after` (None: from the first) up to and with `upto` (None: to the last)."""

    after: Key | None
    upto: Key | None

    def condition(self, table: ComparedTable) -> str:
        """Return the SQL condition."""
        key = table.range_key
        after, upto = (None if end is None else tuple(map(key_text, end)) for end in (self.after, self.upto))
        return key_range([quoted(k.name) for k in key], key, after, upto)


def keys_between(table: ComparedTable, first: int | None, last: int | None) -> KeyRange:
    """Return the keys whose first column, an integer, is from `first` to `last`; None is no bound."""
    least = 0 if table.ranges[0].is_unsigned else -(1 << 63)
    after = None if first is None or first <= least else table.last_key(first - 1)
    return KeyRange(after, None if last is None else table.last_key(last))


@dataclass(frozen=True, slots=True)
class RangeChunks:
    """Ranges of keys, in their order; there may be gaps."""

    table: ComparedTable
    ranges: tuple[KeyRange, ...]
    _lower: Numbers = field(init=False, repr=False, compare=False)
    _upper: Numbers = field(init=False, repr=False, compare=False)
    _is_open: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Encode the ends of the ranges."""
        first, last = self.ranges[0], self.ranges[-1]
        afters = [r.after for r in self.ranges[0 if first.after is not None else 1 :]]
        uptos = [r.upto for r in self.ranges[: None if last.upto is not None else -1]]
        object.__setattr__(self, "_lower", encoded_keys(afters, self.table.ranges))
        object.__setattr__(self, "_upper", encoded_keys(uptos, self.table.ranges))
        object.__setattr__(self, "_is_open", first.after is None)

    def __len__(self) -> int:
        return len(self.ranges)

    def numbers(self, rows: pa.Table) -> Numbers:
        """Return the number of the range of each row; -1 for a row in none."""
        keys = keys_of_rows(rows, self.table.ranges)
        # The range before whose upper end, and the last one behind whose lower end the key is.
        number = np.searchsorted(self._upper, keys, side="left")
        begun = np.searchsorted(self._lower, keys, side="left") - (0 if self._is_open else 1)
        return np.where((number == begun) & (number < len(self)), number, -1)


@dataclass(frozen=True, slots=True)
class BucketChunks:
    """Buckets of rows by a hash of their identity; `wanted` are those that are numbered, all if it is None."""

    table: ComparedTable
    buckets: int
    wanted: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return self.buckets if self.wanted is None else len(self.wanted)

    @property
    def bucket(self) -> str:
        """The SQL expression of the bucket of a row."""
        return f"(CRC32({row_text(self.table.identity)}) MOD {self.buckets})"

    def condition(self) -> str:
        """Return the SQL condition for the rows of the buckets."""
        if self.wanted is None:
            return "TRUE"
        return f"{self.bucket} IN ({', '.join(map(str, self.wanted))})"

    def numbers(self, rows: pa.Table) -> Numbers:
        """Return the number of the bucket of each row; -1 for a row in none of them."""
        identity = self.table.identity
        texts = row_texts(forms(rows, identity), identity).to_pylist()
        found = np.fromiter(map(zlib.crc32, texts), np.int64, len(texts)) % self.buckets
        return found if self.wanted is None else _places(found, self.wanted)


@dataclass(frozen=True, slots=True)
class ChosenKeys:
    """One chunk: the rows of a table with a key whose key is one of some.

    Attributes:
        hashes: the hashes of the keys, in order.
    """

    table: ComparedTable
    hashes: Numbers

    def __len__(self) -> int:
        return 1

    def numbers(self, rows: pa.Table) -> Numbers:
        """Return 0 for each row with such a key, -1 for the others."""
        found: Numbers = np.isin(hash_rows(rows, self.table.key), self.hashes).astype(np.int64) - 1
        return found


Chunks = RangeChunks | BucketChunks | ChosenKeys
"""Chunks, numbered from 0. `numbers` returns the number of that of each row of the lake, negative for a row in none."""


def _places(numbers: Numbers, wanted: Sequence[int]) -> Numbers:
    """Return the place of each number in `wanted`, -1 for others."""
    order = np.argsort(wanted)
    ordered = np.asarray(wanted, np.int64)[order]
    at = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
    return np.where(ordered[at] == numbers, order[at], -1)


class ChunkSums:
    """The checksum of each of some chunks, from rows in any order.

    `distinct` tells how hashes are combined: whether the rows of the source all differ.
    """

    def __init__(self, count: int, *, distinct: bool) -> None:
        self._distinct = distinct
        self._rows = np.zeros(count, np.int64)
        self._hashes = np.zeros(count, np.uint64)

    def add(self, numbers: Numbers, hashes: Numbers, sign: int = 1) -> None:
        """Add rows, or subtract them if `sign` is -1. `numbers` are their chunks; rows in none are left out."""
        inside = numbers >= 0
        if not inside.all():
            numbers, hashes = numbers[inside], hashes[inside]
        self._rows += sign * np.bincount(numbers, minlength=len(self._rows)).astype(np.int64)
        if self._distinct:
            np.bitwise_xor.at(self._hashes, numbers, hashes)
            return
        with np.errstate(over="ignore"):
            np.add.at(self._hashes, numbers, hashes if sign > 0 else np.uint64(0) - hashes)

    def __getitem__(self, number: int) -> Checksum:
        return Checksum(int(self._rows[number]), int(self._hashes[number]))
