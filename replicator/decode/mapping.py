"""MySQL types, the forms in which events write their values, and the Iceberg types that hold them: the one table.

`FORMS` says what a form is stored as and how it is read. Events that carry a schema name the form. For those that do
not, `stored` finds it: in it is the form in which connectors write a column of a MySQL type under the settings of the
connector template (connectors/): adaptive microsecond times, precise decimals and bigints.

Where Iceberg v2 has no such type, what is stored loses nothing:

================================  ============================================================================
MySQL                             Iceberg
================================  ============================================================================
BIGINT UNSIGNED                   decimal(20, 0)
DECIMAL of more than 38 digits    string: what SELECT shows, with all digits behind the point
TIME                              long: microseconds, negative and above a day where the source has that
DATETIME                          timestamp: the wall clock, without a zone
BIT(n), n > 1                     binary: big-endian, as few bytes as n bits need
YEAR                              int
ENUM, SET                         string: the labels
JSON                              string: JSON text, whose spaces and order of keys mean nothing
GEOMETRY and its kinds            binary: EWKB, which is WKB where the SRID is 0
VECTOR                            list<float>
================================  ============================================================================
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from replicator.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    VECTOR,
    LakeType,
    Wire,
    decimal_column,
)

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
ENUM: Final = "io.debezium.data.Enum"
ENUM_SET: Final = "io.debezium.data.EnumSet"

FORMS: Final[Mapping[str, tuple[LakeType, Wire]]] = {
    # Kafka Connect's own types. Structs, lists and maps of unknown meaning are kept as JSON text.
    "boolean": (BOOLEAN, Wire.PLAIN),
    "int8": (INT, Wire.PLAIN),
    "int16": (INT, Wire.PLAIN),
    "int32": (INT, Wire.PLAIN),
    "int64": (LONG, Wire.PLAIN),
    "float": (FLOAT, Wire.PLAIN),
    "float32": (FLOAT, Wire.PLAIN),
    "double": (DOUBLE, Wire.PLAIN),
    "float64": (DOUBLE, Wire.PLAIN),
    "string": (STRING, Wire.PLAIN),
    "bytes": (BINARY, Wire.PLAIN),
    "struct": (STRING, Wire.PLAIN),
    "array": (STRING, Wire.PLAIN),
    "map": (STRING, Wire.PLAIN),
    # Types with a meaning, by the name that it has.
    "io.debezium.time.Date": (DATE, Wire.DAYS),
    "io.debezium.time.Timestamp": (TIMESTAMP, Wire.MILLIS),
    "io.debezium.time.MicroTimestamp": (TIMESTAMP, Wire.MICROS),
    "io.debezium.time.NanoTimestamp": (TIMESTAMP, Wire.NANOS),
    "io.debezium.time.ZonedTimestamp": (TIMESTAMPTZ, Wire.PLAIN),
    "io.debezium.time.MicroTime": (LONG, Wire.PLAIN),
    "io.debezium.time.Time": (LONG, Wire.TIME_MILLIS),
    "io.debezium.time.NanoTime": (LONG, Wire.TIME_NANOS),
    "io.debezium.time.Year": (INT, Wire.YEAR),
    "org.apache.kafka.connect.data.Date": (DATE, Wire.DAYS),
    "org.apache.kafka.connect.data.Timestamp": (TIMESTAMP, Wire.MILLIS),
    "org.apache.kafka.connect.data.Time": (LONG, Wire.TIME_MILLIS),
    "io.debezium.data.Bits": (BINARY, Wire.BASE64_BITS),
    ENUM: (STRING, Wire.PLAIN),
    ENUM_SET: (STRING, Wire.SET),
    "io.debezium.data.Json": (STRING, Wire.PLAIN),
    "io.debezium.data.geometry.Geometry": (BINARY, Wire.GEOMETRY),
    "io.debezium.data.geometry.Point": (BINARY, Wire.GEOMETRY),
    "io.debezium.data.FloatVector": (VECTOR, Wire.PLAIN),
}
"""Form → what the lake stores and how the event writes it. Decimals, which have digits, are apart: `decimal_form`."""

REFUSED: Final = frozenset(f"io.debezium.time.Iso{kind}" for kind in ("Date", "Time", "Timestamp"))
"""Forms of time.precision.mode=isostring, under which the connector itself fails at a TIME below 0 or above a day."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A column's type as the source declares it: `name` in upper case and without attributes."""

    name: str
    unsigned: bool = False
    length: int | None = None
    scale: int | None = None
    charset: str | None = None


_Form = str | Callable[[Declared], str]


def _by_size(small: str, large: str, *, above: int) -> Callable[[Declared], str]:
    return lambda t: large if (t.length or 0) > above else small


def _if_unsigned(signed: str, unsigned: str) -> Callable[[Declared], str]:
    return lambda t: unsigned if t.unsigned else signed


def _float(t: Declared) -> str:
    # FLOAT(25) and up is a DOUBLE in MySQL. FLOAT(7,4) is none, but arrives as one.
    return "double" if t.scale is not None or (t.length or 0) > 24 else "float"


def _text(t: Declared) -> str:
    return "binary text" if t.charset == "binary" else "string"


