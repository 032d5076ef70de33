"""Connect to the source database, and read the end of its binlog."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from replicator.config import SecretRef, SourceConfig, SourceUrl
from replicator.errors import LoginRefused, PrivilegeError, ReplicatorError, SourceError, SourceUnavailable
from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet
from replicator.sources.mysql.session import SESSION

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

    @property
    def name(self) -> str:
        """Its address as `host:port`."""
        return f"{self.url.host}:{self.url.port}"


@contextmanager
def connect(source: SourceConfig, *, read_timeout: float | None = None) -> Iterator[Connection]:
    """Open a connection to the source; see `connect_to`."""
    with connect_to(
        MySqlServer(source.server(), source.password, source.ssl_mode != "disabled"),
        read_timeout=read_timeout,
    ) as connection:
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
