"""The mapping of MySQL types and of their forms in events to Iceberg types.

`FORMS` maps each form of a value in events to its lake type and encoding. Events with a schema name the form. For
events without one, `stored` determines the form that connectors write for a MySQL type under the settings of the
connector template (connectors/): adaptive microsecond times, precise decimals and bigints.

If Iceberg v2 lacks a type, the value is stored without loss:

================================  ============================================================================
MySQL                             Iceberg
================================  ============================================================================
BIGINT UNSIGNED                   decimal(20, 0)
DECIMAL of more than 38 digits    string: as SELECT shows it, with all fraction digits
TIME                              long: microseconds; may be negative or exceed a day, as in the source
DATETIME                          timestamp: local date and time, without a zone
BIT(n), n > 1                     binary: big-endian, the fewest bytes that hold n bits
YEAR                              int
ENUM, SET                         string: the labels
JSON                              string: JSON text; white space and order of keys are insignificant
GEOMETRY and its subtypes         binary: EWKB, which equals WKB if the SRID is 0
VECTOR                            list<float>
================================  ============================================================================
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from replicator.errors import DecodeError
from replicator.model.table import Column
from replicator.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    MISREAD_TEXTS,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    VECTOR,
    Encoding,
    LakeType,
    decimal_column,
)
from replicator.schema.types.table import DECIMAL, DECIMALS, ENUM, ENUM_SET, STATED, Declared

MOST_COLUMNS: Final = 4096
"""Maximum number of columns of a MySQL table."""
MOST_LABELS: Final = 65_535
"""Maximum number of labels of an ENUM."""
MOST_DIGITS: Final = 65
"""Maximum number of digits of a DECIMAL."""
LONGEST_NAME: Final = 256
"""Maximum length of a name, characters; MySQL allows 64."""
_LONGEST_CHAR: Final = 1024
"""Maximum size of a CHAR, bytes: 255 characters of at most four bytes."""

FORMS: Final[Mapping[str, tuple[LakeType, Encoding]]] = {
    # Kafka Connect's own types. Structs, lists and maps of unknown meaning are kept as JSON text.
    "boolean": (BOOLEAN, Encoding.PLAIN),
    "int8": (INT, Encoding.PLAIN),
    "int16": (INT, Encoding.PLAIN),
    "int32": (INT, Encoding.PLAIN),
    "int64": (LONG, Encoding.PLAIN),
    "float": (FLOAT, Encoding.PLAIN),
    "float32": (FLOAT, Encoding.PLAIN),
    "double": (DOUBLE, Encoding.PLAIN),
    "float64": (DOUBLE, Encoding.PLAIN),
    "string": (STRING, Encoding.PLAIN),
    "bytes": (BINARY, Encoding.PLAIN),
    "struct": (STRING, Encoding.PLAIN),
    "array": (STRING, Encoding.PLAIN),
    "map": (STRING, Encoding.PLAIN),
    # Logical types, by name.
    "io.debezium.time.Date": (DATE, Encoding.DAYS),
    "io.debezium.time.Timestamp": (TIMESTAMP, Encoding.MILLIS),
    "io.debezium.time.MicroTimestamp": (TIMESTAMP, Encoding.MICROS),
    "io.debezium.time.NanoTimestamp": (TIMESTAMP, Encoding.NANOS),
    "io.debezium.time.ZonedTimestamp": (TIMESTAMPTZ, Encoding.PLAIN),
    "io.debezium.time.MicroTime": (LONG, Encoding.PLAIN),
    "io.debezium.time.Time": (LONG, Encoding.TIME_MILLIS),
    "io.debezium.time.NanoTime": (LONG, Encoding.TIME_NANOS),
    "io.debezium.time.Year": (INT, Encoding.YEAR),
    "org.apache.kafka.connect.data.Date": (DATE, Encoding.DAYS),
    "org.apache.kafka.connect.data.Timestamp": (TIMESTAMP, Encoding.MILLIS),
    "org.apache.kafka.connect.data.Time": (LONG, Encoding.TIME_MILLIS),
    "io.debezium.data.Bits": (BINARY, Encoding.BASE64_BITS),
    ENUM: (STRING, Encoding.PLAIN),
    ENUM_SET: (STRING, Encoding.SET),
    "io.debezium.data.Json": (STRING, Encoding.PLAIN),
    "io.debezium.data.geometry.Geometry": (BINARY, Encoding.GEOMETRY),
    "io.debezium.data.geometry.Point": (BINARY, Encoding.GEOMETRY),
    "io.debezium.data.FloatVector": (VECTOR, Encoding.PLAIN),
}
"""Form → lake type and encoding. Decimals, which have a precision, are handled by `decimal_form`."""

REFUSED: Final = frozenset(f"io.debezium.time.Iso{kind}" for kind in ("Date", "Time", "Timestamp"))
"""Forms of time.precision.mode=isostring, with which the connector fails at a negative TIME or one above a day."""


_OWN: Final[Mapping[str, tuple[LakeType, Encoding]]] = {
    # Event schemas do not distinguish these from other types; only a definition does.
    "flag": (INT, Encoding.FLAG),
    "binary text": (BINARY, Encoding.LATIN1),
    **{f"{encoding} text": (STRING, encoding) for encoding in MISREAD_TEXTS},
}
_ATTRIBUTES: Final = re.compile(r"\s+(SIGNED|ZEROFILL|BINARY)\b")


def declared(type_name: str, length: int | None, scale: int | None, charset: str | None = None) -> Declared:
    """Parse a type such as ``BIGINT UNSIGNED ZEROFILL``."""
    name = " ".join(type_name.upper().split())
    bare = _ATTRIBUTES.sub("", name)
    # ZEROFILL implies UNSIGNED.
    unsigned = bare.endswith(" UNSIGNED") or "ZEROFILL" in name
    return Declared(bare.removesuffix(" UNSIGNED"), unsigned, length, scale, (charset or "").lower() or None)


def stored(kind: Declared) -> tuple[LakeType, Encoding]:
    """Return the lake type of a declared type, and its encoding in events without a schema.

    Unknown types are stored as text.

    Raises:
        DecodeError: MySQL does not allow the type's precision or scale.
    """
    form = STATED.get(kind.name, "string")
    name = form if isinstance(form, str) else form(kind)
    if name == DECIMAL:
        digits, scale = (kind.length or 10, kind.scale or 0) if kind.name in DECIMALS else (20, 0)
        # Only the values in events show how decimals are encoded.
        return decimal_form(digits, scale)[0], Encoding.UNSEEN_DECIMAL
    return _OWN.get(name) or FORMS[name]


def decimal_form(digits: int, scale: int) -> tuple[LakeType, Encoding]:
    """Return type and encoding of a DECIMAL, as `decimal_column` does.

    Raises:
        DecodeError: MySQL does not allow the precision or scale.
    """
    if not 0 <= scale <= digits <= MOST_DIGITS:
        raise DecodeError(f"invalid DECIMAL({digits}, {scale})")
    return decimal_column(digits, scale)


def check_columns(columns: Sequence[Column]) -> None:
    """Check that columns can belong to one table.

    Raises:
        DecodeError: there are no columns, a name is empty, or a name is repeated.
    """
    names = {c.name for c in columns}
    if not columns or "" in names or len(names) < len(columns):
        raise DecodeError("table has no columns, or its column names are empty or repeated")


def kept_size(kind: Declared) -> int | None:
    """Return `Column.size` for a declared type.

    Raises:
        DecodeError: MySQL does not allow the type's size.
    """
    lake_type, encoding = stored(kind)
    if lake_type == STRING and encoding is Encoding.UNSEEN_DECIMAL:
        return kind.scale or 0
    if encoding is not Encoding.LATIN1 or not kind.name.endswith("CHAR") or "VAR" in kind.name:
        return None
    if kind.length is not None and kind.length > _LONGEST_CHAR:
        raise DecodeError(f"CHAR of {kind.length} bytes exceeds {_LONGEST_CHAR} bytes")
    return kind.length


def reconciled(
    carried: tuple[LakeType, Encoding], defined: tuple[LakeType, Encoding]
) -> tuple[LakeType, Encoding]:
    """Combine type and encoding by an event's schema (`carried`) and by the source's definition (`defined`).

    Event schemas do not distinguish BOOLEAN from BIT(1), REAL from FLOAT, or the character sets of text; nor bytes from
    text if the connector writes them as base64.
    """
    types = (carried[0], defined[0])
    if types == (BOOLEAN, INT):
        return INT, Encoding.FLAG
    is_text = carried == (STRING, Encoding.PLAIN)
    if types == (FLOAT, DOUBLE) or (is_text and (defined[0] == BINARY or defined[1] in MISREAD_TEXTS)):
        return defined
    return carried


def respelt_labels(raw: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (label in streamed events, label in the source) for the labels of an ENUM or SET that differ.

    `raw` are the labels between the quotes of the DDL. Streamed events have them in this form, with a backslash before
    each comma; snapshots have them as the source shows them.
    """
    pairs = ((label.replace(",", "\\,"), label_meant(label)) for label in raw)
    return tuple(dict.fromkeys((written, meant) for written, meant in pairs if written != meant))


def label_meant(raw: str) -> str:
    """Return a label of an ENUM or SET as the source shows it; `raw` is the text between the quotes of the DDL."""
    return unescaped(raw).rstrip(" ")


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
    """Resolve the backslash escapes of a MySQL string literal."""
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)
