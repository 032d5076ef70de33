"""Read the facts for the source's checks from MySQL, also what its user may do. Changes nothing there."""

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from replicator.config import Config
from replicator.model.table import TableId
from replicator.sources.mysql.connection import connect
from replicator.sources.mysql.replication import read_replica_lag

_EVERYWHERE = re.compile(r"GRANT (.+) ON \*\.\* TO ", re.DOTALL)
_NO_UTF8 = frozenset({"armscii8", "dec8", "geostd8", "hp8", "keybcs2", "koi8u", "swe7"})
"""Character sets that Debezium decodes wrongly."""
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Grants:
    """Privileges of the account, from the lines of `SHOW GRANTS`, which have those of its active roles too."""

    lines: tuple[str, ...] = ()

    def globally(self, *privileges: str) -> bool:
        """Return whether one of `privileges` is granted on everything."""
        grants = (found[1].upper().split(", ") for line in self.lines if (found := _EVERYWHERE.match(line)))
        return any(
            "ALL PRIVILEGES" in granted or not set(privileges).isdisjoint(granted) for granted in grants
        )

    def locks_tables(self) -> bool:
        """Return whether LOCK TABLES is granted on everything, or on some databases."""
        return any(
            re.match(r"GRANT (?:.*, )?(?:LOCK TABLES|ALL PRIVILEGES)[, ]", line) for line in self.lines
        )


_SYSTEM = "('mysql', 'sys', 'performance_schema', 'information_schema')"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One mirrored table.

    Attributes:
        has_primary_key: whether it has a primary key, or a unique key on columns that are NOT NULL.
        columns: the names of its columns.
        key_columns: the columns of its primary key.
        wide_decimals: columns of type DECIMAL with more than 38 digits.
        cascades: names of foreign keys through which a change to another table changes this table's rows.
        defaulted: nullable columns with a default other than NULL.
        garbled: text columns with a character set that the connector decodes wrongly.
        is_readable: whether the account may select all its columns.
    """

    database: str
    name: str
    has_primary_key: bool = True
    columns: tuple[str, ...] = ()
    key_columns: tuple[str, ...] = ()
    wide_decimals: tuple[str, ...] = ()
    cascades: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    garbled: tuple[str, ...] = ()
    is_readable: bool = True

    @property
    def id(self) -> TableId:
        return TableId(self.database, self.name)

    def __str__(self) -> str:
        return str(self.id)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Facts about the source.

    Attributes:
        tables: the mirrored tables.
        clock_ahead: the server's clock minus this machine's, in seconds.
        excluded: the other tables, as `database.table`.
        is_replica: whether the server is a replica; False if the user may not know.
    """

    user: str
    variables: Mapping[str, str]
    grants: Grants
    tables: tuple[TableFacts, ...]
    clock_ahead: float = 0.0
    excluded: tuple[str, ...] = ()
    is_replica: bool = False


def read_source_facts(config: Config) -> SourceFacts:
    """Query the server. Raises SourceUnavailable."""
    with connect(config.source) as connection:
        names = sorted(_pairs(connection, _TABLES))
        return SourceFacts(
            user=str(connection.scalar(text("SELECT CURRENT_USER()"))),
            variables=_variables(connection),
            grants=Grants(tuple(str(row[0]) for row in connection.execute(text("SHOW GRANTS")))),
            tables=_tables(connection, [pair for pair in names if config.includes(".".join(pair))]),
            clock_ahead=float(connection.scalar(text("SELECT UNIX_TIMESTAMP(NOW(6))")) or 0) - time.time(),
            excluded=tuple(name for pair in names if not config.includes(name := ".".join(pair))),
            is_replica=_is_replica(connection),
        )


def _is_replica(connection: Connection) -> bool:
    try:
        return read_replica_lag(connection) is not None
    except DBAPIError:
        # It needs REPLICATION CLIENT, which another check reports.
        return False


def _variables(connection: Connection) -> dict[str, str]:
    rows = connection.execute(text("SHOW GLOBAL VARIABLES"))
    return {str(name).lower(): str(value) for name, value in rows}


def _tables(connection: Connection, names: list[tuple[str, str]]) -> tuple[TableFacts, ...]:
    keyed = _pairs(connection, _KEYED)
    columns, key_columns, cascades = (
        _by_table(connection, query) for query in (_COLUMNS, _KEY_COLUMNS, _CASCADES)
    )
    return tuple(
        TableFacts(
            *name,
            has_primary_key=name in keyed,
            columns=tuple(c.column_name for c in columns[name]),
            key_columns=tuple(c.column_name for c in key_columns[name]),
            wide_decimals=tuple(
                c.column_name
                for c in columns[name]
                if c.data_type == "decimal" and c.numeric_precision > _MOST_DIGITS
            ),
            cascades=tuple(c.constraint_name for c in cascades[name]),
            defaulted=tuple(c.column_name for c in columns[name] if c.has_default),
            garbled=tuple(c.column_name for c in columns[name] if c.character_set_name in _NO_UTF8),
            is_readable=all("select" in c.privileges.split(",") for c in columns[name]),
        )
        for name in names
    )


_TABLES = f"""
    SELECT table_schema, table_name FROM information_schema.tables
    WHERE table_type = 'BASE TABLE' AND table_schema NOT IN {_SYSTEM}
"""
_KEYED = f"""
    SELECT table_schema, table_name FROM information_schema.statistics
    WHERE non_unique = 0 AND table_schema NOT IN {_SYSTEM}
    GROUP BY table_schema, table_name, index_name HAVING SUM(nullable = 'YES' OR column_name IS NULL) = 0
"""
_COLUMNS = f"""
    SELECT table_schema AS `database`, table_name AS `table`, column_name AS column_name, data_type AS data_type,
      numeric_precision AS numeric_precision, character_set_name AS character_set_name,
      is_nullable = 'YES' AND column_default IS NOT NULL AS has_default, privileges AS privileges
    FROM information_schema.columns WHERE table_schema NOT IN {_SYSTEM} ORDER BY ordinal_position
"""
_KEY_COLUMNS = f"""
    SELECT table_schema AS `database`, table_name AS `table`, column_name AS column_name
    FROM information_schema.statistics
    WHERE index_name = 'PRIMARY' AND table_schema NOT IN {_SYSTEM} ORDER BY seq_in_index
"""
_CASCADES = f"""
    SELECT constraint_schema AS `database`, table_name AS `table`, constraint_name AS constraint_name
    FROM information_schema.referential_constraints
    WHERE (delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL'))
      AND constraint_schema NOT IN {_SYSTEM}
    ORDER BY constraint_name
"""


def _pairs(connection: Connection, query: str) -> set[tuple[str, str]]:
    return {(str(row[0]), str(row[1])) for row in connection.execute(text(query))}


def _by_table(connection: Connection, query: str) -> dict[tuple[str, str], list[Any]]:
    """Return the rows of a query by table."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in connection.execute(text(query)):
        found[str(row.database), str(row.table)].append(row)
    return found
