"""Connect to the source database, and read the end of its binlog."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from replicator.config import SourceConfig
from replicator.errors import PrivilegeError, ReplicatorError, SourceError, SourceUnavailable
from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet

_CONNECT_TIMEOUT = 10  # seconds
_ACCESS_DENIED = (1044, 1045, 1698)
_LACKS_PRIVILEGE = (1142, 1143, 1227, 1370)
_UNKNOWN_DATABASE = 1049


@contextmanager
def connect(source: SourceConfig, *, read_timeout: float | None = None) -> Iterator[Connection]:
    """Open a connection to the source and close it at the end. A response may take `read_timeout` seconds.

    Raises SourceUnavailable if the server cannot be reached or refuses the login, and PrivilegeError if a
    statement inside needs a privilege that the user lacks.
    """
    server = source.server()
    password = None if source.password is None else source.password.reveal().get_secret_value()
    url = URL.create(
        "mysql+pymysql",
        server.user,
        password,
        server.host,
        server.port,
        server.database,
        {"charset": "utf8mb4"},
    )
    arguments = {
        "connect_timeout": _CONNECT_TIMEOUT,
        "read_timeout": read_timeout,
        # Otherwise PyMySQL encrypts the connection if the server can.
        "ssl_disabled": source.ssl_mode == "disabled",
    }
    engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise _explained(error, source) from error
    except RuntimeError as error:
        # PyMySQL raises this if a login needs RSA without TLS and the package for it is missing.
        raise SourceUnavailable(f"cannot log in to {server}: {error}") from error
    finally:
        engine.dispose()


def read_binlog_end(connection: Connection) -> BinlogEnd:
    """Read the end of the server's binlog.

    Raises:
        SourceError: the server writes no binlog.
    """
    version = tuple(
        int(part) for part in re.findall(r"\d+", str(connection.scalar(text("SELECT VERSION()"))))[:2]
    )
    statement = "SHOW BINARY LOG STATUS" if version >= (8, 2) else "SHOW MASTER STATUS"
    row = connection.execute(text(statement)).first()
    if row is None:
        raise SourceError(
            "the server writes no binlog", "run: replicator check, which explains how to enable it"
        )
    gtids = str(row[4] or "") if len(row) > 4 else ""
    return BinlogEnd(str(row[0]), int(row[1]), GtidSet.parse(gtids) if gtids.strip() else None)


def _explained(error: Exception, source: SourceConfig) -> ReplicatorError:
    server = source.server()
    arguments = getattr(getattr(error, "orig", None), "args", ())
    code = arguments[0] if arguments and isinstance(arguments[0], int) else 0
    reason = str(arguments[-1]) if arguments else str(error)
    if code in _ACCESS_DENIED:
        return SourceUnavailable(
            f"MySQL at {server.host}:{server.port} refused the user {server.user}: {reason}",
            "check source.url, and that source.password names the right variable or file",
        )
    if code == _UNKNOWN_DATABASE:
        return SourceUnavailable(
            f"MySQL at {server.host}:{server.port} has no database {server.database}",
            "check the end of source.url",
        )
    if code in _LACKS_PRIVILEGE:
        return PrivilegeError(
            f"the MySQL user {server.user} lacks a privilege: {reason}",
            "run: replicator check, which lists the GRANTs",
        )
    return SourceUnavailable(
        f"cannot reach MySQL at {server.host}:{server.port}: {reason}",
        "check that the server is running and that host and port in source.url are correct",
    )
