"""Decode column values: arrays in wire form → arrays of the lake's types, with Arrow.

Debezium decodes text of the binlog with the character set of Java that MySQL's driver names for it. For seven sets,
Java has none, and the driver names a similar one: Cp852 for keybcs2, KOI8_R for koi8u, and Cp1252 for the others, also
for latin1. Of others, some characters differ, such as one of gbk, or bytes are unknown to MySQL, which shows them as
question marks. Snapshots read text that MySQL itself converts, which is right.

`misread_texts.json` has the characters that are decoded wrongly, and in the same order those that are meant: to which
MySQL 9.7 converts the bytes (``CONVERT(_hp8 X'A1' USING utf8mb4)``). Of sets that are `lossy`, further characters all
become `UNKNOWN_CHARACTER`, or several of it: rows with such text are read again from the source.
"""

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.arrow_types import arrow_type
from replicator.model.table import Column
from replicator.model.types import MISREAD_TEXTS, TIMESTAMPTZ, Encoding

_WIRE_TYPES: Final[Mapping[Encoding, pa.DataType]] = {
    Encoding.DAYS: pa.int32(),
    Encoding.MILLIS: pa.int64(),
    Encoding.MICROS: pa.int64(),
    Encoding.NANOS: pa.int64(),
    Encoding.TIME_MILLIS: pa.int64(),
    Encoding.TIME_NANOS: pa.int64(),
    Encoding.BASE64_DECIMAL: pa.binary(),
    Encoding.BASE64_BITS: pa.binary(),
    Encoding.FLAG: pa.string(),
    Encoding.LATIN1: pa.string(),
    Encoding.INSTANT_TEXT: pa.string(),
    Encoding.GEOMETRY: pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]),
}
_NAMES: Final[Mapping[str, str]] = {Encoding.CP1252: "latin1"}
"""Encoding → the character set of MySQL, if it has another name."""

_DECIMAL_BYTES: Final = 16
_DAY: Final = 86_400_000_000
_YEAR_0: Final = -719_528 * _DAY
_YEAR_9999: Final = 2_932_897 * _DAY - 1
"""The first and the last microsecond that MySQL can store, since 1970."""

_YEAR_1: Final = -719_162 * _DAY
"""The first microsecond of Python's calendar, since 1970."""

_WIDEST_NUMBER: Final = 28
"""Number of bytes of MySQL's largest decimal, which has 65 digits."""

_EWKB_SRID: Final = b"\x20"
"""The flag of EWKB is bit 29 of the type, whose highest byte is 0 otherwise."""


def cast_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values to another type; null for those that it does not hold."""
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return values.cast(kind)
    found = [pa.nulls(0, kind)]
    for i in range(len(values)):
        try:
            found.append(values.slice(i, 1).cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            found.append(pa.nulls(1, kind))
    return pa.concat_arrays(found)


def wire_type(column: Column) -> pa.DataType:
    """Return the type in which parsers return the values of a column: its wire form.

    Encodings that are base64 in JSON are bytes. Decimals in any other encoding are decimals already, and instants text.
    """
    if column.encoding is Encoding.PLAIN and column.type == TIMESTAMPTZ:
        return pa.string()
    return _WIRE_TYPES.get(column.encoding) or arrow_type(column.type)


def is_wide(column: Column) -> bool:
    """Return whether the column is a DECIMAL with too many digits for the lake, which stores it as text."""
    return column.size is not None and column.type.name == "string"


def decoded(values: pa.Array, column: Column) -> pa.Array:
    """Convert values in wire form to the column's lake type; null for those that the column cannot have."""
    decoder = _DECODERS.get(column.encoding)
    if decoder is not None:
        return decoder(values, column)
    if column.encoding in MISREAD_TEXTS:
        return corrected(values, column.encoding)
    return values


def _plain(values: pa.Array, column: Column) -> pa.Array:
    if column.type == TIMESTAMPTZ:
        return _instants(values, column)
    return _mapped(values, dict(column.respelt).get) if column.respelt else values


