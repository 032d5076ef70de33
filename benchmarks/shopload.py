"""Change ten tables of a real MySQL at a steady rate.

Run as a program it writes for a while and prints one JSON line with what it did. A separate process, so that
its work is not the mirror's.
"""

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

import pymysql
from pymysql.cursors import Cursor

from benchmarks.workload import DATABASE, Row, row

TABLES = tuple(f"orders_{index}" for index in range(10))
START_ROWS = 10_000
_PER_TRANSACTION = 10
_UPDATES, _INSERTS, _DELETES = 7, 2, 1
_WRITERS = 2
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME has no zone
_COLUMNS = (
    "id bigint NOT NULL PRIMARY KEY, quantity int NOT NULL, amount decimal(12,2) NOT NULL, "
    "status varchar(16) NOT NULL, note varchar(120) NOT NULL, updated_at datetime(6) NOT NULL"
)


@dataclass(frozen=True, slots=True)
class Server:
    """The address of MySQL, and a user who may write."""

    host: str
    port: int
    user: str
    password: str

    def connect(self) -> "pymysql.Connection[Cursor]":
        """Open a connection without autocommit."""
        return pymysql.connect(host=self.host, port=self.port, user=self.user, password=self.password)


def prepare(server: Server) -> None:
    """Create the database with its tables and their first rows; drop an earlier one."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        for table in TABLES:
            cursor.execute(f"CREATE TABLE {DATABASE}.{table} ({_COLUMNS})")
            _insert(cursor, table, [row(key, 0) for key in range(1, START_ROWS + 1)])
        connection.commit()


def sums(server: Server) -> dict[str, tuple[int, int]]:
    """Return (rows, sum of amounts in hundredths) of each table."""
    found = {}
    with server.connect() as connection, connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"SELECT count(*), CAST(sum(amount) * 100 AS SIGNED) FROM {DATABASE}.{table}")
            count, cents = cursor.fetchall()[0]
            found[table] = (int(count), int(cents or 0))
    return found


def _insert(cursor: Cursor, table: str, rows: list[Row]) -> None:
    # The client sends only this plain form as one statement for many rows.
    cursor.executemany(
        f"INSERT INTO {DATABASE}.{table} VALUES (%s, %s, %s, %s, %s, %s)",
        [
            (r.id, r.quantity, r.amount, r.status, r.note, _EPOCH + timedelta(microseconds=r.updated_us))
            for r in rows
        ],
    )


def _keys(cursor: Cursor, table: str) -> list[int]:
    cursor.execute(f"SELECT id FROM {DATABASE}.{table} ORDER BY id")
    return [key for (key,) in cursor.fetchall()]


class _Writer:
    """One connection with separate tables, so that no transaction waits for another writer."""

    def __init__(self, server: Server, index: int) -> None:
        self._tables = TABLES[index::_WRITERS]
        self._random = random.Random(index)
        self._server = server
        with server.connect() as connection, connection.cursor() as cursor:
            self._live = {table: _keys(cursor, table) for table in self._tables}
        self._next = max(map(max, self._live.values())) + 1

    def run(self, seconds: float, transactions_per_second: float) -> tuple[int, float]:
        """Write on a schedule until the time is over. Return (transactions, seconds behind the schedule)."""
        started = time.monotonic()
        done = 0
        with self._server.connect() as connection, connection.cursor() as cursor:
            while (due := done / transactions_per_second) < seconds:
                now = time.monotonic() - started
                if now < due:
                    time.sleep(due - now)
                self._transaction(cursor, self._tables[done % len(self._tables)])
                connection.commit()
                done += 1
        return done, max(0.0, time.monotonic() - started - seconds)

    def _transaction(self, cursor: Cursor, table: str) -> None:
        live = self._live[table]
        touched = self._random.sample(range(len(live)), _UPDATES + _DELETES)
        keys = ", ".join(str(live[place]) for place in touched[:_UPDATES])
        cents = self._random.randrange(1_000_000_000)
        cursor.execute(
            f"UPDATE {DATABASE}.{table} SET quantity = quantity + 1, "
            f"amount = {cents // 100}.{cents % 100:02d}, "
            f"note = CONCAT('changed at ', NOW(6)), updated_at = NOW(6) WHERE id IN ({keys})"
        )
        _insert(cursor, table, [row(key, 0) for key in range(self._next, self._next + _INSERTS)])
        place = touched[-1]
        cursor.execute(f"DELETE FROM {DATABASE}.{table} WHERE id = {live[place]}")
        live[place] = live[-1]
        live.pop()
        live.extend(range(self._next, self._next + _INSERTS))
        self._next += _INSERTS


def _main(server: Server, seconds: float, changes_per_second: float) -> None:
    pace = changes_per_second / _PER_TRANSACTION / _WRITERS
    with ThreadPoolExecutor(_WRITERS) as pool:
        runs = list(pool.map(lambda index: _Writer(server, index).run(seconds, pace), range(_WRITERS)))
    changes = sum(done for done, _ in runs) * _PER_TRANSACTION
    print(
        json.dumps({"changes": changes, "slipped_seconds": max(slipped for _, slipped in runs)}), flush=True
    )


if __name__ == "__main__":
    host, port, user = sys.argv[1:4]
    _main(Server(host, int(port), user, sys.stdin.readline().strip()), float(sys.argv[4]), float(sys.argv[5]))
