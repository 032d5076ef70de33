"""Convert the tokens of JSON values to the wire form of their columns; null for what is invalid.

A token is the text of a JSON value without spaces; a number whose digits a double does not hold is a string that begins
with `BARE`.
"""

import binascii
import contextlib
import json
import re
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.values import is_wide, of_binary_decimals, wide_text, wire_type
from replicator.model.table import Column
from replicator.model.types import DOUBLE_DIGITS, Encoding

BARE: Final = "#"
"""Prefix of a number that was written without quotation marks."""

_NUMBER: Final = re.compile(r"([+-]?)(\d{1,400})(?:\.(\d{1,400}))?(?:[eE]([+-]?\d{1,4}))?")
"""A number that Python converts; it refuses thousands of digits."""

_NO_NUMBERS: Final = ('"Infinity"', '"-Infinity"', '"NaN"')
"""Connectors quote what JSON has no number for, such as a FLOAT's default beyond its range."""

_EXPONENT: Final = r"[eE][+-]?\d{3}"
_MOST_DIGITS: Final = 256
_SRID_LIMIT: Final = 1 << 31
_FRACTION: Final = "^-?[0-9]+[.eE]"
"""The token of a number that passed through a double."""

_NO_TEXT: Final = pa.scalar(None, pa.string())


def is_quoted_before(column: Column) -> bool:
    """Return whether the column's numbers must be quoted before they are parsed."""
    plain = column.encoding in (Encoding.PLAIN, Encoding.EITHER_DECIMAL)
    return plain and (
        is_wide(column) or (column.type.name == "decimal" and column.type.precision > DOUBLE_DIGITS)
    )


def is_text(column: Column) -> bool:
    """Return whether the column's values are read as text and not as tokens."""
    return (
        pa.types.is_string(wire_type(column)) and column.encoding is not Encoding.FLAG and not is_wide(column)
    )


def unbare(tokens: pa.StringArray) -> pa.StringArray:
    """Return the tokens of numbers as they were written."""
    if not pc.any(pc.starts_with(tokens, f'"{BARE}')).as_py():
        return tokens
    return pc.replace_substring_regex(tokens, f'^"{BARE}(.*)"$', r"\1")


