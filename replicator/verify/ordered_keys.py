"""Encode keys so that NumPy orders them as MySQL does: integers, and binary strings of a fixed length.

A key of one integer is an unsigned 64-bit number. Any other key is a binary string of a fixed length: eight bytes,
big-endian, for an integer.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.errors import SchemaError
from replicator.verify.canonical import ComparedColumn

Key = tuple[int | bytes, ...]
"""The values of the key columns: numbers, or bytes of the column's length."""
Numbers: TypeAlias = np.ndarray[Any, Any]
_SIGN: Final = np.uint64(1 << 63)
_MODULUS: Final = 1 << 64


def keys_of_rows(rows: pa.Table, columns: Sequence[ComparedColumn]) -> Numbers:
    """Return the encoded keys of rows of the lake.

    Raises:
        SchemaError: a column has another type than in the source.
    """
    return _joined([_of_lake(rows.column(c.lake).combine_chunks(), c) for c in columns])


def encoded_keys(keys: Sequence[Key | None], columns: Sequence[ComparedColumn]) -> Numbers:
    """Return encoded keys; None is the smallest one."""
    return _joined(
        [_of_values([None if k is None else k[i] for k in keys], c) for i, c in enumerate(columns)]
    )


def key_value(value: Any, column: ComparedColumn) -> int | bytes:
    """Return a value of a key column as MySQL's driver returns it."""
    return int(value) if column.width is None else bytes(value)


def key_text(value: int | bytes) -> str:
    """Return a value of a key column as text."""
    return value.hex().upper() if isinstance(value, bytes) else str(value)


def key_as_text(value: int | bytes) -> str:
    """Return a value of a key column as text that tells its type; bytes are hexadecimal, behind ``x``."""
    return f"x{value.hex()}" if isinstance(value, bytes) else str(value)


def key_of_text(text: str) -> int | bytes:
    """Read what `key_as_text` returned."""
    return bytes.fromhex(text[1:]) if text.startswith("x") else int(text)


def key_of_texts(texts: Sequence[str], columns: Sequence[ComparedColumn]) -> Key | None:
    """Return a key of `key_as_text` for each column; None if it is none of these columns."""
    try:
        key = tuple(map(key_of_text, texts))
    except ValueError:
        return None
    fits = len(key) == len(columns) and all(
        isinstance(value, bytes) == (column.width is not None)
        for value, column in zip(key, columns, strict=True)
    )
    return key if key and fits else None


def _of_lake(values: pa.Array, column: ComparedColumn) -> Numbers:
    try:
        if column.width is not None:
            return np.array(values.cast(pa.binary()).fill_null(b"").to_pylist(), f"S{column.width}")
        target = pa.uint64() if column.is_unsigned else pa.int64()
        whole = pc.fill_null(values.cast(target), 0).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, TypeError) as error:
        raise SchemaError(
            f"values of type {values.type} in column {column.lake} are no keys of type {column.declared}"
        ) from error
    found: Numbers = whole if column.is_unsigned else whole.view(np.uint64) ^ _SIGN
    return found


def _of_values(values: Sequence[int | bytes | None], column: ComparedColumn) -> Numbers:
    if column.width is not None:
        return np.array([value or b"" for value in values], f"S{column.width}")
    numbers = np.array([int(value or 0) % _MODULUS for value in values], np.uint64)
    return numbers if column.is_unsigned else numbers ^ _SIGN


def _joined(columns: Sequence[Numbers]) -> Numbers:
    if len(columns) == 1:
        return columns[0]
    octets: Numbers = np.concatenate([_octets(column) for column in columns], axis=1)
    joined: Numbers = np.ascontiguousarray(octets).view(f"S{octets.shape[1]}").ravel()
    return joined


def _octets(column: Numbers) -> Numbers:
    """Return the bytes of each value as a row."""
    fixed = column.astype(">u8") if column.dtype == np.uint64 else column
    octets: Numbers = fixed.view(np.uint8)
    return octets.reshape(len(fixed), fixed.dtype.itemsize)
