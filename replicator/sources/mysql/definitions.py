"""Read the current definitions of tables from the source.

The schema-change topic has the definition that was valid when an event was written. It is compared with the one in the
source, which decides. If the topic has no definition of a table, because it was not kept or never written, the source's
is used; events from before an ALTER may have had other columns.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, bindparam, text

from replicator.config import SourceConfig
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, Encoding
from replicator.schema.history.comparison import SourceColumn, SourceDefinition
from replicator.schema.types import mysql
from replicator.schema.types.native import NativeType
from replicator.schema.types.table import NAMES
from replicator.sources.mysql.connection import connect

_SHOWN: Final = (
    "column_name AS name, data_type AS kind, column_type AS whole, character_set_name AS charset, "
    "is_nullable AS nullable, numeric_precision AS digits, numeric_scale AS scale, datetime_precision AS fraction, "
    "character_maximum_length AS size, character_octet_length AS octets, column_default AS given"
)
_COLUMNS: Final = text(
    f"SELECT {_SHOWN} FROM information_schema.columns "
    "WHERE table_schema = :database AND table_name = :name ORDER BY ordinal_position"
)
_ALL_COLUMNS: Final = text(
    f"SELECT table_schema AS `database`, table_name AS `table`, {_SHOWN} FROM information_schema.columns "
    "WHERE table_schema IN :databases ORDER BY table_schema, table_name, ordinal_position"
).bindparams(bindparam("databases", expanding=True))
_UNIQUE_KEYS: Final = text(
    "SELECT table_schema, table_name, index_name, column_name, nullable FROM information_schema.statistics "
    "WHERE non_unique = 0 AND table_schema IN :databases ORDER BY seq_in_index"
).bindparams(bindparam("databases", expanding=True))
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


def read_definitions(connection: Connection, tables: Collection[TableId]) -> dict[TableId, SourceDefinition]:
    """Return the definitions of those tables that the source has, read by two statements."""
    databases = sorted({table.database for table in tables})
    if not databases:
        return {}
    columns, keys = defaultdict[TableId, list[SourceColumn]](list), defaultdict[TableId, _Keys](_Keys)
    for row in connection.execute(_ALL_COLUMNS, {"databases": databases}).mappings():
        if (table := TableId(str(row["database"]), str(row["table"]))) in tables:
            columns[table].append(_source_column(dict(row)))
    for database, name, *key in connection.execute(_UNIQUE_KEYS, {"databases": databases}):
        keys[TableId(str(database), str(name))].add(*key)
    return {
        table: SourceDefinition(tuple(found), keys[table].primary, keys[table].unique)
        for table, found in columns.items()
    }


def _source_column(row: Mapping[str, Any]) -> SourceColumn:
    default = row["given"]
    # Numbers and ASCII are what they are in any character set.
    kept = None if default is None or str(default).isascii() else str(default)
    return SourceColumn(str(row["name"]), _native(row), column_of(row), kept)


@dataclass(slots=True)
class _Keys:
    """The unique keys of a table: name → columns, and the names of those that identify no row."""

    columns: dict[str, list[str]] = field(default_factory=dict)
    weak: set[str] = field(default_factory=set)

    def add(self, key: str, column: str | None, nullable: str | None) -> None:
        # A part of a key that is an expression has no column.
        self.columns.setdefault(key, []).append(column or "")
        if column is None or nullable == "YES":
            self.weak.add(key)

    @property
    def primary(self) -> tuple[str, ...]:
        return tuple(self.columns.get("PRIMARY", ()))

    @property
    def unique(self) -> frozenset[frozenset[str]]:
        return frozenset(frozenset(names) for key, names in self.columns.items() if key not in self.weak)


def _native(row: Mapping[str, Any]) -> NativeType:
    whole, kind, charset = str(row["whole"]), str(row["kind"]).upper(), row["charset"]
    if kind in ("ENUM", "SET"):
        # MySQL escapes them as in a statement.
        labels = (mysql.label_meant(label.replace("''", "'")) for label in _LABEL.findall(whole))
        return NativeType(kind, labels=tuple(labels))
    digits = _length(row) if kind not in ("BINARY", "VARBINARY") else int(row["octets"] or 0)
    unsigned = " unsigned" in whole or " zerofill" in whole
    return NativeType(
        NAMES.get(kind, kind),
        digits or 0,
        _scale(row),
        unsigned=unsigned,
        charset=None if charset is None else str(charset).upper(),
    )


def column_of(row: Mapping[str, Any]) -> Column:
    """Build a column from its row of information_schema.columns, with the names of the query above."""
    whole = str(row["whole"])
    kind = mysql.declared(_type_name(row), _length(row), _scale(row), row["charset"])
    lake_type, encoding = mysql.stored(kind)
    if whole.startswith("tinyint(1)"):
        # It may have been BOOLEAN in the statement that the connector read.
        lake_type, encoding = INT, Encoding.FLAG
    labels = [label.replace("''", "'") for label in _LABEL.findall(whole)]
    respelt = mysql.respelt_labels(labels) if kind.name in ("ENUM", "SET") else ()
    nullable = row["nullable"] == "YES"
    return Column(
        str(row["name"]), lake_type, encoding, nullable, respelt=respelt, size=mysql.kept_size(kind)
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
