"""A web shop in a real MySQL, and a steady load on it: orders come and change, customers come by and sometimes move.

Run as a program it writes for a while and prints one JSON line with what it did. A separate process, so that its work
is not that of an engine.

Ten times a second, an order of the customer `PROBE` is committed on its own. Nothing else changes such orders, and no
other customer is in `PROBE_COUNTRY`. So in each table that is computed of orders, a row tells how many of them it has.
"""

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

import pymysql
from pymysql.cursors import Cursor

from benchmarks.shopload import Server

DATABASE: Final = "shop"
PROBE: Final = 0
"""The customer of the probes, and their product."""
PROBE_COUNTRY: Final = "ZZ"
CUSTOMERS: Final = 50_000
_PRODUCTS: Final = 500
_FIRST_ORDER: Final = 1_000_001
"""Ids below it are those of the probes, numbered from 1."""
_DAYS: Final = 30
_COUNTRIES: Final = (
    "AT", "BE", "CH", "CZ", "DE", "DK", "ES", "FI", "FR", "GB",
    "GR", "HU", "IE", "IT", "NL", "NO", "PL", "PT", "SE", "SK",
)  # fmt: skip
_STATUSES: Final = ("new", "paid", "packed", "shipped", "delivered", "returned", "on hold", "cancelled")
_WRITERS: Final = 2
_INSERTS, _UPDATES, _DELETES = 3, 5, 1
_PER_TRANSACTION: Final = _INSERTS + _UPDATES + _DELETES + 1
"""The last one is a customer, whose country changes in one of `_MOVES` cases."""
_MOVES: Final = 10
_PROBES_PER_S: Final = 10
_CUSTOMER_COLUMNS: Final = (
    "id int NOT NULL PRIMARY KEY, name varchar(60) NOT NULL, country char(2) NOT NULL, "
    "seen_at datetime(6) NOT NULL"
)
_ORDER_COLUMNS: Final = (
    "id bigint NOT NULL PRIMARY KEY, customer_id int NOT NULL, product_id int NOT NULL, quantity int NOT NULL, "
    "price decimal(10,2) NOT NULL, status varchar(16) NOT NULL, note varchar(120) NOT NULL, "
    "created_at datetime(6) NOT NULL, updated_at datetime(6) NOT NULL"
)
_INSERT: Final = f"INSERT INTO {DATABASE}.orders VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"


@dataclass(frozen=True, slots=True)
class Written:
    """What the load did.

    Attributes:
        changes: number of changed rows, with the probes.
        slipped_seconds: how far a writer was behind its schedule at the end.
        probes: number of a probe, and when its commit had returned, in milliseconds since the epoch.
    """

    changes: int
    slipped_seconds: float
    probes: tuple[tuple[int, int], ...]


def prepare(server: Server, orders: int) -> None:
    """Create the database with its tables and their first rows, which are not in the binlog; drop an earlier one."""
    countries = ", ".join(f"'{country}'" for country in _COUNTRIES)
    statuses = ", ".join(f"'{status}'" for status in _STATUSES)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"CREATE TABLE {DATABASE}.customers ({_CUSTOMER_COLUMNS})")
        cursor.execute(f"CREATE TABLE {DATABASE}.orders ({_ORDER_COLUMNS})")
        cursor.execute("SET SESSION sql_log_bin = 0, cte_max_recursion_depth = 100000000")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(f"INSERT INTO customers VALUES ({PROBE}, 'probe', '{PROBE_COUNTRY}', NOW(6))")
        cursor.execute(
            f"INSERT INTO customers {_numbers(1, CUSTOMERS)} SELECT n, CONCAT('customer ', n), "
            f"ELT(n * 7 % {len(_COUNTRIES)} + 1, {countries}), NOW(6) FROM numbers"
        )
        cursor.execute(
            f"INSERT INTO orders {_numbers(_FIRST_ORDER, orders)} SELECT n, n * 7919 % {CUSTOMERS} + 1, "
            f"n * 31 % {_PRODUCTS} + 1, n % 9 + 1, n * 37 % 20000 / 100 + 1, "
            f"ELT(n % {len(_STATUSES)} + 1, {statuses}), CONCAT('note ', SHA2(n, 224)), "
            f"TIMESTAMPADD(SECOND, -(n * 613 % {_DAYS * 86_400}), NOW(6)), NOW(6) FROM numbers"
        )
        connection.commit()


def send_probe(server: Server) -> int:
    """Commit one more probe; return its number."""
    with server.connect() as connection, connection.cursor() as cursor:
        number = _next_probe(cursor)
        _insert_probe(connection, cursor, number)
    return number


def _numbers(first: int, count: int) -> str:
    return (
        f"WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers "
        f"WHERE n < {first + count - 1})"
    )


