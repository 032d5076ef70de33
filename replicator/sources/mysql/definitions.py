"""Read a table's current definition from the source: the last resort for events without a schema.

The schema-change topic has the definition that was valid when an event was written. If it has no definition of a
table, because it was not kept or never written, the source is queried. Its answer is the current definition: events
from before an ALTER may have had other columns.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, text

from replicator.config import SourceConfig
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, Encoding
from replicator.schema import mysql_types
from replicator.sources.mysql.connection import connect

_COLUMNS: Final = text(
    "SELECT column_name AS name, data_type AS kind, column_type AS whole, character_set_name AS charset, "
    "is_nullable AS nullable, numeric_precision AS digits, numeric_scale AS scale, datetime_precision AS fraction, "
    "character_maximum_length AS size, character_octet_length AS octets FROM information_schema.columns "
    "WHERE table_schema = :database AND table_name = :name ORDER BY ordinal_position"
)
_KEY: Final = text(
    "SELECT column_name FROM information_schema.statistics "
    "WHERE table_schema = :database AND table_name = :name AND index_name = 'PRIMARY' ORDER BY seq_in_index"
)
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")


def source_definition(source: SourceConfig, table: TableId) -> TableSchema | None:
    """Return the columns and the key of a table; None if the source has no such table.

    Raises:
        SourceError: the source cannot be queried.
    """
    with connect(source) as connection:
        columns = read_columns(connection, table)
        key = read_primary_key(connection, table)
    if not columns:
        return None
    return TableSchema(tuple(map(column_of, columns)), key).without_reserved()


def read_columns(connection: Connection, table: TableId) -> list[Mapping[str, Any]]:
    """Return a row of information_schema for each column of a table, in order; none if there is no such table."""
    wanted = {"database": table.database, "name": table.name}
    return [dict(row) for row in connection.execute(_COLUMNS, wanted).mappings()]


def read_primary_key(connection: Connection, table: TableId) -> tuple[str, ...]:
    """Return the columns of a table's primary key, in its order; none if it has none."""
    wanted = {"database": table.database, "name": table.name}
    return tuple(str(name) for (name,) in connection.execute(_KEY, wanted))


def column_of(row: Mapping[str, Any]) -> Column:
    """Build a column from its row of information_schema.columns, with the names of the query above."""
    whole = str(row["whole"])
    kind = mysql_types.declared(_type_name(row), _length(row), _scale(row), row["charset"])
    lake_type, encoding = mysql_types.stored(kind)
    if whole.startswith("tinyint(1)"):
        # It may have been BOOLEAN in the statement that the connector read.
        lake_type, encoding = INT, Encoding.FLAG
    # Labels are unescaped here, but escaped in events.
    labels = [label.replace("''", "'").replace("\\", "\\\\") for label in _LABEL.findall(whole)]
    respelt = mysql_types.respelt_labels(labels) if kind.name in ("ENUM", "SET") else ()
    nullable = row["nullable"] == "YES"
    return Column(
        str(row["name"]), lake_type, encoding, nullable, respelt=respelt, size=mysql_types.kept_size(kind)
    )


def _type_name(row: Mapping[str, Any]) -> str:
    return f"{row['kind']}{' unsigned' if ' unsigned' in row['whole'] else ''}"


def _length(row: Mapping[str, Any]) -> int | None:
    kind = str(row["kind"])
    if kind in ("decimal", "bit"):
        return int(row["digits"])
    if kind in ("datetime", "timestamp", "time"):
        return int(row["fraction"] or 0)
    return None if row["size"] is None or kind not in ("char", "varchar") else int(row["size"])


def _scale(row: Mapping[str, Any]) -> int | None:
    if row["kind"] == "float" and row["scale"] is None:
        return None
    return None if row["scale"] is None else int(row["scale"])
