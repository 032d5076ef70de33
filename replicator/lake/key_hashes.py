"""Hash row keys to 128 bits, so that an index needs the same space for every kind of key.

Any two of 100 million different keys have equal hashes with a probability of about 1e-23. The hash depends on a secret
seed: whoever chooses keys cannot choose keys with equal hashes.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
