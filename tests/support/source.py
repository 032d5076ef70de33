"""A separate database for each test on the real MySQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from replicator.operations.stack import Endpoints, LocalStack

NOT_COMPARED = "\n[verify]\nenabled = false\n"


@dataclass(frozen=True, slots=True)
class SourceDatabase:
    """A database for one test on the real MySQL, with a topic prefix that no other test has.

    With `server`, it is on that server instead of the stack's.
    """

    stack: LocalStack
    name: str
    prefix: str
    server: Endpoints | None = None

    @property
    def endpoints(self) -> Endpoints:
        if self.server is None:
            return self.stack.endpoints
        there = self.stack.endpoints
        return replace(
            self.server,
            bootstrap_servers=there.bootstrap_servers,
            connect_url=there.connect_url,
            registry_url=there.registry_url,
        )

    def has_version(self, wanted: str) -> bool:
        """Return whether the server has the version `wanted`, such as 8.0.23, or a newer one."""
        return _numbers(self.endpoints.mysql_version) >= _numbers(wanted)

    def connect(self, **options: Any) -> Connection:
        """Connect as root; each statement is committed separately unless `autocommit=False`."""
        at = self.endpoints
        return pymysql.connect(
            host=at.mysql_host,
            port=at.mysql_port,
            user="root",
            password=at.mysql_root_password,
            database=self.name,
            # Tests may limit the sessions of others.
            init_command="SET SESSION sql_select_limit = 18446744073709551615",
            **{"autocommit": True, **options},
        )

    def execute(self, *statements: str) -> None:
        """Run statements, each in a separate transaction."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def config_text(self, folder: Path, extra: str = "") -> str:
        """Return a complete configuration for this database, with lake and state below `folder`.

        The password comes from the variable REPLICATOR_TEST_PASSWORD, which the fixture sets. Unless `extra` says
        otherwise, the connector reads the rows of new tables, tables are read again on command only, and rows are not
        compared with the source.
        """
        at = self.endpoints
        if "[bootstrap]" not in extra:
            extra += '\n[bootstrap]\nby = "connector"\n'
        if "[verify]" not in extra:
            # Tests of the engine must not pass because its faults are corrected.
            extra += NOT_COMPARED
        if "[heal]" not in extra:
            extra += '\n[heal]\nmode = "ask"\n'
        return f"""
[mirror]
name = "{self.prefix}"
state_dir = "{folder / "state"}"
[source]
url = "mysql://{at.mysql_user}@{at.mysql_host}:{at.mysql_port}/{self.name}"
password = {{ env = "REPLICATOR_TEST_PASSWORD" }}
tables = ["{self.name}.*"]
[log]
kind = "kafka"
bootstrap_servers = "{at.bootstrap_servers}"
topic_prefix = "{self.prefix}"
connect_url = "{at.connect_url}"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:{folder / "lake" / "catalog.db"}"
warehouse = "{folder / "lake"}"
namespace = "{self.name}"
{extra}
"""


@contextmanager
def small_statement_cache(database: SourceDatabase) -> Iterator[None]:
    """Let a large statement that changes a table without transactions lack its rows in the binlog."""
    sizes = ("max_binlog_stmt_cache_size", "binlog_stmt_cache_size")
    before = database.rows(f"SELECT @@{sizes[0]}, @@{sizes[1]}")[0]
    database.execute(f"SET GLOBAL {sizes[1]} = 4096", f"SET GLOBAL {sizes[0]} = 4096")
    try:
        yield
    finally:
        database.execute(*(f"SET GLOBAL {size} = {value}" for size, value in zip(sizes, before, strict=True)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