def _mapped(texts: pa.StringArray, change: Callable[[str], str | None]) -> pa.StringArray:
    """Return texts with `change` applied to each different one, which is kept if the result is None."""
    found = texts.dictionary_encode()
    changed = [text if (new := change(text)) is None else new for text in found.dictionary.to_pylist()]
    return pa.array(changed, pa.string()).take(found.indices)


def corrected(values: pa.StringArray, encoding: Encoding) -> pa.StringArray:
    """Return the text that the source has for a text of the binlog; `encoding` is one of `MISREAD_TEXTS`."""
    table, any_of_them = _translation(encoding)
    if not table:
        return values
    affected = pc.fill_null(pc.match_substring_regex(values, any_of_them), False)
    if not pc.any(affected).as_py():
        return values
    new = [text.translate(table) for text in values.filter(affected).to_pylist()]
    return pc.replace_with_mask(values, affected, pa.array(new, pa.string()))


@cache
def _translation(encoding: Encoding) -> tuple[Mapping[int, str], str]:
    """Return a table of characters for `str.translate`, and a pattern of a character that is in it."""
    characters = _characters()[_NAMES.get(encoding, encoding)]
    table: Mapping[int, Any] = str.maketrans(characters["decoded"], characters["meant"])
    return table, "[" + re.escape(characters["decoded"]) + "]"


@cache
def _characters() -> Mapping[str, Mapping[str, str]]:
    return dict(json.loads(Path(__file__).with_name("misread_texts.json").read_text(encoding="utf-8")))


def _instants(values: pa.StringArray, _: Column) -> pa.TimestampArray:
    """Read ISO texts of instants in the years 1 to 9999."""
    kind = arrow_type(TIMESTAMPTZ)
    dated = pc.if_else(pc.match_substring(values, "T"), values, pa.scalar(None, pa.string()))
    try:
        found = dated.cast(kind)
    except pa.ArrowInvalid:
        found = pa.array([_instant(text) for text in dated.to_pylist()], kind)
    micros = found.cast(pa.int64())
    return _where(found, pc.greater_equal(micros, _YEAR_1), pc.less_equal(micros, _YEAR_9999))


def _instant(text: str | None) -> datetime | None:
    try:
        found = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found


def _where(values: pa.Array, *conditions: pa.BooleanArray) -> pa.Array:
    """Return the values for which all conditions are true, else null."""
    for condition in conditions:
        values = pc.if_else(condition, values, pa.scalar(None, values.type))
    return values


