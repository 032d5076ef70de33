"""Apply column transforms (hashes and masks) to decoded values, with Arrow."""

import hmac
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from replicator.arrow_types import arrow_type
from replicator.model.table import Column
from replicator.model.transforms import Blank, ColumnTransform, FixedText, KeepLast, KeyedHash
from replicator.model.types import LakeType

_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
"""Java writes floating-point numbers outside this range with an exponent."""


def is_blank(column: Column) -> bool:
    """Return whether every value of a column is masked by null: its values are not even read."""
    return isinstance(column.transform, Blank)


def transformed(values: pa.Array, lake_type: LakeType, transform: ColumnTransform | None) -> pa.Array:
    """Apply a column transform to values of a lake type; null stays null."""
    if transform is None:
        return values
    if isinstance(transform, Blank):
        return pa.nulls(len(values), arrow_type(lake_type))
    single = values.type == pa.float32()
    return pa.array(
        [None if v is None else _changed(v, lake_type, transform, single=single) for v in values.to_pylist()],
        pa.string(),
    )


def _changed(
    value: Any, lake_type: LakeType, transform: KeyedHash | FixedText | KeepLast, *, single: bool
) -> str:
    if isinstance(transform, KeyedHash) and lake_type.name == "binary":
        return hmac.new(transform.key, value, "sha256").hexdigest()
    return transform.of_text(_canonical_text(value, single=single))


def _canonical_text(value: Any, *, single: bool) -> str:
    """Return the text of a value whose hash and end are stored, so it must never change."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex().upper()
        case Decimal():
            return f"{value:f}"
        case float():
            return _of_java(value, single=single)
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            return text.rstrip("0") if "." in text else text
        case list():
            return "[" + ", ".join("null" if n is None else _of_java(n, single=True) for n in value) + "]"
        case _:
            return str(value)


def _of_java(number: float, *, single: bool) -> str:
    """Return a number as Java's `toString` writes it: the fewest digits that distinguish it."""
    shortest = str(pa.scalar(number, pa.float32()).cast(pa.string())) if single else repr(number)
    if number == 0 or _PLAIN_FROM <= abs(number) < _PLAIN_BELOW:
        whole = Decimal(shortest)
        text = f"{whole:f}"
        return text if "." in text else f"{text}.0"
    exact = Decimal(shortest).normalize()
    digits = "".join(map(str, exact.as_tuple().digits))
    return f"{'-' if exact < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exact.adjusted()}"
