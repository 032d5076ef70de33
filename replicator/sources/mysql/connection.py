"""Connect to the source database, and read the end of its binlog.

A server or an account may have other defaults for each of them (`SET GLOBAL`, `init_connect`). Expressions, literals
and results have the meaning that the engine assumes only with these.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from replicator.config import SecretRef, SourceConfig, SourceUrl
from replicator.errors import LoginRefused, PrivilegeError, ReplicatorError, SourceError, SourceUnavailable
from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet

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
def connect(source: SourceConfig, *, read_timeout: float | None = None) -> Iterator[Connection]:
    """Open a connection to the source; see `connect_to`."""
    with connect_to(MySqlServer.of(source), read_timeout=read_timeout) as connection:
        yield connection


@contextmanager
def connect_to(
    server: MySqlServer, *, connect_timeout: float = _CONNECT_TIMEOUT, read_timeout: float | None = None
) -> Iterator[Connection]:
    """Open a connection to a server and close it at the end. A response may take `read_timeout` seconds.

    Raises SourceUnavailable if the server cannot be reached or refuses the login, and PrivilegeError if a
    statement inside needs a privilege that the user lacks.
    """
    address = server.url
    password = None if server.password is None else server.password.reveal().get_secret_value()
    url = URL.create(
        "mysql+pymysql",
        address.user,
        password,
        address.host,
        address.port,
        address.database,
        {"charset": "utf8mb4"},
    )
    arguments = {
        "connect_timeout": connect_timeout,
        "read_timeout": read_timeout,
        "init_command": SESSION,
        # Otherwise PyMySQL encrypts the connection if the server can.
        "ssl_disabled": not server.encrypted,
    }
    engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise _explained(error, server) from error
    except RuntimeError as error:
        # PyMySQL raises this if a login needs RSA without TLS and the package for it is missing.
        raise SourceUnavailable(f"cannot log in to {address}: {error}") from error
    finally:
        engine.dispose()


def server_version(connection: Connection) -> tuple[int, ...]:
    """Return the three numbers of the server's version."""
    return tuple(map(int, re.findall(r"\d+", str(connection.scalar(text("SELECT VERSION()"))))[:3]))


def read_binlog_end(connection: Connection) -> BinlogEnd:
    """Read the end of the server's binlog.

    Raises:
        SourceError: the server writes no binlog.
    """
    statement = "SHOW BINARY LOG STATUS" if server_version(connection) >= (8, 2) else "SHOW MASTER STATUS"
    row = connection.execute(text(statement)).first()
    if row is None:
        raise SourceError(
            "the server writes no binlog", "run: replicator check, which explains how to enable it"
        )
    gtids = str(row[4] or "") if len(row) > 4 else ""
    return BinlogEnd(str(row[0]), int(row[1]), GtidSet.parse(gtids) if gtids.strip() else None)


def _explained(error: Exception, server: MySqlServer) -> ReplicatorError:
    url, (url_key, password_key) = server.url, server.keys
    arguments = getattr(getattr(error, "orig", None), "args", ())
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