_TEXTS: Final = (
    *("CHAR", "NCHAR", "CHARACTER", "NATIONAL CHAR", "NATIONAL CHARACTER"),
    *("VARCHAR", "NVARCHAR", "CHARACTER VARYING", "NATIONAL VARCHAR", "CHAR VARYING"),
    *("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "LONG", "LONG VARCHAR"),
)
_GEOMETRIES: Final = (
    *("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON"),
    *("GEOMETRYCOLLECTION", "GEOMCOLLECTION"),
)

_DECLARED: Final[Mapping[str, _Form]] = {
    **dict.fromkeys(("BOOL", "BOOLEAN"), "flag"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT1", "INT2", "INT3", "MIDDLEINT"), "int32"),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), _if_unsigned("int32", "int64")),
    **dict.fromkeys(("BIGINT", "INT8"), _if_unsigned("int64", DECIMAL)),
    "SERIAL": DECIMAL,
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "FIXED"), DECIMAL),
    **dict.fromkeys(("FLOAT", "FLOAT4"), _float),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION", "FLOAT8", "REAL"), "double"),
    "BIT": _by_size("boolean", "io.debezium.data.Bits", above=1),
    "DATE": "io.debezium.time.Date",
    "DATETIME": _by_size("io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp", above=3),
    "TIMESTAMP": "io.debezium.time.ZonedTimestamp",
    "TIME": "io.debezium.time.MicroTime",
    "YEAR": "io.debezium.time.Year",
    **dict.fromkeys(_TEXTS, _text),
    **dict.fromkeys(("BINARY", "VARBINARY", "CHAR BYTE", "LONG VARBINARY"), "bytes"),
    **dict.fromkeys(("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), "bytes"),
    "ENUM": ENUM,
    "SET": ENUM_SET,
    "JSON": "io.debezium.data.Json",
    **dict.fromkeys(_GEOMETRIES, "io.debezium.data.geometry.Geometry"),
    "VECTOR": "io.debezium.data.FloatVector",
}
_OWN: Final[Mapping[str, tuple[LakeType, Wire]]] = {
    # No schema tells these apart from others, so only a definition does.
    "flag": (INT, Wire.FLAG),
    "binary text": (BINARY, Wire.LATIN1),
}
_ATTRIBUTES: Final = re.compile(r"\s+(SIGNED|ZEROFILL|BINARY)\b")


def declared(type_name: str, length: int | None, scale: int | None, charset: str | None = None) -> Declared:
    """A type such as ``BIGINT UNSIGNED ZEROFILL`` without its attributes."""
    name = " ".join(type_name.upper().split())
    bare = _ATTRIBUTES.sub("", name)
    # ZEROFILL makes a number unsigned, whether or not it says so.
    unsigned = bare.endswith(" UNSIGNED") or "ZEROFILL" in name
    return Declared(bare.removesuffix(" UNSIGNED"), unsigned, length, scale, (charset or "").lower() or None)


def stored(kind: Declared) -> tuple[LakeType, Wire]:
    """What the lake stores for a column declared so, and how events without a schema write it.

    What is not known is kept as text.
    """
    form = _DECLARED.get(kind.name, "string")
    name = form if isinstance(form, str) else form(kind)
    if name == DECIMAL:
        digits, scale = (kind.length or 10, kind.scale or 0) if kind.name in _DECIMALS else (20, 0)
        # Nothing but the events tells how they write decimals.
        return decimal_column(digits, scale)[0], Wire.UNSEEN_DECIMAL
    return _OWN.get(name) or FORMS[name]


_DECIMALS: Final = frozenset({"DECIMAL", "DEC", "NUMERIC", "FIXED"})


def kept_size(kind: Declared) -> int | None:
    """`Column.size` of a column declared so."""
    lake_type, wire = stored(kind)
    if lake_type == STRING and wire is Wire.UNSEEN_DECIMAL:
        return kind.scale or 0
    return (
        kind.length if wire is Wire.LATIN1 and kind.name.endswith("CHAR") and "VAR" not in kind.name else None
    )


def reconciled(carried: tuple[LakeType, Wire], defined: tuple[LakeType, Wire]) -> tuple[LakeType, Wire]:
    """Type and encoding of a column where an event's schema says `carried` and the source's definition `defined`.

    Events of one type may look like those of another: BOOLEAN like BIT(1), REAL like FLOAT, text of the character
    set binary like text, and bytes too where the connector writes them as base64.
    """
    types = (carried[0], defined[0])
    if types == (BOOLEAN, INT):
        return INT, Wire.FLAG
    if types == (FLOAT, DOUBLE) or (carried == (STRING, Wire.PLAIN) and defined[0] == BINARY):
        return defined
    return carried


def respelt_labels(raw: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Labels of an ENUM or SET that streamed events write differently than the source shows them: (there, here).

    `raw` are labels as they stand between the quotes of the DDL. Streamed events have them so, with a backslash before
    each comma besides; snapshots have them as the source shows them.
    """
    pairs = ((label.replace(",", "\\,"), unescaped(label).rstrip(" ")) for label in raw)
    return tuple(dict.fromkeys((written, meant) for written, meant in pairs if written != meant))


_ESCAPES: Final[Mapping[str, str]] = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    # These two keep their backslash outside of LIKE.
    "%": "\\%",
    "_": "\\_",
}


def unescaped(text: str) -> str:
    """What MySQL makes of the backslashes in a string literal."""
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)
