"""A second MySQL server, which replicates the databases of the stack's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pymysql

from replicator.operations.stack import Endpoints, LocalStack, Options
from replicator.operations.stack.state import StackState, save_state
from tests.support.source import SourceDatabase

_CATCH_UP_S: Final = 120


@dataclass(frozen=True, slots=True)
class Replica:
    """A running replica of the server at `source`; `server` is its own address."""

    source: Endpoints
    server: Endpoints
    stack: LocalStack

    @property
    def url(self) -> str:
        """Its address, as the configuration has it."""
        return f"mysql://{self.server.mysql_user}@{self.server.mysql_host}:{self.server.mysql_port}"

    def as_source(self, config: str) -> str:
        """Return the text of a configuration with this server as the source."""
        there = self.source
        url = f"mysql://{there.mysql_user}@{there.mysql_host}:{there.mysql_port}"
        assert url in config
        return config.replace(url, self.url)

    def database(self, original: SourceDatabase) -> SourceDatabase:
        """Return the replica's copy of a database of its source."""
        return replace(original, stack=self.stack)

    def execute(self, *statements: str) -> None:
        """Run statements as root on the replica."""
        execute(self.server, *statements)

    def catch_up(self) -> None:
        """Wait until the replica has everything that the source has now."""
        catch_up(self.server, self.source)

    def restore(self) -> None:
        """Let it replicate without a delay, whatever a test did."""
        self.execute("STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 0", "START REPLICA")


@contextmanager
def mysql_server(folder: Path, *arguments: str, like: Endpoints | None = None) -> Iterator[LocalStack]:
    """Run another MySQL server, of the same version as the stack's, with more arguments; `like` has its passwords."""
    options = Options(mysql=os.environ.get("REPLICATOR_MYSQL", ""), mysql_arguments=arguments)
    stack = LocalStack(folder, options)
    if like is not None:
        folder.mkdir(parents=True)
        passwords = StackState(root_password=like.mysql_root_password, user_password=like.mysql_password)
        save_state(folder, passwords)
    try:
        stack.up({"mysql"})
        yield stack
    finally:
        stack.remove()


@contextmanager
def replica_of(source: Endpoints, folder: Path) -> Iterator[Replica]:
    """Run a replica that has the databases which are created from now on. MySQL 8.0.23 or newer.

    It has the same accounts, as a copy of its source would have.
    """
    with mysql_server(folder / "mysql2", "--server-id=2", like=source) as stack:
        replica = Replica(source, stack.endpoints, stack)
        (gtids,) = execute(source, "SELECT @@GLOBAL.gtid_executed")[0]
        replica.execute(f"SET GLOBAL gtid_purged = '{gtids}'")
        replicate(replica.server, source)
        yield replica


def replicate(server: Endpoints, source: Endpoints) -> None:
    """Let a server replicate what it lacks of another one, and all that follows."""
    execute(
        server,
        "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, "
        f"SOURCE_HOST = '{source.mysql_host}', SOURCE_PORT = {source.mysql_port}, "
        f"SOURCE_USER = 'root', SOURCE_PASSWORD = '{source.mysql_root_password}', "
        # A source that is started again is found again, however long that takes.
        "SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 0",
        "START REPLICA",
    )


def catch_up(server: Endpoints, source: Endpoints) -> None:
    """Wait until a server has everything that the one which it replicates has now."""
    (gtids,) = execute(source, "SELECT @@GLOBAL.gtid_executed")[0]
    waited = execute(server, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {_CATCH_UP_S})")
    assert waited[0][0] == 0, "the replica has not caught up"


def execute(server: Endpoints, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as root on a server, and return the rows of the last one."""
    connection = pymysql.connect(
        host=server.mysql_host,
        port=server.mysql_port,
        user="root",
        password=server.mysql_root_password,
        autocommit=True,
    )
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())
