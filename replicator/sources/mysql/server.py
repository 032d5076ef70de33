"""The source database: how to log in, what its errors mean, its tables and the end of its binlog.

A server or an account may have other defaults for each setting (`SET GLOBAL`, `init_connect`). Expressions, literals
and results have the meaning that the engine assumes only with these.

`open_source` needs no SQLAlchemy, which takes a tenth of a second to import and as long to connect.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pymysql

from replicator.config import Config, SecretRef, SourceConfig, SourceUrl
from replicator.errors import LoginRefused, PrivilegeError, ReplicatorError, SourceError, SourceUnavailable
from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet
from replicator.model.table import TableId

SETTINGS: Final[Mapping[str, str]] = {
    # TIMESTAMPs are read and compared in UTC.
    "time_zone": "'+00:00'",
    # Zero dates are no errors, quotes and operators have their usual meaning, and CHARs are not padded.
    "sql_mode": "''",
    "character_set_client": "'utf8mb4'",
    "character_set_connection": "'utf8mb4'",
    "character_set_results": "'utf8mb4'",
    # Whatever limits the server sets, queries return all rows, however long that takes.
    "sql_select_limit": "18446744073709551615",
    "max_execution_time": "0",
    "sql_big_selects": "1",
    "sql_auto_is_null": "0",
    "sql_quote_show_create": "1",
    # A slow writer does not end the connection.
    "net_write_timeout": "3600",
}
_SINCE_8_0_30: Final = "/*!80030 , show_gipk_in_create_table_and_information_schema = 1 */"
"""A key that MySQL generated is a column like others."""
SESSION: Final = f"SET SESSION {', '.join(f'{k} = {v}' for k, v in SETTINGS.items())} {_SINCE_8_0_30}"
"""The statement that makes the settings."""
CONNECT_TIMEOUT = 10  # seconds
_ACCESS_DENIED = (1044, 1045, 1698)
_LACKS_PRIVILEGE = (1142, 1143, 1227, 1370)
_UNKNOWN_DATABASE = 1049


@dataclass(frozen=True, slots=True)
class MySqlServer:
    """A MySQL server, and how to log in.

    Attributes:
        encrypted: whether the connection is encrypted if the server can.
        keys: the keys of the configuration with its address and its password, for messages.
    """

    url: SourceUrl
    password: SecretRef | None
    encrypted: bool = True
    keys: tuple[str, str] = ("source.url", "source.password")

    @classmethod
    def of(cls, source: SourceConfig) -> "MySqlServer":
        """Return the source itself."""
        return cls(source.server(), source.password, source.ssl_mode != "disabled")

    @property
    def name(self) -> str:
        """Its address as `host:port`."""
        return f"{self.url.host}:{self.url.port}"


class Queries(Protocol):
    """A connection: SQLAlchemy's, or that of `open_source`."""

    def exec_driver_sql(self, statement: str, /) -> Iterable[Sequence[Any]]:
        """Run a query without parameters, and return its rows."""
        ...


@dataclass(frozen=True, slots=True)
class _Connection:
    connection: Any

    def exec_driver_sql(self, statement: str, /) -> Sequence[Sequence[Any]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())


@contextmanager
def open_source(source: SourceConfig, read_timeout: float) -> Iterator[Queries]:
    """Open a connection to the source and close it at the end. Raises as `connection.connect_to`."""
    server = MySqlServer.of(source)
    address = server.url
    password = "" if server.password is None else server.password.reveal().get_secret_value()
    try:
        with pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=password,
            database=address.database,
            charset="utf8mb4",
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=read_timeout,
            init_command=SESSION,
            # Otherwise PyMySQL encrypts the connection if the server can.
            ssl_disabled=not server.encrypted,
        ) as connection:
            yield _Connection(connection)
    except pymysql.MySQLError as error:
        raise explained(error, server) from error
    except RuntimeError as error:
        # PyMySQL raises this if a login needs RSA without TLS and the package for it is missing.
        raise SourceUnavailable(f"cannot log in to {address}: {error}") from error


def server_version(connection: Queries) -> tuple[int, ...]:
    """Return the three numbers of the server's version."""
    [(version,)] = connection.exec_driver_sql("SELECT VERSION()")
    return tuple(map(int, re.findall(r"\d+", str(version))[:3]))


def read_binlog_end(connection: Queries) -> BinlogEnd:
    """Read the end of the server's binlog.

    Raises:
        SourceError: the server writes no binlog.
    """
    statement = "SHOW BINARY LOG STATUS" if server_version(connection) >= (8, 2) else "SHOW MASTER STATUS"
    row = next(iter(connection.exec_driver_sql(statement)), None)
    if row is None:
        raise SourceError(
            "the server writes no binlog", "run: replicator check, which explains how to enable it"
        )
    gtids = str(row[4] or "") if len(row) > 4 else ""
    return BinlogEnd(str(row[0]), int(row[1]), GtidSet.parse(gtids) if gtids.strip() else None)


def tables_in_source(connection: Queries, config: Config) -> list[TableId]:
    """Return the tables that the source has and the mirror includes."""
    rows = connection.exec_driver_sql(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
    )
    found = sorted(TableId(str(database), str(name)) for database, name in rows)
    return [table for table in found if config.includes(str(table))]


def explained(error: Exception, server: MySqlServer) -> ReplicatorError:
    """Return the error to raise for an error of PyMySQL, or of SQLAlchemy."""
    url, (url_key, password_key) = server.url, server.keys
    arguments = getattr(error, "orig", error).args
    code = arguments[0] if arguments and isinstance(arguments[0], int) else 0
    reason = str(arguments[-1]) if arguments else str(error)
    if code in _ACCESS_DENIED:
        return LoginRefused(
            f"MySQL at {server.name} refused the user {url.user}: {reason}",
            f"check {url_key}, and that {password_key} names the right variable or file",
        )
    if code == _UNKNOWN_DATABASE:
        return SourceUnavailable(
            f"MySQL at {server.name} has no database {url.database}",
            f"check the end of {url_key}",
        )
    if code in _LACKS_PRIVILEGE:
        return PrivilegeError(
            f"the MySQL user {url.user} lacks a privilege: {reason}",
            "run: replicator check, which lists the GRANTs",
        )
    return SourceUnavailable(
        f"cannot reach MySQL at {server.name}: {reason}",
        f"check that the server is running and that host and port in {url_key} are correct",
    )
