"""Give each value one text, equal for MySQL's driver and for the lake, so that tests can compare rows of both.

It knows nothing of the forms in `replicator.verify`, so that tests of the mirror do not depend on what they test. The
text depends only on the kind of the source's column:

| kind      | text                                                                                       |
|-----------|--------------------------------------------------------------------------------------------|
| number    | plain digits, no exponent, no zeros after the last digit of a fraction; TRUE is 1          |
| float     | shortest text that parses to the same double (`repr`); FLOAT is widened to double; no -0   |
| text      | UTF-8                                                                                      |
| bytes     | lower-case hex                                                                             |
| date      | YYYY-MM-DD                                                                                 |
| datetime  | YYYY-MM-DD HH:MM:SS.ffffff, the wall clock of DATETIME, UTC of TIMESTAMP                   |
| time      | microseconds, negative or above a day if the source has such a value                       |
| json      | parsed, keys sorted, no spaces, numbers that are whole without a fraction                  |
| vector    | the elements as 32-bit floats, little-endian, in lower-case hex                            |

A zero date, which MySQL can contain and the lake cannot, is the text that MySQL shows.
"""

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pymysql
from pymysql.cursors import Cursor

from replicator.errors import SchemaError
from replicator.model.common import quoted


class Kind(StrEnum):
    """The kinds of column values; golden files have their names."""

    NUMBER = "number"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    JSON = "json"
    VECTOR = "vector"


Connection: TypeAlias = "pymysql.Connection[Cursor]"
CanonicalRow: TypeAlias = tuple[bytes | None, ...]

_GEOMETRIES: Final = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geomcollection", "geometrycollection"),
)
_KINDS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"), Kind.NUMBER),
    **dict.fromkeys(("float", "double"), Kind.FLOAT),
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"), Kind.TEXT
    ),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Kind.BYTES),
    "date": Kind.DATE,
    **dict.fromkeys(("datetime", "timestamp"), Kind.DATETIME),
    "time": Kind.TIME,
    "json": Kind.JSON,
    "bit": Kind.BYTES,
    **dict.fromkeys(_GEOMETRIES, Kind.BYTES),
    "vector": Kind.VECTOR,
}
_JSON_INTEGERS: Final = 2**64
"""MySQL has no greater integers; greater numbers are doubles, even if written as integers."""
_ZERO: Final = re.compile(r"(0000-\d\d-\d\d|\d{4}-00-\d\d|\d{4}-\d\d-00)( \d\d:\d\d:\d\d(\.\d+)?)?")


def canonical_value(kind: Kind, value: Any) -> bytes | None:
    """Return the canonical text of a Python value, None for NULL.

    Raises:
        SchemaError: the value is of another kind, as in a mirror that does not have the newest definition yet.
    """
    if value is None:
        return None
    try:
        return _TEXTS[kind](value).encode()
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise SchemaError(f"{type(value).__name__} value where the source has {kind}: {error}") from error


def _number(value: Any) -> str:
    if isinstance(value, bytes):  # BIT(1), as the driver hands it over
        value = int.from_bytes(value)
    text = format(value if isinstance(value, Decimal) else Decimal(value), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _date(value: Any) -> str:
    if isinstance(value, str) and _ZERO.fullmatch(value):
        return value
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError("not a date")
    return value.isoformat()


def _datetime(value: Any) -> str:
    if isinstance(value, str) and _ZERO.fullmatch(value):
        return value
    if not isinstance(value, datetime):
        raise TypeError("not a date and time")
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return plain.isoformat(sep=" ", timespec="microseconds")


def _time(value: Any) -> str:
    return str(value // timedelta(microseconds=1) if isinstance(value, timedelta) else int(value))


def _vector(value: Any) -> str:
    return value.lower() if isinstance(value, str) else struct.pack(f"<{len(value)}f", *value).hex()


@lru_cache(maxsize=10_000)
def _json(value: str) -> str:
    parsed = json.loads(value, parse_float=_json_float, parse_int=_json_int)
    return json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _json_float(text: str) -> float | int:
    number = float(text)
    # 2.0 and 2 are equal values.
    return int(number) if number.is_integer() and abs(number) < _JSON_INTEGERS else number


def _json_int(text: str) -> float | int:
    number = int(text)
    return number if abs(number) < _JSON_INTEGERS else float(number)


_TEXTS: Final[dict[Kind, Callable[[Any], str]]] = {
    Kind.NUMBER: _number,
    Kind.FLOAT: lambda value: repr(float(value) + 0.0),
    Kind.TEXT: _text,
    Kind.BYTES: lambda value: str(value.hex()),
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.TIME: _time,
    Kind.JSON: _json,
    Kind.VECTOR: _vector,
}


@dataclass(frozen=True, slots=True)
class CanonicalColumn:
    """A column of the source, with the expression that reads it without loss."""

    name: str
    kind: Kind
    expression: str


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The columns of a source table in order, and its primary key."""

    database: str
    name: str
    columns: tuple[CanonicalColumn, ...]
    key: tuple[str, ...]

    @property
    def select(self) -> str:
        """The statement that reads the whole table."""
        expressions = ", ".join(column.expression for column in self.columns)
        return f"SELECT {expressions} FROM {quoted(self.database, self.name)}"


def describe(connection: Connection, database: str, table: str) -> SourceTable:
    """Describe the columns of a table. Raises SchemaError if there is none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type, column_type FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, table),
        )
        columns = tuple(_column(*row) for row in cursor.fetchall())
        cursor.execute(
            "SELECT column_name FROM information_schema.statistics "
            "WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
            (database, table),
        )
        key = tuple(row[0] for row in cursor.fetchall())
    if not columns:
        raise SchemaError(f"the source has no table {database}.{table}")
    return SourceTable(database, table, columns, key)


def _column(name: str, data_type: str, column_type: str) -> CanonicalColumn:
    kind = Kind.NUMBER if column_type == "bit(1)" else _KINDS[data_type]
    return CanonicalColumn(name, kind, _expression(quoted(name), data_type))


def _expression(column: str, data_type: str) -> str:
    if data_type == "float":
        # FLOAT is printed with six digits; cast to a double, it shows its exact value.
        return f"CAST({column} AS DOUBLE)"
    if data_type == "vector":
        return f"HEX({column})"
    if data_type in _GEOMETRIES:
        # Four bytes of SRID followed by WKB, converted to EWKB.
        marked = (
            f"CONCAT(SUBSTRING({column}, 5, 4), x'20', SUBSTRING({column}, 1, 4), SUBSTRING({column}, 10))"
        )
        return f"IF(ST_SRID({column}) = 0, SUBSTRING({column}, 5), {marked})"
    return column


def use_utc(connection: Connection) -> None:
    """Let the session read TIMESTAMP columns as UTC, and all rows as they are, whatever the server's settings are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SET SESSION time_zone = '+00:00', sql_mode = '', sql_select_limit = 18446744073709551615"
        )


def source_rows(connection: Connection, table: SourceTable) -> list[CanonicalRow]:
    """Return all rows, sorted, as the open transaction sees them. The session must be in UTC (`use_utc`)."""
    with connection.cursor() as cursor:
        cursor.execute(table.select)
        rows = [
            tuple(canonical_value(c.kind, v) for c, v in zip(table.columns, row, strict=True))
            for row in cursor.fetchall()
        ]
    return sorted(rows, key=sort_key)


def sort_key(row: CanonicalRow) -> tuple[tuple[bool, bytes], ...]:
    """Return the sort key of a row, with NULL first."""
    return tuple((value is not None, value or b"") for value in row)
