"""Run SQL on the stack's MySQL."""

from collections.abc import Iterator, Sequence

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT

from replicator.errors import StackError, UsageError
from replicator.operations.stack.state import Endpoints


def connect_as_root(where: Endpoints) -> Connection:
    """Connect to the stack's MySQL. Raises pymysql's errors."""
    return pymysql.connect(
        host=where.mysql_host,
        port=where.mysql_port,
        user="root",
        password=where.mysql_root_password,
        charset="utf8mb4",
        autocommit=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
    )


def run_sql(where: Endpoints, statements: str) -> Iterator[tuple[Sequence[str], Sequence[Sequence[object]]]]:
    """Run the statements as root; yield (column names, rows) of each that returns rows.

    Raises:
        StackError: MySQL does not respond.
        UsageError: MySQL refused a statement; those before it were executed.
    """
    try:
        connection = connect_as_root(where)
    except pymysql.err.OperationalError as error:
        raise StackError(
            f"MySQL does not respond: {error.args[-1]}", "see: replicator stack status"
        ) from error
    with connection, connection.cursor() as cursor:
        try:
            cursor.execute(statements)
            more: bool | None = True
            while more:
                if cursor.description:
                    yield [column[0] for column in cursor.description], cursor.fetchall()
                more = cursor.nextset()
        except pymysql.err.MySQLError as error:
            raise UsageError(f"MySQL refused the statement: {error.args[-1]}") from error
