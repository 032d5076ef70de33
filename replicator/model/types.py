"""Column types of the lake and encodings of values in events.

A column has a *lake type*, which Iceberg stores, and an *encoding*, in which Debezium writes the value. Decoding is a
function of this pair only.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_DECIMAL_PRECISION: Final = 38
"""Maximum digits of an Iceberg decimal; MySQL allows 65."""

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
    """An Iceberg type: a primitive type or ``list<float>``. `precision` and `scale` apply to ``decimal`` only."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        return self.name

    @classmethod
    def parse(cls, text: str) -> "LakeType":
        """Parse Iceberg's notation, such as ``decimal(12, 2)`` or ``timestamptz``.

        Raises:
            ValueError: `text` is not a type that the engine writes.
        """
        if match := _DECIMAL.fullmatch(text.strip()):
            return decimal(int(match[1]), int(match[2]))
        if text not in _PRIMITIVES:
            raise ValueError(f"unknown lake type {text!r}")
        return cls(text)

    def holds(self, other: "LakeType") -> bool:
        """Return whether a column of this type can store every value of `other` unchanged."""
        return self == other or self.widens(other)

    def widens(self, other: "LakeType") -> bool:
        """Return whether Iceberg can promote a column of type `other` to this type in place."""
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
    """Return a decimal type, or string if Iceberg's decimals have too few digits."""
    if precision > MAX_DECIMAL_PRECISION:
        return STRING
    return LakeType("decimal", precision, scale)


_SPARK_SQL_NAMES: Final = {
    "long": "bigint",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "list<float>": "array<float>",
}


def spark_sql_name(lake_type: LakeType) -> str:
    """Return the name of the type in Spark SQL."""
    return _SPARK_SQL_NAMES.get(lake_type.name, str(lake_type))


DOUBLE_DIGITS: Final = 15
"""A double represents every decimal with at most this number of digits; IEEE 754, binary64."""


class Encoding(StrEnum):
    """The encoding of a value in events.

    ``PLAIN`` values are values of the lake type. Encodings that are base64 in JSON are bytes in Avro.
    """

    PLAIN = "plain"
    DAYS = "days"
    """Days since 1970-01-01."""
    MILLIS = "millis"
    """Milliseconds since 1970-01-01 00:00 of a local date and time (DATETIME), which is not an instant."""
    MICROS = "micros"
    """Microseconds since 1970-01-01 00:00 of a local date and time."""
    NANOS = "nanos"
    """Nanoseconds since 1970-01-01 00:00 of a local date and time."""
    BASE64_DECIMAL = "base64-decimal"
    """Unscaled value as big-endian two's complement bytes in base64."""
    NUMBER = "number"
    """A decimal of at most `DOUBLE_DIGITS` digits that is always an unquoted number in JSON."""
    UNSEEN_DECIMAL = "unseen-decimal"
    """A decimal whose encoding no observed value has shown yet."""
    EITHER_DECIMAL = "either-decimal"
    """A decimal: base64 if quoted, a number if not quoted."""
    BASE64_BITS = "base64-bits"
    """BIT(n > 1): little-endian bytes in base64."""
    TIME_MILLIS = "time-millis"
    """TIME in milliseconds, stored in microseconds."""
    TIME_NANOS = "time-nanos"
    """TIME in nanoseconds, stored in microseconds."""
    YEAR = "year"
    """A year; the year 0000 arrives as 1900, which MySQL does not have."""
    FLAG = "flag"
    """BOOLEAN, which is TINYINT(1) in MySQL: true, false or a number, stored as a number."""
    SET = "set"
    """Labels, separated by commas."""
    GEOMETRY = "geometry"
    """A struct of WKB and SRID, stored as EWKB, which is WKB with the SRID, if there is one."""
    LATIN1 = "latin1"
    """Bytes as text of the same code points: columns declared as text with the character set binary."""
    INSTANT_TEXT = "instant-text"
    """An instant as ISO text in Avro; in JSON it is parsed as such directly."""
    NESTED = "nested"
    """A struct, list or map in Avro, stored as the JSON text that JSON events have for it."""
    ARMSCII8 = "armscii8"
    """Text in a character set that the connector reads from the binlog as another one; see `decode.values`."""
    DEC8 = "dec8"
    GEOSTD8 = "geostd8"
    HP8 = "hp8"
    KEYBCS2 = "keybcs2"
    KOI8U = "koi8u"
    SWE7 = "swe7"
    CP866 = "cp866"
    CP1250 = "cp1250"
    CP1251 = "cp1251"
    CP1252 = "cp1252"
    """MySQL's latin1."""
    CP1256 = "cp1256"
    CP1257 = "cp1257"
    GREEK = "greek"
    HEBREW = "hebrew"
    TIS620 = "tis620"
    BIG5 = "big5"
    CP932 = "cp932"
    EUCJPMS = "eucjpms"
    EUCKR = "euckr"
    GB18030 = "gb18030"
    GB2312 = "gb2312"
    GBK = "gbk"
    SJIS = "sjis"
    UJIS = "ujis"


LOSSY_TEXTS: Final = frozenset(
    {
        *(Encoding.ARMSCII8, Encoding.DEC8, Encoding.HP8, Encoding.CP1252, Encoding.TIS620),
        *(Encoding.BIG5, Encoding.CP932, Encoding.EUCJPMS, Encoding.EUCKR),
        *(Encoding.GB2312, Encoding.GBK, Encoding.SJIS, Encoding.UJIS),
    }
)
"""The encodings of text of which several characters arrive as `UNKNOWN_CHARACTER`, which tells them from no other."""
MISREAD_TEXTS: Final = LOSSY_TEXTS | {
    *(Encoding.GEOSTD8, Encoding.KEYBCS2, Encoding.KOI8U, Encoding.SWE7),
    *(Encoding.CP866, Encoding.CP1250, Encoding.CP1251, Encoding.CP1256, Encoding.CP1257),
    *(Encoding.GREEK, Encoding.HEBREW, Encoding.GB18030),
}
"""The encodings of text in character sets that Java lacks, or whose characters it maps in another way."""
UNKNOWN_CHARACTER: Final = "\ufffd"
"""What Java decodes bytes to that it does not know."""


def decimal_column(precision: int, scale: int) -> tuple[LakeType, Encoding]:
    """Return type and encoding of a DECIMAL as far as the source's definition determines them."""
    lake_type = decimal(precision, scale)
    return lake_type, Encoding.EITHER_DECIMAL if lake_type == STRING else Encoding.UNSEEN_DECIMAL
