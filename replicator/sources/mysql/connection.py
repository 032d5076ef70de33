"""Connect to the source database, and read the end of its binlog.

A server or an account may have other defaults for each of them (`SET GLOBAL`, `init_connect`). Expressions, literals
and results have the meaning that the engine assumes only with these.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

import pymysql

from replicator.config import Config, SecretRef, SourceConfig, SourceUrl
from replicator.errors import LoginRefused, PrivilegeError, ReplicatorError, SourceError, SourceUnavailable
from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet
from replicator.model.table import TableId

if TYPE_CHECKING:
    from sqlalchemy import Connection

Ask: TypeAlias = Callable[[str], Sequence[Sequence[Any]]]
"""Sends a statement as it is, and returns its rows."""

_SETTINGS: Final[Mapping[str, str]] = {
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
SESSION: Final = f"SET SESSION {', '.join(f'{k} = {v}' for k, v in _SETTINGS.items())} {_SINCE_8_0_30}"
"""The statement that makes the settings."""
_CONNECTOR_J: Final = {
    "sessionVariables": ",".join(f"{name}={value}" for name, value in _SETTINGS.items()),
    # Otherwise, the driver asks for text in the character sets of the columns, and decodes it by those of Java.
    "characterEncoding": "UTF-8",
    "characterSetResults": "UTF-8",
    "connectionTimeZone": "UTC",
    "forceConnectionTimeZoneToSession": "true",
    # Numbers and floats are sent in binary form.
    "useServerPrepStmts": "true",
    # A name such as {d'2001-01-01'} is a name.
    "processEscapeCodesForPrepStmts": "false",
    # Without TLS, the password is sent encrypted with the server's key.
    "allowPublicKeyRetrieval": "true",
    "tinyInt1isBit": "false",
    "yearIsDateType": "false",
    "tcpKeepAlive": "true",
}


def jdbc_url(source: SourceConfig) -> str:
    """Return the URL for Connector/J with all options, without user and password.

    Spark would change options outside the URL to lower case, and Connector/J ignores those that it does not know.
    """
    server = source.server()
    host = f"[{server.host}]" if ":" in server.host else server.host
    options = urlencode({**_CONNECTOR_J, "sslMode": source.ssl_mode.upper()})
    return f"jdbc:mysql://{host}:{server.port}/?{options}"


_CONNECT_TIMEOUT = 10  # seconds
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


@contextmanager
def connect(source: SourceConfig, *, read_timeout: float | None = None) -> "Iterator[Connection]":
    """Open a connection to the source; see `connect_to`."""
    with connect_to(MySqlServer.of(source), read_timeout=read_timeout) as connection:
        yield connection


@contextmanager
def connect_to(
    server: MySqlServer, *, connect_timeout: float = _CONNECT_TIMEOUT, read_timeout: float | None = None
) -> "Iterator[Connection]":
    """Open a connection to a server and close it at the end. A response may take `read_timeout` seconds.

    Raises SourceUnavailable if the server cannot be reached or refuses the login, and PrivilegeError if a
    statement inside needs a privilege that the user lacks.
    """
    # SQLAlchemy and its dialect take a third of a second to import; `asking` needs neither.
    from sqlalchemy import create_engine  # noqa: PLC0415
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    arguments = _arguments(server, connect_timeout, read_timeout)
    engine = create_engine("mysql+pymysql://", poolclass=NullPool, connect_args=arguments)
    try:
        with _explained(server, DBAPIError), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def asking(source: SourceConfig, *, read_timeout: float) -> Iterator[Ask]:
    """Open a connection for a few questions, with PyMySQL alone. Raises what `connect_to` raises."""
    server = MySqlServer.of(source)
    arguments = _arguments(server, _CONNECT_TIMEOUT, read_timeout)
    with _explained(server, pymysql.Error), closing(pymysql.connect(**arguments)) as connection:

        def ask(statement: str) -> Sequence[Sequence[Any]]:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return tuple(cursor.fetchall())

        yield ask


def asked(connection: "Connection") -> Ask:
    """Return how to ask over an open connection of SQLAlchemy."""
    from sqlalchemy import text  # noqa: PLC0415

    return lambda statement: connection.execute(text(statement)).all()


def server_version(connection: "Connection") -> tuple[int, ...]:
    """Return the three numbers of the server's version."""
    return _version(asked(connection))


def _version(ask: Ask) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", str(ask("SELECT VERSION()")[0][0]))[:3]))


def read_binlog_end(connection: "Connection") -> BinlogEnd:
    """Read the end of the server's binlog.

    Raises:
        SourceError: the server writes no binlog.
    """
    return binlog_end(asked(connection))


def binlog_end(ask: Ask) -> BinlogEnd:
    """Do the same as `read_binlog_end`."""
    rows = ask("SHOW BINARY LOG STATUS" if _version(ask) >= (8, 2) else "SHOW MASTER STATUS")
    if not rows:
        raise SourceError(
            "the server writes no binlog", "run: replicator check, which explains how to enable it"
        )
    row = rows[0]
    gtids = str(row[4] or "") if len(row) > 4 else ""
    return BinlogEnd(str(row[0]), int(row[1]), GtidSet.parse(gtids) if gtids.strip() else None)


def tables_for(config: Config, ask: Ask) -> list[TableId]:
    """Return the tables that the source has and the mirror includes."""
    rows = ask(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
    )
    found = sorted(TableId(str(database), str(name)) for database, name in rows)
    return [table for table in found if config.includes(str(table))]


def _arguments(server: MySqlServer, connect_timeout: float, read_timeout: float | None) -> dict[str, Any]:
    """Return the arguments of PyMySQL's `connect`."""
    url, password = server.url, server.password
    return {
        "host": url.host,
        "port": url.port,
        "user": url.user,
        "password": "" if password is None else password.reveal().get_secret_value(),
        "database": url.database,
        "charset": "utf8mb4",
        "connect_timeout": connect_timeout,
        "read_timeout": read_timeout,
        "init_command": SESSION,
        # Otherwise PyMySQL encrypts the connection if the server can.
        "ssl_disabled": not server.encrypted,
    }


@contextmanager
def _explained(server: MySqlServer, failure: type[Exception]) -> Iterator[None]:
    try:
        yield
    except failure as error:
        raise _explanation(error, server) from error
    except RuntimeError as error:
        # PyMySQL raises this if a login needs RSA without TLS and the package for it is missing.
        raise SourceUnavailable(f"cannot log in to {server.url}: {error}") from error


def _explanation(error: Exception, server: MySqlServer) -> ReplicatorError:
    url, (url_key, password_key) = server.url, server.keys
    arguments = getattr(getattr(error, "orig", error), "args", ())
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
