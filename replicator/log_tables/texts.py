"""Convert the texts of values to the types of columns: one rule, whatever format the events have.

A value of JSON is its text too: that of a string is its content.
"""

import contextlib
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.arrow_types import arrow_type
from replicator.model.types import MAX_DECIMAL_PRECISION, LakeType

_INTEGER: Final = r"^-?[0-9]{1,19}$"
_NUMBER: Final = r"^-?([0-9]{1,400}(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,4})?$"
_NO_NUMBERS: Final = r"^(NaN|-?Infinity)$"
_EXACT: Final = Context(prec=MAX_DECIMAL_PRECISION)
"""As many digits as a decimal of the lake may have; Python's own context has 28."""
_MILLIS: Final = re.compile(r"-?[0-9]{1,18}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)([T ]\d\d(?::\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?)? ?(Z|[-+]\d\d(?::?\d\d)?)?"
)
"""A time as it is usually written. Arrow reads most of them, and all of them alike."""


def converted(texts: pa.StringArray, kind: LakeType) -> pa.Array:
    """Return the values that texts have in a type; null for those that have none."""
    match kind.name:
        case "string":
            return texts
        case "boolean":
            return pa.array([True, False]).take(pc.index_in(texts, pa.array(["true", "false"])))
        case "int" | "long":
            digits = pc.all(pc.ascii_is_decimal(texts)).as_py()
            return _all_or_each(texts if digits else _matching(texts, _INTEGER), arrow_type(kind), int)
        case "float" | "double":
            numbers = pc.match_substring_regex(texts, _NUMBER)
            if not pc.all(numbers).as_py():
                numbers = pc.or_(numbers, pc.match_substring_regex(texts, _NO_NUMBERS))
            return pc.if_else(numbers, texts, None).cast(arrow_type(kind))
        case "decimal":
            numbers = _matching(texts, _NUMBER).to_pylist()
            return pa.array([_decimal(text, kind) for text in numbers], arrow_type(kind))
        case "date":
            return _all_or_each(texts, pa.date32(), date.fromisoformat)
        case "timestamptz" | "timestamp":
            return _moments(texts, zoned=kind.name == "timestamptz")
        case _:
            return pa.nulls(len(texts), arrow_type(kind))


def _matching(texts: pa.StringArray, pattern: str) -> pa.StringArray:
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)


def _all_or_each(texts: pa.StringArray, kind: pa.DataType, convert: Callable[[str], Any]) -> pa.Array:
    """Convert all texts at once, or if one of them is no value, each alone."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_one(text, kind, convert) for text in texts.to_pylist()], kind)


def _one(text: str | None, kind: pa.DataType, convert: Callable[[str], Any]) -> Any:
    if text is None:
        return None
    try:
        return pa.scalar(convert(text), kind).as_py()
    except (ValueError, ArithmeticError, pa.ArrowInvalid):
        return None


def _decimal(text: str | None, kind: LakeType) -> Decimal | None:
    """Return a decimal; None if it has more digits than the type."""
    if text is None:
        return None
    try:
        value = Decimal(text)
        fits = value.copy_abs() < Decimal(10) ** (kind.precision - kind.scale)
        return (
            value
            if fits and value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT) == value
            else None
        )
    except ArithmeticError:
        return None


def _moments(texts: pa.StringArray, *, zoned: bool) -> pa.Array:
    """Return the times of texts in ISO 8601, or of milliseconds since the epoch; without a zone, they are in UTC."""
    kind = pa.timestamp("us", "UTC" if zoned else None)
    for attempt in dict.fromkeys((kind, pa.timestamp("us"))):
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(attempt).cast(pa.int64()).cast(kind)
    return pa.array([_moment(text, zoned=zoned) for text in texts.to_pylist()], kind)


def _moment(text: str | None, *, zoned: bool) -> datetime | None:
    """Return a time; what is below a microsecond is cut off."""
    if text is None:
        return None
    try:
        found = _EPOCH + timedelta(milliseconds=int(text)) if _MILLIS.fullmatch(text) else _of_iso(text)
        if zoned:
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _of_iso(text: str) -> datetime:
    if (parts := _ISO.fullmatch(text)) is None:
        raise ValueError(text)
    day, clock, zone = parts.groups()
    return datetime.fromisoformat(f"{day}{clock or 'T00:00'}{zone or ''}")


def json_text(value: Any) -> str:
    """Return a value as JSON text without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
