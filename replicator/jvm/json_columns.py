"""Spark expressions for JSON text, which events, queries of MySQL and Debezium's snapshots write in different forms."""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

_PIECE: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"]++'
"""A string of a JSON text, or everything up to the next one."""
_EXPANSION: Final = r"(?<![\d.])(\d+\.\d{31,}|\d{21,})(?![\d.eE])"
"""A double with all its digits, as events have very small and very large ones. MySQL's decimals have at most 30 digits
after the point, its integers at most 20 digits."""
_FRACTION: Final = r"(?<![\d.])(0\.0*\d{1,17}|(?=[\d.]{3,18}(?![\d.]))\d+\.\d+)(?![\d.eE])"
"""A number with a fraction and no exponent, of 17 digits at most: a double has no more."""


def compact_json(text: SparkColumn) -> SparkColumn:
    """Return JSON text as events have it: without spaces between its values."""
    return _outside_strings(text, lambda piece: F.translate(piece, " ", ""))


def json_meaning(text: SparkColumn) -> SparkColumn:
    """Return a text that is the same for all forms of a JSON value; text that is no JSON is returned unchanged.

    Spaces, the order of keys and escapes do not matter, nor how a double is written: 0.0001 is 1E-4. The integer 1 and
    the double 1.0 differ, as they do in MySQL. Events write doubles from 1E7 to 1E20 like integers and decimals, so
    these do not equal what MySQL shows.
    """
    # Spark reads a number with an exponent as a double, one with a fraction as a decimal.
    doubles = _outside_strings(
        text, lambda piece: F.regexp_replace(F.regexp_replace(piece, _EXPANSION, "$1e0"), _FRACTION, "$1e0")
    )
    return F.coalesce(F.to_json(F.try_parse_json(doubles)), text)


def _outside_strings(text: SparkColumn, change: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    pieces = F.regexp_extract_all(text, F.lit(_PIECE), F.lit(0))
    changed = F.transform(pieces, lambda piece: F.when(piece.startswith('"'), piece).otherwise(change(piece)))
    return F.array_join(changed, "")
