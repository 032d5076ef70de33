"""Connect to the source database with SQLAlchemy; for Spark, the options of its driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlencode

from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from replicator.config import SourceConfig
from replicator.errors import SourceUnavailable
from replicator.sources.mysql.server import CONNECT_TIMEOUT, SESSION, SETTINGS, MySqlServer, explained

_CONNECTOR_J: Final = {
    "sessionVariables": ",".join(f"{name}={value}" for name, value in SETTINGS.items()),
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


@contextmanager
def connect(source: SourceConfig, *, read_timeout: float | None = None) -> Iterator[Connection]:
    """Open a connection to the source; see `connect_to`."""
    with connect_to(MySqlServer.of(source), read_timeout=read_timeout) as connection:
        yield connection


@contextmanager
def connect_to(
    server: MySqlServer, *, connect_timeout: float = CONNECT_TIMEOUT, read_timeout: float | None = None
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
        raise explained(error, server) from error
    except RuntimeError as error:
        # PyMySQL raises this if a login needs RSA without TLS and the package for it is missing.
        raise SourceUnavailable(f"cannot log in to {address}: {error}") from error
    finally:
        engine.dispose()
