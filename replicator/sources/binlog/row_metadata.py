"""Build the definition of a table from the description that its row events have with `binlog_row_metadata = FULL`.

The result has all that decides what the connector makes of a row: names, types, signs, character sets, labels and the
primary key. Events do not have defaults, comments, other indexes and display widths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pymysql.charset import charset_by_name

from replicator.errors import BinlogError
from replicator.model.table import TableId
from replicator.sources.binlog import table_map as types
from replicator.sources.binlog.table_map import MapColumn, TableMap

_PLAIN: Final = {
    types.TINY: "TINYINT",
    types.SHORT: "SMALLINT",
    types.INT24: "MEDIUMINT",
    types.LONG: "INT",
    types.LONGLONG: "BIGINT",
    types.FLOAT: "FLOAT",
    types.DOUBLE: "DOUBLE",
    types.DATE: "DATE",
    types.YEAR: "YEAR",
    types.JSON: "JSON",
}
_FRACTIONS: Final = {types.TIMESTAMP: "TIMESTAMP", types.DATETIME: "DATETIME", types.TIME: "TIME"}
_BLOBS: Final = {1: "TINY", 2: "", 3: "MEDIUM", 4: "LONG"}
_GEOMETRIES: Final = (
    *("GEOMETRY", "POINT", "LINESTRING", "POLYGON"),
    *("MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"),
)


@dataclass(frozen=True, slots=True)
class Collation:
    """A collation of MySQL: its name, its character set, and the most bytes that a character takes."""

    name: str
    charset: str
    bytes: int


def quoted(name: str) -> str:
    """Quote an identifier."""
    return "`" + name.replace("`", "``") + "`"


def qualified(table: TableId) -> str:
    """Quote the name of a table, with its database."""
    return f"{quoted(table.database)}.{quoted(table.name)}"


def create_table(described: TableMap, collations: Mapping[int, Collation]) -> str:
    """Return CREATE TABLE for a described table. `collations` has MySQL's collations by their id.

    Raises:
        BinlogError: the description lacks names, or a column has an unknown type or collation.
    """
    if not described.has_names:
        raise BinlogError(
            f"the rows of {described.table} have no column names (binlog_row_metadata is not FULL)",
            "give the definitions of the tables with --definitions",
        )
    lines = [_column(described.table, column, collations) for column in described.columns]
    if described.key:
        key = (quoted(name) + (f"({size})" if size else "") for name, size in described.key)
        lines.append(f"PRIMARY KEY ({', '.join(key)})")
    return f"CREATE TABLE {qualified(described.table)} (" + ", ".join(lines) + ")"


def _column(table: TableId, column: MapColumn, collations: Mapping[int, Collation]) -> str:
    kind = _type(column, collations)
    if kind is None:
        raise BinlogError(
            f"column {column.name} of {table} has a type that is not known ({column.type})",
            "give the definitions of the tables with --definitions",
        )
    # A TIMESTAMP without NULL would be NOT NULL on servers with an old default.
    return f"{quoted(column.name)} {kind} {'NULL' if column.nullable else 'NOT NULL'}"


def _type(column: MapColumn, collations: Mapping[int, Collation]) -> str | None:
    low, high = column.meta & 0xFF, column.meta >> 8
    if (plain := _PLAIN.get(column.type)) is not None:
        return f"{plain} UNSIGNED" if column.unsigned else plain
    if (name := _FRACTIONS.get(column.type)) is not None:
        return f"{name}({low})"
    match column.type:
        case types.NEWDECIMAL:
            return f"DECIMAL({low}, {high}){' UNSIGNED' if column.unsigned else ''}"
        case types.BIT:
            # Whole bytes, and the bits that remain.
            return f"BIT({high * 8 + low})"
        case types.GEOMETRY:
            return _GEOMETRIES[column.subtype] if column.subtype < len(_GEOMETRIES) else None
        case types.VECTOR:
            return f"VECTOR({column.subtype})" if column.subtype else "VECTOR"
    return _text_type(column, collations.get(column.collation or 0))


def _text_type(column: MapColumn, collation: Collation | None) -> str | None:
    if collation is None:
        return None
    suffix = f" CHARACTER SET {collation.charset} COLLATE {collation.name}"
    binary = collation.charset == "binary"
    low, high = column.meta & 0xFF, column.meta >> 8
    match column.type:
        case types.ENUM | types.SET:
            try:
                encoding = charset_by_name(collation.charset).encoding
                labels = ", ".join(_literal(label.decode(encoding)) for label in column.labels)
            except (KeyError, LookupError, UnicodeDecodeError):
                return None
            return f"{'ENUM' if column.type == types.ENUM else 'SET'}({labels}){suffix}"
        case types.VARCHAR | types.VAR_STRING:
            size = column.meta
            return f"VARBINARY({size})" if binary else f"VARCHAR({size // collation.bytes}){suffix}"
        case types.STRING:
            # The two highest bits of the length are inverted in the byte of the type.
            size = high + (((low & 0x30) ^ 0x30) << 4)
            return f"BINARY({size})" if binary else f"CHAR({size // collation.bytes}){suffix}"
        case types.BLOB if low in _BLOBS:
            return f"{_BLOBS[low]}BLOB" if binary else f"{_BLOBS[low]}TEXT{suffix}"
    return None


def _literal(label: str) -> str:
    return "'" + label.replace("\\", "\\\\").replace("'", "''") + "'"
