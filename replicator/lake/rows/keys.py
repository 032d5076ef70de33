"""Hash row keys to 128 bits, and find by such a hash where the row is: every kind of key needs the same space.

Any two of 100 million different keys have equal hashes with a probability of about 1e-23. The hash depends on a secret
seed: whoever chooses keys cannot choose keys with equal hashes.

It is a log-structured merge tree in a single process. Each `put` adds a sorted run; runs are merged so that each is at
least twice as large as the next. A lookup searches the runs, the newest first, and the first hit counts. Large runs are
in files without a name, mapped into memory: the operating system keeps what fits, and deletes them with the process.
"""

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replicator.errors import LakeUnavailable
from replicator.model.types import LakeType

Words = npt.NDArray[np.uint64]
"""One number of 64 bits for each row."""

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xD1B54A32D192ED03)
_DIGEST_BYTES: Final = 16
_VARIABLE: Final = frozenset({"string", "binary"})


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """The hashes of some keys: `high` and `low` have 64 bits each."""

    high: Words
    low: Words

    def __len__(self) -> int:
        return len(self.high)


class KeyHasher:
    """Hashes keys of columns of the given lake types. Equal keys have equal hashes only within one hasher."""

    def __init__(self, types: Sequence[LakeType], seed: bytes | None = None) -> None:
        self._types = tuple(types)
        self._seed = secrets.token_bytes(32) if seed is None else seed
        lanes = np.frombuffer(blake2b(self._seed, digest_size=_DIGEST_BYTES).digest(), np.uint64)
        self._high, self._low = lanes

    def hash(self, keys: pa.Table) -> KeyHashes:
        """Hash the rows of `keys`; its columns are those of the key, in order.

        Raises:
            pyarrow.ArrowInvalid: a value does not fit the column's lake type.
        """
        high = np.full(keys.num_rows, self._high, np.uint64)
        low = np.full(keys.num_rows, self._low, np.uint64)
        for column, lake_type in zip(keys.columns, self._types, strict=True):
            array = column.combine_chunks()
            before = high, low
            for words in self._digests(array) if lake_type.name in _VARIABLE else _fixed(array, lake_type):
                high = _mix(high ^ words)
                low = _mix(low + words * _FACTOR)
            if array.null_count:
                missing = pc.is_null(array).to_numpy(zero_copy_only=False)
                # Mixed twice, as no value of one word is.
                high = np.where(missing, _mix(_mix(before[0] ^ _NULL)), high)
                low = np.where(missing, _mix(_mix(before[1] ^ _NULL)), low)
        return KeyHashes(high, low)

    def _digests(self, array: pa.Array) -> list[Words]:
        seed = self._seed
        digests = b"".join(
            blake2b(b"" if value is None else value, digest_size=_DIGEST_BYTES, key=seed).digest()
            for value in array.cast(pa.large_binary()).to_pylist()
        )
        return _pairs(digests, len(array))


def _fixed(array: pa.Array, lake_type: LakeType) -> list[Words]:
    """Return the words of values of fixed width; any for null."""
    if lake_type.name == "decimal":
        wide = array.cast(pa.decimal128(38, lake_type.scale))
        content = memoryview(wide.buffers()[1])
        words = _pairs(content, wide.offset + len(wide))
        return [word[wide.offset :] for word in words]
    if lake_type.name == "date":
        array = array.cast(pa.int32())
    elif lake_type.name in ("timestamp", "timestamptz"):
        array = array.cast(pa.timestamp("us", array.type.tz))
    return [array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)]


def _pairs(content: bytes | memoryview, count: int) -> list[Words]:
    """Return the two words of each of `count` values of 16 bytes."""
    words = np.frombuffer(content, np.uint64, 2 * count)
    return [words[0::2], words[1::2]]


def _mix(words: Words) -> Words:
    """Distribute the bits of each word over all its bits; two words never become equal.

    The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


UNKNOWN: Final = np.uint64(2**64 - 1)
"""What `find` returns for a key that was never put."""
DELETED: Final = np.uint64(2**64 - 2)
"""The location of a key whose row was deleted."""

ENTRY_BYTES: Final = 24
"""Size of an entry: two words of the hash, and the location."""
_GROWTH: Final = 2
_MAPPED: Final = 1 << 20
"""Runs of at least this many entries are in files."""
_PIECE: Final = 4 << 20
"""Number of entries that are merged at once; it bounds the memory of a merge."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries with different hashes, sorted by `high`."""

    high: Words
    low: Words
    locations: Words

    def __len__(self) -> int:
        return len(self.high)

    def piece(self, start: int, end: int) -> "_Run":
        return _Run(self.high[start:end], self.low[start:end], self.locations[start:end])