def _next_probe(cursor: Cursor) -> int:
    cursor.execute(f"SELECT COALESCE(max(id), 0) + 1 FROM {DATABASE}.orders WHERE id < {_FIRST_ORDER}")
    return int(cursor.fetchall()[0][0])


def _insert_probe(connection: "pymysql.Connection[Cursor]", cursor: Cursor, number: int) -> None:
    day = datetime(2026, 1, 1)  # noqa: DTZ001 - DATETIME has no zone
    cursor.execute(_INSERT, (number, PROBE, PROBE, 1, 1, "new", "probe", day, day))
    connection.commit()


class _Writer:
    """One connection with separate rows, so that no transaction waits for another writer."""

    def __init__(self, server: Server, index: int) -> None:
        self._server = server
        self._random = random.Random(time.time_ns() + index)
        own = f"id % {_WRITERS} = {index}"
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {DATABASE}.orders WHERE id >= {_FIRST_ORDER} AND {own}")
            self._live = [key for (key,) in cursor.fetchall()]
            cursor.execute(f"SELECT id FROM {DATABASE}.customers WHERE id <> {PROBE} AND {own}")
            self._customers = [key for (key,) in cursor.fetchall()]
        self._next = max(self._live) + _WRITERS

    def run(self, seconds: float, transactions_per_second: float) -> tuple[int, float]:
        """Write on a schedule until the time is over. Return (transactions, seconds behind the schedule)."""
        started = time.monotonic()
        done = 0
        with self._server.connect() as connection, connection.cursor() as cursor:
            while (due := done / transactions_per_second) < seconds:
                now = time.monotonic() - started
                if now < due:
                    time.sleep(due - now)
                self._transaction(cursor, moves=done % _MOVES == 0)
                connection.commit()
                done += 1
        return done, max(0.0, time.monotonic() - started - seconds)

    def _transaction(self, cursor: Cursor, *, moves: bool) -> None:
        live, chance = self._live, self._random
        touched = chance.sample(range(len(live)), _UPDATES + _DELETES)
        keys = ", ".join(str(live[place]) for place in touched[:_UPDATES])
        cursor.execute(
            f"UPDATE {DATABASE}.orders SET status = %s, quantity = quantity %% 9 + 1, updated_at = NOW(6) "
            f"WHERE id IN ({keys})",
            (chance.choice(_STATUSES),),
        )
        # The client sends only this plain form as one statement for many rows.
        cursor.executemany(_INSERT, [self._order() for _ in range(_INSERTS)])
        place = touched[-1]
        cursor.execute(f"DELETE FROM {DATABASE}.orders WHERE id = {live[place]}")
        live[place] = live[-_INSERTS - 1]
        del live[-_INSERTS - 1]
        country = f", country = '{chance.choice(_COUNTRIES)}'" if moves else ""
        cursor.execute(
            f"UPDATE {DATABASE}.customers SET seen_at = NOW(6){country} WHERE id = {chance.choice(self._customers)}"
        )

    def _order(self) -> tuple[object, ...]:
        number, chance = self._next, self._random
        self._next += _WRITERS
        self._live.append(number)
        now = datetime.now(UTC).replace(tzinfo=None)
        customer, product = chance.randint(1, CUSTOMERS), chance.randint(1, _PRODUCTS)
        price, note = chance.randint(100, 20_100) / 100, f"note {chance.getrandbits(128):032x}"
        return number, customer, product, chance.randint(1, 9), price, "new", note, now, now


def _probes(server: Server, seconds: float) -> list[tuple[int, int]]:
    """Commit probes on a schedule until the time is over."""
    started, found = time.monotonic(), list[tuple[int, int]]()
    with server.connect() as connection, connection.cursor() as cursor:
        first = _next_probe(cursor)
        while (due := len(found) / _PROBES_PER_S) < seconds:
            time.sleep(max(0.0, due - (time.monotonic() - started)))
            _insert_probe(connection, cursor, first + len(found))
            found.append((first + len(found), time.time_ns() // 1_000_000))
    return found


def _main(server: Server, seconds: float, changes_per_second: float) -> None:
    pace = (changes_per_second - _PROBES_PER_S) / _PER_TRANSACTION / _WRITERS
    writers = [_Writer(server, index) for index in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS + 1) as pool:
        probes = pool.submit(_probes, server, seconds)
        runs = list(pool.map(lambda writer: writer.run(seconds, pace), writers))
    found = probes.result()
    changes = sum(done for done, _ in runs) * _PER_TRANSACTION + len(found)
    written = Written(changes, max(slipped for _, slipped in runs), tuple(found))
    print(json.dumps(asdict(written)), flush=True)


if __name__ == "__main__":
    host, port, user = sys.argv[1:4]
    _main(Server(host, int(port), user, sys.stdin.readline().strip()), float(sys.argv[4]), float(sys.argv[5]))
