"""A table of a real MySQL server with any number of rows: eight columns of usual types, 155 bytes a row."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil
import pymysql
from pymysql.cursors import Cursor

from replicator.operations.stack import Endpoints, LocalStack

DATABASE: Final = "shop"
TABLE: Final = "readings"
_LOAD: Final = 1_000_000
_COLUMNS: Final = (
    "id BIGINT NOT NULL PRIMARY KEY, customer INT NOT NULL, name VARCHAR(60) NOT NULL, "
    "amount DECIMAL(12,2) NOT NULL, weight DOUBLE NOT NULL, created DATETIME(3) NOT NULL, note VARCHAR(120), "
    "active TINYINT NOT NULL"
)
_ROW: Final = (
    "n, n * 7919 % 1000003, CONCAT('customer number ', n * 31 % 999983), n * 37 % 1000000 / 100, n / 7, "
    "TIMESTAMPADD(SECOND, n % 100000000, '2021-01-01'), IF(n % 10 = 0, NULL, CONCAT('note ', SHA2(n, 224))), n % 2"
)


@contextmanager
def root_cursor(at: Endpoints) -> Iterator[Cursor]:
    """Connect to MySQL as root."""
    connection = pymysql.connect(
        host=at.mysql_host, port=at.mysql_port, user="root", password=at.mysql_root_password, autocommit=True,
        local_infile=True,
    )  # fmt: skip
    with connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION cte_max_recursion_depth = 10000000")
        yield cursor


def load_readings(at: Endpoints, rows: int) -> None:
    """Recreate the database with the table; its rows are not in the binlog."""
    with root_cursor(at) as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(f"CREATE TABLE {DATABASE}.{TABLE} ({_COLUMNS})")
        cursor.execute("SET SESSION sql_log_bin = 0")
        for start in range(0, rows, _LOAD):
            count = min(_LOAD, rows - start)
            cursor.execute(
                f"INSERT INTO {DATABASE}.{TABLE} WITH RECURSIVE numbers (n) AS "
                f"(SELECT {start + 1} UNION ALL SELECT n + 1 FROM numbers WHERE n < {start + count}) "
                f"SELECT {_ROW} FROM numbers"
            )
        cursor.execute(f"ANALYZE TABLE {DATABASE}.{TABLE}")


def mysql_process(stack: LocalStack) -> psutil.Process:
    """Return the process of the server."""
    pid = next(part.pid for part in stack.status() if part.part == "mysql")
    if pid is None:
        raise RuntimeError("MySQL does not run")
    return psutil.Process(pid)


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)
