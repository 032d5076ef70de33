"""Column types of the lake and the encodings in which values arrive.

A column has two types: its *lake type*, which is what Iceberg stores, and its
*wire encoding*, which is how Debezium wrote the value. Decoding is a function
of the pair and of nothing else.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_DECIMAL_PRECISION: Final = 38
"""Digits that an Iceberg decimal can hold; MySQL allows 65."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDENINGS: Final = frozenset({("int", "long"), ("float", "double")})
_PRIMITIVES: Final = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamptz",
        "list<float>",
    }
)


@dataclass(frozen=True, slots=True)
class LakeType:
    """An Iceberg type: a primitive one or ``list<float>``. `precision` and `scale` are those of ``decimal``."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        return self.name

    @classmethod
    def parse(cls, text: str) -> "LakeType":
        """Read Iceberg's own spelling, ``decimal(12, 2)`` or ``timestamptz``.

        Raises:
            ValueError: `text` names no type that the engine writes.
        """
        if match := _DECIMAL.fullmatch(text.strip()):
            return decimal(int(match[1]), int(match[2]))
        if text not in _PRIMITIVES:
            raise ValueError(f"unknown lake type {text!r}")
        return cls(text)

    def holds(self, other: "LakeType") -> bool:
        """Whether every value of `other` can be stored in a column of this type unchanged."""
        return self == other or self.widens(other)

    def widens(self, other: "LakeType") -> bool:
        """Whether Iceberg can promote a column of type `other` to this type in place."""
        if self.name == other.name == "decimal":
            return self.scale == other.scale and self.precision > other.precision
        return (other.name, self.name) in _WIDENINGS


BOOLEAN: Final = LakeType("boolean")
INT: Final = LakeType("int")
LONG: Final = LakeType("long")
FLOAT: Final = LakeType("float")
DOUBLE: Final = LakeType("double")
STRING: Final = LakeType("string")
BINARY: Final = LakeType("binary")
DATE: Final = LakeType("date")
TIMESTAMP: Final = LakeType("timestamp")
TIMESTAMPTZ: Final = LakeType("timestamptz")
VECTOR: Final = LakeType("list<float>")


def decimal(precision: int, scale: int) -> LakeType:
    """A decimal type, or a string where Iceberg has too few digits for it."""
    if precision > MAX_DECIMAL_PRECISION:
        return STRING
    return LakeType("decimal", precision, scale)


class Wire(StrEnum):
    """How a value is written in the event.

    ``PLAIN`` values are values of the lake type itself. What is base64 in JSON, also by an encoding's name, is bytes
    in Avro.
    """

    PLAIN = "plain"
    DAYS = "days"
    """Days since 1970-01-01."""
    MILLIS = "millis"
    """Milliseconds since 1970-01-01 00:00, of the wall clock (DATETIME) and not of an instant."""
    MICROS = "micros"
    """Microseconds since 1970-01-01 00:00, of the wall clock."""
    NANOS = "nanos"
    """Nanoseconds since 1970-01-01 00:00, of the wall clock."""
    BASE64_DECIMAL = "base64-decimal"
    """Unscaled value as big-endian two's complement bytes in base64."""
    UNSEEN_DECIMAL = "unseen-decimal"
    """A decimal of which no value was seen yet that tells how it is written."""
    EITHER_DECIMAL = "either-decimal"
    """A decimal, quoted: in base64, not quoted: a number."""
    BASE64_BITS = "base64-bits"
    """BIT(n > 1): little-endian bytes in base64."""
    TIME_MILLIS = "time-millis"
    """TIME as milliseconds, stored as microseconds."""
    TIME_NANOS = "time-nanos"
    """TIME as nanoseconds, stored as microseconds."""
    YEAR = "year"
    """A year; the year 0000 arrives as 1900, which is none of MySQL's."""
    FLAG = "flag"
    """BOOLEAN, which is TINYINT(1) in MySQL: true, false or a number, stored as a number."""
    SET = "set"
    """Labels with commas between them."""
    GEOMETRY = "geometry"
    """A struct of WKB and SRID, stored as EWKB: WKB that holds the SRID where there is one."""
    LATIN1 = "latin1"
    """Bytes as text of the same code points: columns that were declared as text of the character set binary."""
    INSTANT_TEXT = "instant-text"
    """A point in time as ISO text in Avro; JSON is parsed as such at once."""
    NESTED = "nested"
    """A struct, list or map in Avro, stored as the JSON text that events of JSON have for it."""


def decimal_column(precision: int, scale: int) -> tuple[LakeType, Wire]:
    """Type and encoding of a DECIMAL as far as the source's schema tells them."""
    lake_type = decimal(precision, scale)
    return lake_type, Wire.EITHER_DECIMAL if lake_type == STRING else Wire.UNSEEN_DECIMAL
