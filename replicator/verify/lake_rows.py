"""Compute canonical forms, row texts, hashes and checksums of rows of the lake, by column with Arrow and NumPy.

The results are those of the SQL expressions in `canonical`.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from replicator.errors import SchemaError
from replicator.schema.types.table import Form
from replicator.verify.canonical import MODULUS, ComparedColumn, LakeColumn, measured
from replicator.verify.mysql_json import mysql_json

_SEPARATOR: Final = pa.scalar(b"|", pa.large_binary())
_LACKING: Final = pa.scalar(b"\\N", pa.large_binary())
"""The form of NULL in a column that must not have it."""
_DOUBLE_BYTES: Final = 8
_DIGEST_WORDS: Final = 4
"""Number of 64-bit words of a SHA-256."""
_PRINTED_SCALE: Final = 6
"""Arrow writes decimals of a larger scale with an exponent."""
_MICRO_DIGITS: Final = 6
_CUT_FRACTIONS: Final = (1, 2, 4, 5)
"""Numbers of digits that no unit of Arrow has."""

Row = tuple[bytes | None, ...]
"""The canonical forms of columns of a row."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """Number of some rows, and their combined hashes."""

    rows: int = 0
    hash: int = 0

    @classmethod
    def of_source(cls, rows: Any, combined: Any) -> "Checksum":
        """Return what MySQL's driver returns for COUNT and `combined_hash`."""
        number = (
            int.from_bytes(combined, "big") if isinstance(combined, bytes) else int(combined or 0) % MODULUS
        )
        return cls(int(rows), number)


def no_rows(mirror: Table, columns: Sequence[ComparedColumn]) -> pa.Table:
    """Return a table without rows that has the columns of a mirror."""
    schema = mirror.schema().select(*(column.lake for column in columns))
    return schema_to_pyarrow(schema, include_field_ids=False).empty_table()


def forms(rows: pa.Table, columns: Sequence[LakeColumn]) -> list[pa.Array]:
    """Return the canonical forms of columns, as large_binary; null for NULL.

    Raises:
        SchemaError: a column is missing, or its type in the lake has no such form.
    """
    return [_form_of(rows, column) for column in columns]


def _form_of(rows: pa.Table, column: LakeColumn) -> pa.Array:
    if column.lake not in rows.schema.names:
        raise SchemaError(f"the lake has no column {column.lake}")
    values = rows.column(column.lake).combine_chunks()
    try:
        if column.form is Form.CLOCK:
            return _clock(values, column.fraction)
        return _FORMS[column.form](values)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise SchemaError(
            f"values of type {values.type} in column {column.lake} cannot be compared with {column.declared}"
        ) from error


def _text(values: pa.Array) -> pa.Array:
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise TypeError("not a text")
    return values.cast(pa.large_binary())


