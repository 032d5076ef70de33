"""Connections to the source database."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from replicator.config import SourceConfig
from replicator.errors import PrivilegeError, ReplicatorError, SourceUnavailable

_CONNECT_TIMEOUT = 10  # seconds
_ACCESS_DENIED = (1044, 1045, 1698)
_LACKS_PRIVILEGE = (1142, 1143, 1227, 1370)
_UNKNOWN_DATABASE = 1049


@contextmanager
def connect(source: SourceConfig) -> Iterator[Connection]:
    """A connection to the source that is closed at the end.

    Raises SourceUnavailable where the server cannot be reached or refuses the login, and PrivilegeError where
    a statement inside needs a privilege that the user lacks.
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
    engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": _CONNECT_TIMEOUT})
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise _explained(error, source) from error
    except RuntimeError as error:
        # PyMySQL's word for a login that needs RSA without TLS and without the package for it.
        raise SourceUnavailable(f"cannot log in to {server}: {error}") from error
    finally:
        engine.dispose()


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
            f"the MySQL user {server.user} may not do this: {reason}",
            "run: replicator check, which lists the GRANTs",
        )
    return SourceUnavailable(
        f"cannot reach MySQL at {server.host}:{server.port}: {reason}",
        "is the server running, and do host and port in source.url fit?",
    )