class LocationIndex:
    """Locations by key hash. Not for several threads at once.

    Attributes:
        folder: where large runs are stored; None for the system's folder of temporary files.
        is_complete: keys that are not in the index have no row, so that deleted keys need not be kept.
    """

    def __init__(self, folder: Path | None = None, *, is_complete: bool = False) -> None:
        self.folder = folder
        self.is_complete = is_complete
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        """Return the number of entries: at least that of the keys, at most twice as many and a few."""
        return sum(len(run) for run in self._runs)

    def put(self, keys: KeyHashes, locations: Words) -> None:
        """Set the location of each key. If a key occurs twice, the first one counts.

        Raises:
            LakeUnavailable: the folder has no space; the index can no longer be used.
        """
        if not len(keys):
            return
        given = _Run(keys.high, keys.low, locations)
        self._runs.append(_deduplicated(given, given.piece(0, 0), drop_deleted=False))
        while len(self._runs) > 1 and len(self._runs[-2]) < _GROWTH * len(self._runs[-1]):
            self._merge_last()

    def compact(self) -> None:
        """Merge all runs, so that `len` is the number of keys, with deleted ones if those are kept."""
        while len(self._runs) > 1:
            self._merge_last()

    def find(self, keys: KeyHashes) -> Words:
        """Return the location of each key: `UNKNOWN` if it was never put, `DELETED` if its row was deleted."""
        found = np.full(len(keys), UNKNOWN)
        # Sorted lookups visit neighbouring parts of a run one after the other.
        left = np.argsort(keys.high)
        for run in reversed(self._runs):
            if not len(left):
                break
            hits = _search(run, keys.high[left], keys.low[left])
            found[left] = hits
            left = left[hits == UNKNOWN]
        return found

    def _merge_last(self) -> None:
        newer, older = self._runs.pop(), self._runs.pop()
        drop_deleted = self.is_complete and not self._runs
        self._runs.append(self._merged(newer, older, drop_deleted=drop_deleted))

    def _merged(self, newer: _Run, older: _Run, *, drop_deleted: bool) -> _Run:
        most = len(newer) + len(older)
        result = self._allocate(most)
        end = 0
        for piece in _pieces(newer, older):
            kept = _deduplicated(*piece, drop_deleted=drop_deleted)
            start, end = end, end + len(kept)
            result.high[start:end] = kept.high
            result.low[start:end] = kept.low
            result.locations[start:end] = kept.locations
        return result.piece(0, end)

    def _allocate(self, count: int) -> _Run:
        if count < _MAPPED:
            return _Run(*(np.empty(count, np.uint64) for _ in range(3)))
        try:
            with tempfile.TemporaryFile(dir=self.folder, prefix="replicator-index-") as file:
                # Without this, a full disk would end the process when it writes to the memory.
                os.posix_fallocate(file.fileno(), 0, ENTRY_BYTES * count)
                words = np.memmap(file, np.uint64, "r+", shape=(3, count))
        except OSError as error:
            raise LakeUnavailable(
                f"the index of row locations cannot be stored: {error}",
                "free space in mirror.state_dir, or set apply.max_index_size to a lower value",
            ) from error
        return _Run(*words)


def _search(run: _Run, high: Words, low: Words) -> Words:
    """Return the locations of hashes in one run; `UNKNOWN` for those that it lacks."""
    found = np.full(len(high), UNKNOWN)
    at = np.searchsorted(run.high, high)
    left = np.arange(len(high))
    while True:
        inside = at[left] < len(run)
        left = left[inside]
        left = left[run.high[at[left]] == high[left]]
        if not len(left):
            return found
        same = run.low[at[left]] == low[left]
        found[left[same]] = run.locations[at[left[same]]]
        # Half of the hash is equal: the entry may be one of the next.
        left = left[~same]
        at[left] += 1


def _pieces(newer: _Run, older: _Run) -> Iterator[tuple[_Run, _Run]]:
    """Split two runs at the same hashes into pairs of few entries; entries of one hash stay together."""
    count = 1 + (len(newer) + len(older)) // _PIECE
    # Hashes are distributed evenly.
    bounds = [np.uint64(2**64 * i // count) for i in range(1, count)]
    cuts = [[0, *(int(np.searchsorted(run.high, b)) for b in bounds), len(run)] for run in (newer, older)]
    for i in range(count):
        yield newer.piece(cuts[0][i], cuts[0][i + 1]), older.piece(cuts[1][i], cuts[1][i + 1])


def _deduplicated(newer: _Run, older: _Run, *, drop_deleted: bool) -> _Run:
    """Sort and merge entries in memory. Of entries of the same key, only the newest is kept."""
    high, low = (np.concatenate(pair) for pair in ((newer.high, older.high), (newer.low, older.low)))
    # Stable, so that newer entries stay before older ones; it is fast for parts that are sorted already.
    order = np.argsort(high, kind="stable")
    same_high = high[order][1:] == high[order][:-1]
    if np.any(same_high & (low[order][1:] != low[order][:-1])):
        # Two keys whose hashes are half equal; their entries may alternate.
        order = np.lexsort((low, high))
    high, low = high[order], low[order]
    locations = np.concatenate((newer.locations, older.locations))[order]
    kept = np.ones(len(high), bool)
    kept[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    if drop_deleted:
        kept &= locations != DELETED
    return _Run(high[kept], low[kept], locations[kept])
