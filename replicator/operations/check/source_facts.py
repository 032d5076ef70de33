"""Read the facts for the source's checks from MySQL, also what its user may do. Changes nothing there."""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from replicator.config import Config
from replicator.model.table import TableId
from replicator.sources.mysql.connection import connect
from replicator.sources.mysql.replication import read_replica_lag

_GRANT = re.compile(r"(?P<verb>GRANT|REVOKE) (?P<privileges>.+?) ON (?P<level>\S.*?) (?:TO|FROM) ", re.DOTALL)
_LEVEL = re.compile(
    r"(?:TABLE )?(?:`(?P<database>(?:[^`]|``)+)`|(?P<all>\*))\.(?:`(?P<table>(?:[^`]|``)+)`|\*)"
)
_OUTSIDE_PARENTHESES = re.compile(r",\s*(?![^()]*\))")

ALL = "ALL PRIVILEGES"


@dataclass(frozen=True, slots=True)
class Grants:
    """Privileges by level. Database names are MySQL's patterns: `%` and `_`, escaped by a backslash."""

    everywhere: frozenset[str] = frozenset()
    databases: tuple[tuple[str, frozenset[str]], ...] = ()
    tables: tuple[tuple[str, str, frozenset[str]], ...] = ()
    revoked: tuple[tuple[str, frozenset[str]], ...] = field(default=())

    def globally(self, *privileges: str) -> bool:
        """Return whether one of `privileges` is granted on everything."""
        return _any(self.everywhere, privileges)

    def somewhere(self, privilege: str) -> bool:
        """Return whether `privilege` is granted on at least one object."""
        levels = [
            self.everywhere,
            *(granted for _, granted in self.databases),
            *(g for _, _, g in self.tables),
        ]
        return any(_any(granted, (privilege,)) for granted in levels)

    def on_table(self, privilege: str, database: str, table: str) -> bool:
        """Return whether `privilege` is granted on one table, at any level."""
        if self.globally(privilege) and not any(
            name == database and _any(gone, (privilege,)) for name, gone in self.revoked
        ):
            return True
        return any(
            _like(pattern, database) and _any(granted, (privilege,)) for pattern, granted in self.databases
        ) or any(
            (owner, name) == (database, table) and _any(granted, (privilege,))
            for owner, name, granted in self.tables
        )


def parse_grants(lines: Iterable[str]) -> Grants:
    """Parse the lines of `SHOW GRANTS`; lines that grant roles or proxies contain no privileges."""
    everywhere: set[str] = set()
    databases: list[tuple[str, frozenset[str]]] = []
    tables: list[tuple[str, str, frozenset[str]]] = []
    revoked: list[tuple[str, frozenset[str]]] = []
    for line in lines:
        grant = _GRANT.match(line)
        level = _LEVEL.fullmatch(grant["level"]) if grant else None
        if grant is None or level is None:
            continue
        # A privilege on single columns, `SELECT (a, b)`, does not cover a table.
        names = (part.strip().upper() for part in _OUTSIDE_PARENTHESES.split(grant["privileges"]))
        privileges = frozenset(name for name in names if "(" not in name)
        database, table = (part and part.replace("``", "`") for part in (level["database"], level["table"]))
        if grant["verb"] == "REVOKE":
            revoked.append((database or "", privileges))
        elif database is None:
            everywhere |= privileges
        elif table is None:
            databases.append((database, privileges))
        else:
            tables.append((database, table, privileges))
    return Grants(frozenset(everywhere), tuple(databases), tuple(tables), tuple(revoked))


def _any(granted: frozenset[str], wanted: Iterable[str]) -> bool:
    return ALL in granted or not granted.isdisjoint(wanted)


def _like(pattern: str, name: str) -> bool:
    expression = re.sub(
        r"\\(.)|(%)|(_)|(.)",
        lambda found: ".*" if found[2] else "." if found[3] else re.escape(found[1] or found[4]),
        pattern,
        flags=re.DOTALL,
    )
    return re.fullmatch(expression, name, re.DOTALL) is not None


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
    "log_replica_updates",
    "log_slave_updates",
    "time_zone",
    "system_time_zone",
    "innodb_native_foreign_keys",
    "lower_case_table_names",
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
            grants=parse_grants(str(row[0]) for row in connection.execute(text("SHOW GRANTS"))),
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
    names = ", ".join(f"'{name}'" for name in VARIABLES)
    rows = connection.execute(text(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    return {str(name).lower(): str(value) for name, value in rows}


def _tables(connection: Connection, names: list[tuple[str, str]]) -> tuple[TableFacts, ...]:
    keyed = _pairs(connection, _KEYED)
    columns = _by_table(connection, _COLUMNS)
    key_columns = _by_table(connection, _KEY_COLUMNS)
    decimals = _by_table(connection, _WIDE_DECIMALS)
    cascades = _by_table(connection, _CASCADES)
    defaulted = _by_table(connection, _DEFAULTED)
    garbled = _by_table(connection, _GARBLED)
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
            tuple(garbled[database, name]),
        )
        for database, name in names
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

_GARBLED = f"""
    SELECT table_schema, table_name, column_name FROM information_schema.columns
    WHERE character_set_name IN ('armscii8', 'dec8', 'geostd8', 'hp8', 'keybcs2', 'koi8u', 'swe7')
      AND table_schema NOT IN {_SYSTEM}
    ORDER BY ordinal_position
"""


def _pairs(connection: Connection, query: str) -> set[tuple[str, str]]:
    return {(str(row[0]), str(row[1])) for row in connection.execute(text(query))}


def _by_table(connection: Connection, query: str) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for database, table, name in connection.execute(text(query)):
        found[str(database), str(table)].append(str(name))
    return found