def _of_mysql(values: pa.Array, unit: int) -> pa.Array:
    """Return times since 1970, in units of `unit` microseconds, that MySQL can store, else null."""
    first, last = (pa.scalar(year // unit, values.type) for year in (_YEAR_0, _YEAR_9999))
    return _where(values, pc.greater_equal(values, first), pc.less_equal(values, last))


def _thousandths(values: pa.Int64Array) -> pa.Int64Array:
    """Divide by 1000 in integers, rounded down."""
    return pa.array(np.floor_divide(values.fill_null(0).to_numpy(), 1000), pa.int64(), mask=_nulls(values))


def _nulls(values: pa.Array) -> Any:
    return values.is_null().to_numpy(zero_copy_only=False)


def _flags(values: pa.StringArray, _: Column) -> pa.Int32Array:
    texts = _mapped(values, {"true": "1", "false": "0"}.get)
    try:
        return texts.cast(pa.int32())
    except pa.ArrowInvalid:
        numbers = _where(texts, pc.match_substring_regex(texts, r"^-?\d{1,9}$"))
        return numbers.cast(pa.int32())


def _latin1(values: pa.StringArray, column: Column) -> pa.BinaryArray:
    """Return the bytes of texts that have only code points of bytes, padded to the column's length."""
    size = column.size or 0

    def raw(text: str | None) -> bytes | None:
        try:
            return None if text is None else text.encode("latin-1").ljust(size, b"\0")
        except UnicodeEncodeError:
            return None

    return pa.array(map(raw, values.to_pylist()), pa.binary(), size=len(values))


def _geometries(values: pa.StructArray, _: Column) -> pa.BinaryArray:
    """Return MySQL's little-endian WKB with the SRID after the type if it is not 0."""

    def ewkb(value: Mapping[str, Any] | None) -> bytes | None:
        if value is None or value["wkb"] is None:
            return None
        wkb, srid = bytes(value["wkb"]), int(value["srid"] or 0)
        if not srid:
            return wkb
        return wkb[:4] + _EWKB_SRID + (srid & 0xFFFFFFFF).to_bytes(4, "little") + wkb[5:]

    return pa.array(map(ewkb, values.to_pylist()), pa.binary(), size=len(values))


def of_binary_decimals(values: pa.BinaryArray, column: Column) -> pa.Array:
    """Convert big-endian two's complement bytes to decimals, or to text if the lake has no decimal of that many digits.

    Null for numbers with more digits than the column has.
    """
    if is_wide(column):
        return pa.array([_wide_number(v, column.size or 0) for v in values.to_pylist()], pa.string())
    precision, scale = column.type.precision, column.type.scale
    found = _decimal128(values, scale)
    limit = pa.scalar(10**precision - 1, pa.decimal128(38, 0))
    numbers = pa.Array.from_buffers(pa.decimal128(38, 0), len(found), found.buffers(), offset=found.offset)
    inside = _where(found, pc.less_equal(numbers, limit), pc.greater_equal(numbers, pc.negate(limit)))
    return inside.cast(arrow_type(column.type))


def _decimal128(values: pa.BinaryArray, scale: int) -> pa.Array:
    """Return numbers of at most 16 bytes; Arrow stores a decimal as 16 bytes, little-endian."""
    count = len(values)
    wide = np.zeros((count, _DECIMAL_BYTES), np.uint8)
    lengths = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + count]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    valid = (lengths > 0) & (lengths <= _DECIMAL_BYTES)
    for length in np.unique(lengths[valid]):
        rows = np.flatnonzero(lengths == length)
        digits = data[offsets[rows][:, None] + np.arange(length)]
        wide[rows, _DECIMAL_BYTES - length :] = digits
        negative = rows[digits[:, 0] >= 0x80]
        wide[negative, : _DECIMAL_BYTES - length] = 0xFF
    content = pa.py_buffer(np.ascontiguousarray(wide[:, ::-1]).tobytes())
    bitmap = pa.array(valid, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(pa.decimal128(38, scale), count, [bitmap, content])


def _wide_number(value: bytes | None, scale: int) -> str | None:
    if not value or len(value) > _WIDEST_NUMBER:
        return None
    return wide_text(int.from_bytes(value, "big", signed=True), scale)


def wide_text(unscaled: int, scale: int) -> str:
    """Return a decimal as MySQL shows it."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


def _respelt_sets(values: pa.StringArray, column: Column) -> pa.StringArray:
    labels = dict(column.respelt)
    return _mapped(values, lambda text: ",".join(labels.get(label, label) for label in text.split(",")))


_DECODERS: Final[dict[Encoding, Callable[[Any, Column], pa.Array]]] = {
    Encoding.PLAIN: _plain,
    Encoding.DAYS: lambda values, _: _of_mysql(values, _DAY).cast(pa.date32()),
    Encoding.MILLIS: lambda values, _: pc.multiply(_of_mysql(values, 1000), 1000).cast(pa.timestamp("us")),
    Encoding.MICROS: lambda values, _: _of_mysql(values, 1).cast(pa.timestamp("us")),
    Encoding.NANOS: lambda values, _: _of_mysql(_thousandths(values), 1).cast(pa.timestamp("us")),
    Encoding.TIME_MILLIS: lambda values, _: pc.multiply(values, 1000),
    Encoding.TIME_NANOS: lambda values, _: _thousandths(values),
    # BIT arrives little-endian, and MySQL prints it big-endian.
    Encoding.BASE64_BITS: lambda values, _: pc.binary_reverse(values),
    Encoding.BASE64_DECIMAL: of_binary_decimals,
    Encoding.YEAR: lambda values, _: pc.if_else(pc.equal(values, 1900), pa.scalar(0, values.type), values),
    Encoding.FLAG: _flags,
    Encoding.SET: _respelt_sets,
    Encoding.GEOMETRY: _geometries,
    Encoding.LATIN1: _latin1,
    Encoding.INSTANT_TEXT: _instants,
}