def _bytes(values: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        raise TypeError("not bytes")
    return values.cast(pa.large_binary())


def _digits(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        return _decimals(values)
    elif not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise TypeError("not a number")
    return values.cast(pa.large_string()).cast(pa.large_binary())


def _decimals(values: pa.Array) -> pa.Array:
    """Return decimals with all digits of their scale, without an exponent."""
    scale = values.type.scale
    if 0 <= scale <= _PRINTED_SCALE:
        return values.cast(pa.large_string()).cast(pa.large_binary())
    texts = [None if value is None else f"{value:f}".encode() for value in values.to_pylist()]
    return pa.array(texts, pa.large_binary())


def _days(values: pa.Array) -> pa.Array:
    return values.cast(pa.date32()).view(pa.int32()).cast(pa.large_string()).cast(pa.large_binary())


def _micros(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
    elif not pa.types.is_integer(kind):
        raise TypeError("not a time")
    return values.cast(pa.large_string()).cast(pa.large_binary())


def _clock(values: pa.Array, fraction: int) -> pa.Array:
    """Return dates and times as MySQL shows them, with `fraction` digits behind the point."""
    if pa.types.is_timestamp(values.type):
        # Without its zone, which is UTC.
        values = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64()).view(pa.timestamp("us"))
        unit = {0: "s", 3: "ms"}.get(fraction, "us")
        # A value with more digits differs from all of MySQL.
        with suppress(pa.ArrowInvalid):
            values = values.cast(pa.timestamp(unit))
    elif not pa.types.is_date(values.type):
        raise TypeError("not a time")
    texts = values.cast(pa.large_string())
    if fraction in _CUT_FRACTIONS:
        texts = _cut(texts, _MICRO_DIGITS - fraction)
    return texts.cast(pa.large_binary())


def _cut(texts: pa.Array, digits: int) -> pa.Array:
    """Return texts without their last digits, if these are zeros."""
    if not pc.all(pc.ends_with(texts, "0" * digits)).as_py():
        return texts
    return pc.utf8_slice_codeunits(texts, 0, -digits)


def _doubles(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        raise TypeError("not a float")
    # Adding zero makes 0 of -0.
    numbers = pc.add(values.cast(pa.float64()), 0.0)
    return numbers.view(pa.binary(_DOUBLE_BYTES)).cast(pa.binary()).cast(pa.large_binary())


def _json(values: pa.Array) -> pa.Array:
    texts = [None if text is None else mysql_json(text).encode() for text in values.to_pylist()]
    return pa.array(texts, pa.large_binary())


def _floats(values: pa.Array) -> pa.Array:
    return pa.array([_vector(value) for value in values.to_pylist()], pa.large_binary())


def _vector(value: Sequence[float] | None) -> bytes | None:
    return None if value is None else np.asarray(value, "<f4").tobytes().hex().upper().encode()


_FORMS: Final[Mapping[Form, Callable[[pa.Array], pa.Array]]] = {
    Form.DIGITS: _digits,
    Form.DAYS: _days,
    Form.MICROS: _micros,
    Form.DOUBLE: _doubles,
    Form.TEXT: _text,
    Form.BYTES: _bytes,
    Form.JSON: _json,
    Form.FLOATS: _floats,
}


def row_texts(arrays: Sequence[pa.Array], columns: Sequence[LakeColumn]) -> pa.Array:
    """Return the row texts of canonical forms."""
    pairs = list(zip(columns, arrays, strict=True))
    parts = [array if column.nullable else pc.fill_null(array, _LACKING) for column, array in pairs]
    lengths = {column.source for column in measured(columns)}
    parts += [_lengths(array) for column, array in pairs if column.source in lengths]
    nulls = [array.is_null() for column, array in pairs if column.nullable]
    if nulls:
        flags = np.stack([np.asarray(null) for null in nulls], axis=1).astype(np.uint8) + ord("0")
        parts.append(_fixed(flags))
    return pc.binary_join_element_wise(*parts, _SEPARATOR, null_handling="skip")


def _lengths(texts: pa.Array) -> pa.Array:
    return pc.binary_length(texts).cast(pa.large_string()).cast(pa.large_binary())


def _fixed(flags: "np.ndarray[Any, np.dtype[np.uint8]]") -> pa.Array:
    """Return the rows of a matrix of bytes."""
    rows, width = flags.shape
    buffer = pa.py_buffer(np.ascontiguousarray(flags).tobytes())
    fixed = pa.Array.from_buffers(pa.binary(width), rows, [None, buffer])
    return fixed.cast(pa.binary()).cast(pa.large_binary())


def hashes(texts: pa.Array) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Return the hashes of row texts."""
    sha256 = hashlib.sha256
    digests = b"".join([sha256(text).digest() for text in texts.to_pylist()])
    return np.frombuffer(digests, ">u8").reshape(-1, _DIGEST_WORDS)[:, 0].astype(np.uint64)


def hash_rows(rows: pa.Table, columns: Sequence[LakeColumn]) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Return the hash of each row. Raises SchemaError as `forms`."""
    return hashes(row_texts(forms(rows, columns), columns))
