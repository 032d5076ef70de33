"""Compute canonical rows and checksums of MySQL tables, the source's side of a comparison."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import pyarrow as pa
import pymysql
from pymysql.cursors import Cursor, SSCursor

from replicator.errors import SchemaError
from replicator.model.identifiers import quoted
from replicator.operations.verify.checksum import (
    CanonicalColumn,
    Kind,
    TableChecksum,
    canonical_value,
    checksum_texts,
    row_texts,
)

BATCH_ROWS = 10_000

_GEOMETRIES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geomcollection", "geometrycollection"),
)
_KINDS = {
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

Connection: TypeAlias = "pymysql.Connection[Cursor]"


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The columns of a source table in order, with the expression that reads each."""

    database: str
    name: str
    columns: tuple[CanonicalColumn, ...]
    key: tuple[str, ...]
    expressions: tuple[str, ...]

    @property
    def select(self) -> str:
        """Return the statement that reads the whole table."""
        return f"SELECT {', '.join(self.expressions)} FROM {quoted(self.database, self.name)}"


@dataclass(frozen=True, slots=True)
class SourceState:
    """The contents of a whole database at one binlog position."""

    server_version: str
    taken_at: datetime
    gtid_set: str
    binlog_file: str
    binlog_position: int
    tables: dict[str, tuple[SourceTable, TableChecksum]]


def describe(connection: Connection, database: str, table: str) -> SourceTable:
    """Describe the columns of a table. Raises SchemaError if one has a type that cannot be compared."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type, column_type, column_key FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, table),
        )
        found = cursor.fetchall()
        cursor.execute(
            "SELECT column_name FROM information_schema.statistics "
            "WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
            (database, table),
        )
        key = tuple(row[0] for row in cursor.fetchall())
    if not found:
        raise SchemaError(f"the source has no table {database}.{table}")
    columns, expressions = [], []
    for name, data_type, column_type, _ in found:
        kind = Kind.NUMBER if column_type == "bit(1)" else _KINDS.get(data_type)
        if kind is None:
            raise SchemaError(f"{database}.{table}.{name}: values of type {column_type} cannot be compared")
        columns.append(CanonicalColumn(name, kind))
        expressions.append(_expression(quoted(name), data_type))
    return SourceTable(database, table, tuple(columns), key, tuple(expressions))


def _expression(column: str, data_type: str) -> str:
    """Return the expression that reads a column without loss."""
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


def source_batches(connection: Connection, table: SourceTable) -> Iterator[list[pa.Array]]:
    """Yield the table's canonical texts by column, in batches of rows, as the open transaction sees them.

    The session's time zone must be UTC (`use_utc`).
    """
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(table.select)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield [
                pa.array([canonical_value(column.kind, value) for value in values], pa.large_binary())
                for column, values in zip(table.columns, zip(*rows, strict=True), strict=True)
            ]


def source_rows(connection: Connection, table: SourceTable) -> list[tuple[bytes | None, ...]]:
    """Return all rows as sorted tuples of canonical texts, to compare small tables row by row."""
    rows: list[tuple[bytes | None, ...]] = []
    for arrays in source_batches(connection, table):
        rows.extend(zip(*(array.to_pylist() for array in arrays), strict=True))
    return sorted(rows, key=sort_key)


def sort_key(row: tuple[bytes | None, ...]) -> tuple[tuple[bool, bytes], ...]:
    """Return the sort key of a row of canonical texts, with NULL first."""
    return tuple((value is not None, value or b"") for value in row)


def source_checksum(connection: Connection, table: SourceTable) -> TableChecksum:
    """Return the table's checksum, as the open transaction sees it."""
    total = TableChecksum()
    for arrays in source_batches(connection, table):
        total += checksum_texts(row_texts(arrays).to_pylist())
    return total


def use_utc(connection: Connection) -> None:
    """Let the session read TIMESTAMP columns as UTC, and all rows as they are, whatever the server's settings are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SET SESSION time_zone = '+00:00', sql_mode = '', sql_select_limit = 18446744073709551615"
        )


def database_state(connection: Connection, database: str) -> SourceState:
    """Return rows and checksum of every table of a database in one consistent transaction, and its position.

    A global read lock is held for the moment in which the transaction starts, so that the position is
    exactly what the transaction sees. Needs SELECT, RELOAD and REPLICATION CLIENT.
    """
    use_utc(connection)
    with connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        try:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            file, position, gtid_set = _log_status(cursor)
        finally:
            cursor.execute("UNLOCK TABLES")
        taken_at = datetime.now(UTC)
        cursor.execute("SELECT VERSION()")
        version = "".join(str(value) for value in cursor.fetchone() or ())
        cursor.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = %s AND table_type = 'BASE TABLE' ORDER BY table_name",
            (database,),
        )
        names = [row[0] for row in cursor.fetchall()]
    tables = {}
    for name in names:
        table = describe(connection, database, name)
        tables[f"{database}.{name}"] = (table, source_checksum(connection, table))
    connection.rollback()
    return SourceState(version, taken_at, gtid_set, file, position, tables)


def _log_status(cursor: Cursor) -> tuple[str, int, str]:
    try:
        cursor.execute("SHOW BINARY LOG STATUS")
    except pymysql.err.ProgrammingError:  # before 8.2
        cursor.execute("SHOW MASTER STATUS")
    row = cursor.fetchone()
    if row is None:
        raise SchemaError("the server writes no binary log", "Start it with --log-bin.")
    return str(row[0]), int(row[1]), str(row[4]).replace("\n", "")
