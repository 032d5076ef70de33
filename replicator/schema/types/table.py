"""The types of MySQL, one entry each: what the connector makes of it, how it is read, compared and widened.

A further type is one entry of `TYPES`, if the forms exist that it names. Its values come by events (`event`, a name in
`mysql.FORMS`), by queries (`wire`), and as bounds of parts of a table (`key`); a check compares them in a `canonical`
form.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from replicator.model.types import MISREAD_TEXTS, Encoding

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
ENUM: Final = "io.debezium.data.Enum"
ENUM_SET: Final = "io.debezium.data.EnumSet"
_GEOMETRY: Final = "io.debezium.data.geometry.Geometry"


@dataclass(frozen=True, slots=True)
class Declared:
    """A column's declared type in the source; `name` is in upper case and without attributes."""

    name: str
    unsigned: bool = False
    length: int | None = None
    scale: int | None = None
    charset: str | None = None


class Wire(Enum):
    """How a value is read by a query."""

    LONG = auto()
    DOUBLE = auto()
    TEXT = auto()
    BYTES = auto()
    DAYS = auto()
    """LONG: days since 1970-01-01."""
    MICROS = auto()
    """LONG: microseconds since 1970-01-01 00:00, of a wall clock or in UTC."""
    FLOATS = auto()
    """TEXT: 32-bit floats, little-endian, in hexadecimal digits."""


class KeyKind(Enum):
    """How values of a key column are written in SQL."""

    NUMBER = auto()
    TIME = auto()
    TEXT = auto()
    BYTES = auto()


class Form(StrEnum):
    """The canonical forms; see `verify.canonical`."""

    DIGITS = "digits"
    DAYS = "days"
    MICROS = "micros"
    DOUBLE = "double"
    TEXT = "text"
    BYTES = "bytes"
    JSON = "json"
    FLOATS = "floats"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlType:
    """A type of MySQL.

    Attributes:
        event: its form in events, a name in `mysql.FORMS`; or how the form follows from the declared type.
        family: types of one family have the same kind of values; empty for a family of its own.
        aliases: MySQL's other names; definitions have the name that the statement has.
        wire: how it is read; None if that follows from the lake's type.
        key: how its literals are written, if they compare as an index orders them. ENUM compares as text, and is
            ordered by number.
        canonical: its canonical form; None if that of `wire`.
        size: its size if none is declared.
        bits: of an integer.
        most_bytes: the maximum length of a value whose type has no declared size.
        is_small: whether a value has at most some dozens of bytes.
    """

    event: str | Callable[[Declared], str]
    family: str = ""
    aliases: tuple[str, ...] = ()
    wire: Wire | None = None
    key: KeyKind | None = None
    canonical: Form | None = None
    size: int = 0
    bits: int = 0
    most_bytes: int | None = None
    is_small: bool = False


def _by_size(small: str, large: str, *, above: int) -> Callable[[Declared], str]:
    return lambda t: large if (t.length or 0) > above else small


def _if_unsigned(signed: str, unsigned: str) -> Callable[[Declared], str]:
    return lambda t: unsigned if t.unsigned else signed


def _float(t: Declared) -> str:
    # FLOAT(25) and above is a DOUBLE in MySQL. FLOAT(7,4) is a FLOAT but arrives as a double.
    return "double" if t.scale is not None or (t.length or 0) > 24 else "float"


def _text(t: Declared) -> str:
    charset = Encoding.CP1252 if t.charset == "latin1" else t.charset
    if charset in MISREAD_TEXTS:
        return f"{charset} text"
    return "binary text" if t.charset == "binary" else "string"


def _integer(
    bits: int, event: str | Callable[[Declared], str], *aliases: str, canonical: Form | None = None
) -> MySqlType:
    return MySqlType(
        event=event,
        family="integer",
        aliases=aliases,
        wire=Wire.LONG,
        key=KeyKind.NUMBER,
        canonical=canonical,
        bits=bits,
        is_small=True,
    )


def _floating(event: str | Callable[[Declared], str], *aliases: str) -> MySqlType:
    return MySqlType(event=event, family="float", aliases=aliases, wire=Wire.DOUBLE, is_small=True)


def _moment(event: str | Callable[[Declared], str], wire: Wire, canonical: Form | None = None) -> MySqlType:
    return MySqlType(event=event, wire=wire, key=KeyKind.TIME, canonical=canonical, is_small=True)


def _characters(
    *aliases: str, key: KeyKind | None = None, size: int = 0, most_bytes: int | None = None
) -> MySqlType:
    return MySqlType(
        event=_text, family="text", aliases=aliases, wire=Wire.TEXT, key=key, size=size, most_bytes=most_bytes
    )


def _bytes(
    *aliases: str, key: KeyKind | None = None, size: int = 0, most_bytes: int | None = None
) -> MySqlType:
    return MySqlType(
        event="bytes",
        family="bytes",
        aliases=aliases,
        wire=Wire.BYTES,
        key=key,
        size=size,
        most_bytes=most_bytes,
    )


