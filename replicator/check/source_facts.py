"""Reads from MySQL what the source's checks need to know. Changes nothing there."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from replicator.check.grants import Grants, parse_grants
from replicator.config import Config
from replicator.mysql import connect

VARIABLES = (
    "version",
    "version_comment",
    "log_bin",
    "server_id",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_value_options",
    "binlog_row_metadata",
    "binlog_transaction_compression",
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "gtid_mode",
    "time_zone",
    "system_time_zone",
)

_SYSTEM = "('mysql', 'sys', 'performance_schema', 'information_schema')"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One included table.

    Attributes:
        has_primary_key: a primary key, or a unique key whose columns allow no NULL.
        columns: the names of its columns.
        key_columns: those of its primary key.
        wide_decimals: columns of type DECIMAL with more than 38 digits.
        cascades: names of foreign keys by which another table's change alters this table's rows.
        defaulted: columns that may be NULL and have a default that is not.
    """

    database: str
    name: str
    has_primary_key: bool = True
    columns: tuple[str, ...] = ()
    key_columns: tuple[str, ...] = ()
    wide_decimals: tuple[str, ...] = ()
    cascades: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What there is at the source; `clock_ahead` is the server's clock minus this machine's, in seconds."""

    user: str
    variables: Mapping[str, str]
    grants: Grants
    tables: tuple[TableFacts, ...]
    clock_ahead: float = 0.0


def read_source_facts(config: Config) -> SourceFacts:
    """Ask the server. Raises SourceUnavailable."""
    with connect(config.source) as connection:
        return SourceFacts(
            user=str(connection.scalar(text("SELECT CURRENT_USER()"))),
            variables=_variables(connection),
            grants=parse_grants(str(row[0]) for row in connection.execute(text("SHOW GRANTS"))),
            tables=_tables(connection, config),
            clock_ahead=float(connection.scalar(text("SELECT UNIX_TIMESTAMP(NOW(6))")) or 0) - time.time(),
        )


def _variables(connection: Connection) -> dict[str, str]:
    names = ", ".join(f"'{name}'" for name in VARIABLES)
    rows = connection.execute(text(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    return {str(name).lower(): str(value) for name, value in rows}


def _tables(connection: Connection, config: Config) -> tuple[TableFacts, ...]:
    keyed = _pairs(connection, _KEYED)
    columns = _by_table(connection, _COLUMNS)
    key_columns = _by_table(connection, _KEY_COLUMNS)
    decimals = _by_table(connection, _WIDE_DECIMALS)
    cascades = _by_table(connection, _CASCADES)
    defaulted = _by_table(connection, _DEFAULTED)
    return tuple(
        TableFacts(
            database,
            name,
            (database, name) in keyed,
            tuple(columns[database, name]),
            tuple(key_columns[database, name]),
            tuple(decimals[database, name]),
            tuple(cascades[database, name]),
            tuple(defaulted[database, name]),
        )
        for database, name in sorted(_pairs(connection, _TABLES))
        if config.includes(f"{database}.{name}")
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
    SELECT table_schema, table_name, column_name FROM information_schema.columns
    WHERE table_schema NOT IN {_SYSTEM} ORDER BY ordinal_position
"""
_KEY_COLUMNS = f"""
    SELECT table_schema, table_name, column_name FROM information_schema.statistics
    WHERE index_name = 'PRIMARY' AND table_schema NOT IN {_SYSTEM} ORDER BY seq_in_index
"""
_WIDE_DECIMALS = f"""
    SELECT table_schema, table_name, column_name FROM information_schema.columns
    WHERE data_type = 'decimal' AND numeric_precision > 38 AND table_schema NOT IN {_SYSTEM}
    ORDER BY ordinal_position
"""
_CASCADES = f"""
    SELECT constraint_schema, table_name, constraint_name FROM information_schema.referential_constraints
    WHERE (delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL'))
      AND constraint_schema NOT IN {_SYSTEM}
    ORDER BY constraint_name
"""
_DEFAULTED = f"""
    SELECT table_schema, table_name, column_name FROM information_schema.columns
    WHERE is_nullable = 'YES' AND column_default IS NOT NULL AND table_schema NOT IN {_SYSTEM}
    ORDER BY ordinal_position
"""


def _pairs(connection: Connection, query: str) -> set[tuple[str, str]]:
    return {(str(row[0]), str(row[1])) for row in connection.execute(text(query))}


def _by_table(connection: Connection, query: str) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for database, table, name in connection.execute(text(query)):
        found[str(database), str(table)].append(str(name))
    return found