def as_integers(tokens: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Return the integers of tokens; null for others."""
    try:
        return tokens.cast(kind)
    except pa.ArrowInvalid:
        limit = 1 << (kind.bit_width - 1)
        numbers = [int(t) if t and re.fullmatch(r"-?\d{1,19}", t) else None for t in tokens.to_pylist()]
        return pa.array([n if n is not None and -limit <= n < limit else None for n in numbers], kind)


def wire_values(tokens: pa.StringArray, column: Column) -> pa.Array:
    """Return the values of a column in wire form (see `values.wire_type`); null for what cannot be read."""
    if is_wide(column) or (column.type.name == "decimal"):
        return _decimals(tokens, column)
    kind = wire_type(column)
    if pa.types.is_string(kind):
        return tokens
    if pa.types.is_binary(kind):
        return _bytes(tokens)
    if pa.types.is_integer(kind):
        return as_integers(tokens, kind)
    if pa.types.is_floating(kind):
        return _floats(tokens, kind)
    if pa.types.is_boolean(kind):
        return pa.array([{"true": True, "false": False}.get(t or "") for t in tokens.to_pylist()], kind)
    read = _point if pa.types.is_struct(kind) else _vector
    # A field inside may have the name of a column whose numbers were quoted.
    tokens = pc.replace_substring_regex(tokens, f'"{BARE}([^"]*)"', r"\1")
    return pa.array([read(_parsed(token)) for token in tokens.to_pylist()], kind)


def _parsed(token: str | None) -> Any:
    """Return the value of a token; None also if Python refuses it, for its depth or for the digits of a number."""
    try:
        return None if token is None else json.loads(token)
    except (ValueError, RecursionError):
        return None


def _floats(tokens: pa.StringArray, kind: pa.DataType) -> pa.Array:
    try:
        return tokens.cast(pa.float64()).cast(kind, safe=False)
    except pa.ArrowInvalid:
        return pa.array(map(_float, tokens.to_pylist()), pa.float64(), size=len(tokens)).cast(
            kind, safe=False
        )


def _float(token: str | None) -> float | None:
    if token is None or not (_NUMBER.fullmatch(token) or token in _NO_NUMBERS):
        return None
    return float(token.strip('"'))


def _bytes(tokens: pa.StringArray) -> pa.BinaryArray:
    """Return the bytes of base64 in quotation marks."""
    texts = (t[1:-1] if t is not None and t.startswith('"') else None for t in tokens.to_pylist())
    return pa.array(map(_of_base64, texts), pa.binary(), size=len(tokens))


def _of_base64(text: str | None) -> bytes | None:
    try:
        return None if text is None else binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def _point(value: Any) -> dict[str, Any] | None:
    """Return the WKB and the SRID of a geometry."""
    if not isinstance(value, dict):
        return None
    wkb, srid = value.get("wkb"), value.get("srid")
    if not isinstance(wkb, str) or not (srid is None or (type(srid) is int and abs(srid) < _SRID_LIMIT)):
        return None
    packed = _of_base64(wkb)
    return None if packed is None else {"wkb": packed, "srid": srid}


def _vector(value: Any) -> list[float | None] | None:
    if not isinstance(value, list) or not all(type(n) in (int, float, type(None)) for n in value):
        return None
    try:
        return [None if n is None else float(n) for n in value]
    except OverflowError:
        return None


def _decimals(tokens: pa.StringArray, column: Column) -> pa.Array:
    """Return decimals, or bytes of an encoding that has nothing else."""
    if is_quoted_before(column):
        # One whose field's name is written with escapes was not quoted, and may have lost digits.
        tokens = pc.if_else(pc.match_substring_regex(tokens, _FRACTION), _NO_TEXT, tokens)
    match column.encoding:
        case Encoding.BASE64_DECIMAL:
            return _bytes(tokens)
        case Encoding.UNSEEN_DECIMAL:
            return pa.nulls(len(tokens), wire_type(column))
        case Encoding.EITHER_DECIMAL:
            quoted = pc.and_(pc.starts_with(tokens, '"'), pc.invert(pc.starts_with(tokens, f'"{BARE}')))
            packed = of_binary_decimals(_bytes(pc.if_else(quoted, tokens, _NO_TEXT)), column)
            bare = unbare(pc.if_else(quoted, _NO_TEXT, tokens))
            return pc.coalesce(packed, _numbers(bare, column))
        case Encoding.NUMBER:
            return _numbers(tokens, column)
        case _:
            return _numbers(pc.replace_substring_regex(tokens, f'^"{BARE}?(.*)"$', r"\1"), column)


def _numbers(texts: pa.StringArray, column: Column) -> pa.Array:
    """Return the numbers with these texts, which may have an exponent; null for other texts and for too many digits."""
    kind = wire_type(column)
    # Arrow's cast accesses invalid memory at a large exponent.
    if not is_wide(column) and not pc.any(pc.match_substring_regex(texts, _EXPONENT)).as_py():
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    scale = column.size if is_wide(column) else column.type.scale
    numbers = [None if t is None else _unscaled(t, scale or 0) for t in texts.to_pylist()]
    if is_wide(column):
        return pa.array([None if n is None else wide_text(n, scale or 0) for n in numbers], kind)
    most = 10**column.type.precision
    fitting = [None if n is None or abs(n) >= most else Decimal(f"{n}E-{column.type.scale}") for n in numbers]
    return pa.array(fitting, kind)


def _unscaled(text: str, scale: int) -> int | None:
    """Return a number as a multiple of its last digit; None if it has more fraction digits or is no number."""
    parts = _NUMBER.fullmatch(text)
    if parts is None:
        return None
    sign, whole, fraction, exponent = parts[1], parts[2], parts[3] or "", int(parts[4] or 0)
    lacking = scale - len(fraction) + exponent
    if not 0 <= lacking <= _MOST_DIGITS:
        return None
    number: int = int(whole + fraction) * 10**lacking
    return -number if sign == "-" else number
