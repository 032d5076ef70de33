"""Connect to the source database, and read the end of its binlog.

A server or an account may have other defaults for each of them (`SET GLOBAL`, `init_connect`). Expressions, literals
and results have the meaning that the engine assumes only with these.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from replicator.config import SecretRef, SourceConfig, SourceUrl
from replicator.errors import LoginRefused, PrivilegeError, ReplicatorError, SourceError, SourceUnavailable
from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet

if TYPE_CHECKING:
    from pymysql.connections import Connection as Driver

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


class StatementError(Exception):
    """A statement failed; it has the arguments of the driver's error."""

    @property
    def code(self) -> int:
        """MySQL's number of the error; 0 if there is none."""
        return self.args[0] if self.args and isinstance(self.args[0], int) else 0


class Connection:
    """An open connection to a server, which commits each statement. For one thread at a time.

    All methods raise StatementError, which becomes an error of the source where the connection was opened.

    Attributes:
        driver: the connection of PyMySQL.
    """

    def __init__(self, driver: "Driver[Any]") -> None:
        self.driver = driver

    def rows(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        """Send a statement, and return its rows. `values` take the places of ``%s``; without any, it is sent as is."""
        with self._failing(), self.driver.cursor() as cursor:
            cursor.execute(statement, values or None)
            return tuple(cursor.fetchall())

    def named_rows(self, statement: str, *values: object) -> Sequence[Mapping[str, Any]]:
        """Do the same, but return column → value for each row."""
        with self._failing(), self.driver.cursor() as cursor:
            cursor.execute(statement, values or None)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def first(self, statement: str, *values: object) -> Sequence[Any] | None:
        """Send a statement, and return its first row; None if it has none."""
        return next(iter(self.rows(statement, *values)), None)

    def value(self, statement: str, *values: object) -> Any:
        """Send a statement, and return the first value of its first row; None if it has no rows."""
        row = self.first(statement, *values)
        return None if row is None else row[0]

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except self.driver.Error as error:
            raise StatementError(*error.args) from error


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
    # Slow to import, and not needed for an archive.
    import pymysql  # noqa: PLC0415

    try:
        with closing(pymysql.connect(**_arguments(server, connect_timeout, read_timeout))) as driver:
            yield Connection(driver)
    except (pymysql.Error, StatementError) as error:
        raise _explanation(error, server) from error
    except RuntimeError as error:
        # PyMySQL raises this if a login needs RSA without TLS and the package for it is missing.
        raise SourceUnavailable(f"cannot log in to {server.url}: {error}") from error


def server_version(connection: Connection) -> tuple[int, ...]:
    """Return the three numbers of the server's version."""
    return tuple(map(int, re.findall(r"\d+", str(connection.value("SELECT VERSION()")))[:3]))


def read_binlog_end(connection: Connection) -> BinlogEnd:
    """Read the end of the server's binlog.

    Raises:
        SourceError: the server writes no binlog.
    """
    is_new = server_version(connection) >= (8, 2)
    row = connection.first("SHOW BINARY LOG STATUS" if is_new else "SHOW MASTER STATUS")
    if row is None:
        raise SourceError(
            "the server writes no binlog", "run: replicator check, which explains how to enable it"
        )
    gtids = str(row[4] or "") if len(row) > 4 else ""
    return BinlogEnd(str(row[0]), int(row[1]), GtidSet.parse(gtids) if gtids.strip() else None)


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
        "autocommit": True,
        # Otherwise PyMySQL encrypts the connection if the server can.
        "ssl_disabled": not server.encrypted,
    }


def _explanation(error: Exception, server: MySqlServer) -> ReplicatorError:
    url, (url_key, password_key) = server.url, server.keys
    code, reason = StatementError(*error.args).code, str(error.args[-1] if error.args else error)
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
