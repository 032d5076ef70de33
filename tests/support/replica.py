"""A second MySQL server, which replicates the databases of the stack's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pymysql

from replicator.operations.stack import Endpoints, LocalStack, Options
from tests.support.source import SourceDatabase

PASSWORD_VARIABLE: Final = "REPLICATOR_TEST_REPLICA_PASSWORD"
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
        password = 'env = "REPLICATOR_TEST_PASSWORD"'
        assert url in config
        assert password in config
        return config.replace(url, self.url).replace(password, f'env = "{PASSWORD_VARIABLE}"')

    def database(self, original: SourceDatabase) -> SourceDatabase:
        """Return the replica's copy of a database of its source."""
        return replace(original, stack=self.stack)

    def execute(self, *statements: str) -> None:
        """Run statements as root on the replica."""
        execute(self.server, *statements)

    def catch_up(self) -> None:
        """Wait until the replica has everything that the source has now."""
        (gtids,) = execute(self.source, "SELECT @@GLOBAL.gtid_executed")[0]
        waited = execute(self.server, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {_CATCH_UP_S})")
        assert waited[0][0] == 0, "the replica has not caught up"

    def restore(self) -> None:
        """Let it replicate without a delay, whatever a test did."""
        self.execute("STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 0", "START REPLICA")


@contextmanager
def mysql_server(folder: Path, *arguments: str) -> Iterator[LocalStack]:
    """Run another MySQL server, of the same version as the stack's, with more arguments."""
    options = Options(mysql=os.environ.get("REPLICATOR_MYSQL", ""), mysql_arguments=arguments)
    stack = LocalStack(folder, options)
    try:
        stack.up({"mysql"})
        yield stack
    finally:
        stack.remove()


@contextmanager
def replica_of(source: Endpoints, folder: Path) -> Iterator[Replica]:
    """Run a replica that has the databases which are created from now on. MySQL 8.0.23 or newer."""
    with mysql_server(folder, "--server-id=2") as stack:
        replica = Replica(source, stack.endpoints, stack)
        (gtids,) = execute(source, "SELECT @@GLOBAL.gtid_executed")[0]
        replica.execute(
            f"SET GLOBAL gtid_purged = '{gtids}'",
            "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, "
            f"SOURCE_HOST = '{source.mysql_host}', SOURCE_PORT = {source.mysql_port}, "
            f"SOURCE_USER = 'root', SOURCE_PASSWORD = '{source.mysql_root_password}'",
            "START REPLICA",
        )
        yield replica


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