TYPES: Final[Mapping[str, MySqlType]] = {
    "TINYINT": _integer(8, "int32", "INT1"),
    "SMALLINT": _integer(16, "int32", "INT2"),
    "MEDIUMINT": _integer(24, "int32", "INT3", "MIDDLEINT"),
    "INT": _integer(32, _if_unsigned("int32", "int64"), "INTEGER", "INT4"),
    "BIGINT": _integer(64, _if_unsigned("int64", DECIMAL), "INT8", canonical=Form.DIGITS),
    "DECIMAL": MySqlType(
        event=DECIMAL,
        aliases=("DEC", "NUMERIC", "FIXED"),
        wire=Wire.TEXT,
        key=KeyKind.NUMBER,
        canonical=Form.DIGITS,
        size=10,
        is_small=True,
    ),
    "FLOAT": _floating(_float, "FLOAT4"),
    "DOUBLE": _floating("double", "FLOAT8", "DOUBLE PRECISION"),
    "REAL": _floating("double"),
    "BIT": MySqlType(
        event=_by_size("boolean", "io.debezium.data.Bits", above=1), wire=Wire.BYTES, size=1, is_small=True
    ),
    "DATE": _moment("io.debezium.time.Date", Wire.DAYS),
    "DATETIME": _moment(
        _by_size("io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp", above=3), Wire.MICROS
    ),
    "TIMESTAMP": _moment("io.debezium.time.ZonedTimestamp", Wire.MICROS),
    "TIME": _moment("io.debezium.time.MicroTime", Wire.LONG, Form.MICROS),
    "YEAR": MySqlType(event="io.debezium.time.Year", wire=Wire.LONG, key=KeyKind.NUMBER, is_small=True),
    "CHAR": _characters(
        *("NCHAR", "CHARACTER", "NATIONAL CHAR", "NATIONAL CHARACTER"), key=KeyKind.TEXT, size=1
    ),
    "VARCHAR": _characters(
        *("NVARCHAR", "VARCHARACTER", "CHARACTER VARYING", "CHAR VARYING", "NATIONAL VARCHAR"),
        *("NATIONAL CHARACTER VARYING", "NATIONAL CHAR VARYING", "NCHAR VARCHAR", "NCHAR VARYING"),
        key=KeyKind.TEXT,
    ),
    "TINYTEXT": _characters(most_bytes=2**8 - 1),
    "TEXT": _characters(most_bytes=2**16 - 1),
    "MEDIUMTEXT": _characters("LONG", "LONG VARCHAR", most_bytes=2**24 - 1),
    "LONGTEXT": _characters(most_bytes=2**32 - 1),
    "BINARY": _bytes("CHAR BYTE", key=KeyKind.BYTES, size=1),
    "VARBINARY": _bytes(key=KeyKind.BYTES),
    "TINYBLOB": _bytes(most_bytes=2**8 - 1),
    "BLOB": _bytes(most_bytes=2**16 - 1),
    "MEDIUMBLOB": _bytes("LONG VARBINARY", most_bytes=2**24 - 1),
    "LONGBLOB": _bytes(most_bytes=2**32 - 1),
    "ENUM": MySqlType(event=ENUM, wire=Wire.TEXT),
    "SET": MySqlType(event=ENUM_SET, wire=Wire.TEXT),
    "JSON": MySqlType(event="io.debezium.data.Json", wire=Wire.TEXT, canonical=Form.JSON),
    **{
        name: MySqlType(event=_GEOMETRY, wire=Wire.BYTES)
        for name in (
            "GEOMETRY",
            "POINT",
            "LINESTRING",
            "POLYGON",
            "MULTIPOINT",
            "MULTILINESTRING",
            "MULTIPOLYGON",
        )
    },
    "GEOMETRYCOLLECTION": MySqlType(event=_GEOMETRY, aliases=("GEOMCOLLECTION",), wire=Wire.BYTES),
    "VECTOR": MySqlType(event="io.debezium.data.FloatVector", wire=Wire.FLOATS),
}
"""MySQL's name of a type, as information_schema has it in upper case → the type."""

NAMES: Final[Mapping[str, str]] = {
    **{alias: name for name, found in TYPES.items() for alias in (name, *found.aliases)},
    **dict.fromkeys(("BOOL", "BOOLEAN"), "TINYINT"),
}
"""Each name of a type → its name in `TYPES`."""

STATED: Final[Mapping[str, str | Callable[[Declared], str]]] = {
    **{name: TYPES[base].event for name, base in NAMES.items()},
    # The connector tells these apart from the types that they stand for.
    **dict.fromkeys(("BOOL", "BOOLEAN"), "flag"),
    "SERIAL": DECIMAL,
}
"""Each name of a type in a statement → its form in events."""


def type_of(name: str) -> MySqlType | None:
    """Return the type with a name, in any letter case; None if it is unknown."""
    return TYPES.get(NAMES.get(name.upper(), ""))


def names_of(family: str) -> frozenset[str]:
    """Return all names of the types of a family, such as `text`."""
    return frozenset(name for name, base in NAMES.items() if TYPES[base].family == family)


GEOMETRIES: Final = frozenset(name for name, base in NAMES.items() if TYPES[base].event == _GEOMETRY)
"""MySQL's names of GEOMETRY and its subtypes."""
TEXTS: Final = names_of("text")
"""MySQL's names of the types of text."""
DECIMALS: Final = frozenset({"DECIMAL", *TYPES["DECIMAL"].aliases})
CHARS: Final = frozenset({"CHAR", *TYPES["CHAR"].aliases})
