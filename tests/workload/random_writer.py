"""Writers that change generated tables at random and concurrently, for tests against a real MySQL."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pymysql
from pymysql.cursors import Cursor

Connection: TypeAlias = "pymysql.Connection[Cursor]"

# 1062: duplicate key; 1205, 1213: lock wait timeout and deadlock between the writers.
DUPLICATE, LOCK_TIMEOUT, DEADLOCK = 1062, 1205, 1213

KEYS: dict[str, tuple[tuple[str, str], ...]] = {
    "bigint": (("id", "BIGINT"),),
    "composite": (("region", "SMALLINT UNSIGNED"), ("code", "VARCHAR(20) COLLATE utf8mb4_0900_bin")),
    "varchar": (("name", "VARCHAR(60) COLLATE utf8mb4_0900_bin"),),
    "binary": (("uid", "BINARY(16)"),),
    "unsigned": (("id", "BIGINT UNSIGNED"),),
}

VALUES = (
    ("number", "INT NULL"),
    ("small", "TINYINT UNSIGNED NOT NULL"),
    ("amount", "DECIMAL(14,4) NULL"),
    ("ratio", "DOUBLE NULL"),
    ("label", "VARCHAR(80) NULL"),
    ("state", "ENUM('new','open','on hold, twice','closed') NOT NULL"),
    ("seen", "DATETIME(6) NULL"),
    ("changed", "TIMESTAMP(6) NOT NULL DEFAULT '2000-01-01 00:00:00'"),
    ("day", "DATE NULL"),
    ("raw", "VARBINARY(40) NULL"),
    ("document", "JSON NULL"),
)


@dataclass(frozen=True, slots=True)
class RandomTable:
    """A generated table: its name and which of `KEYS` it has."""

    name: str
    shape: str

    @property
    def key(self) -> tuple[str, ...]:
        """Return the names of the key columns."""
        return tuple(name for name, _ in KEYS[self.shape])

    @property
    def ddl(self) -> str:
        """Return the statement that creates the table."""
        columns = [f"{name} {kind} NOT NULL" for name, kind in KEYS[self.shape]]
        columns += [f"{name} {kind}" for name, kind in VALUES]
        return f"CREATE TABLE {self.name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(self.key)}))"


def random_tables(count: int = 10) -> list[RandomTable]:
    """Return `count` tables with all key shapes in turn, without foreign keys."""
    shapes = list(KEYS)
    return [RandomTable(f"t{n:02d}", shapes[n % len(shapes)]) for n in range(count)]


def create_tables(connection: Connection, tables: Sequence[RandomTable]) -> None:
    """Create the tables in the connection's database."""
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(table.ddl)


class RandomWriter:
    """Changes `tables` at random until stopped, in transactions of one to eight statements.

    Several writers on the same tables conflict intentionally: lock timeouts, deadlocks and voluntary rollbacks are part
    of the work. `counts` has inserts, updates, deletes, key_updates (rows), commits, rollbacks and conflicts.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        tables: Sequence[RandomTable],
        *,
        seed: int,
        keys: int = 400,
        pause: float = 0.0,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._connect = connect
        self._tables = list(tables)
        self._random = random.Random(seed)
        self._keys = keys
        self._pause = pause
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=f"writer-{seed}", daemon=True)

    def start(self) -> None:
        """Start to write, in a separate thread."""
        self._thread.start()

    def stop(self) -> None:
        """Request that the writer ends after its current transaction."""
        self._stop.set()

    def join(self, timeout: float = 60.0) -> Counter[str]:
        """Wait for the end and return the counts; raise the error with which the writer failed."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the writer did not stop within {timeout} s")
        if self._error is not None:
            raise self._error
        return self.counts

    def _work(self) -> None:
        try:
            connection = self._connect()
            with connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
                cursor.execute("SET SESSION time_zone = '+00:00'")
                connection.commit()
                while not self._stop.is_set():
                    self._transaction(connection, cursor)
                    if self._pause:
                        time.sleep(self._pause)
        except BaseException as error:  # noqa: BLE001 - handed to whoever joins
            self._error = error

    def _transaction(self, connection: Connection, cursor: Cursor) -> None:
        rows: Counter[str] = Counter()
        try:
            for _ in range(self._random.randint(1, 8)):
                self._statement(cursor, rows)
        except pymysql.err.OperationalError as error:
            if error.args[0] not in {LOCK_TIMEOUT, DEADLOCK}:
                raise
            connection.rollback()
            self.counts["conflicts"] += 1
            return
        if self._random.random() < 0.05:
            connection.rollback()
            self.counts["rollbacks"] += 1
            return
        connection.commit()
        self.counts += rows
        self.counts["commits"] += 1

    def _statement(self, cursor: Cursor, rows: Counter[str]) -> None:
        table = self._random.choice(self._tables)
        kind = self._random.choices(
            ("inserts", "updates", "deletes", "key_updates", "replaces"), (35, 40, 12, 8, 5)
        )[0]
        try:
            rows[kind] += self._run(cursor, table, kind)
        except pymysql.err.IntegrityError as error:
            if error.args[0] != DUPLICATE:
                raise

    def _run(self, cursor: Cursor, table: RandomTable, kind: str) -> int:
        where = " AND ".join(f"{name} = %s" for name in table.key)
        key = self._key(table)
        match kind:
            case "inserts" | "replaces":
                row = key | self._row(1.0)
                verb = "INSERT" if kind == "inserts" else "REPLACE"
                placeholders = ", ".join(["%s"] * len(row))
                return cursor.execute(
                    f"{verb} INTO {table.name} ({', '.join(row)}) VALUES ({placeholders})",
                    tuple(row.values()),
                )
            case "updates":
                row = self._row(0.4) or {"number": self._random.randint(0, 9)}
            case "key_updates":
                row = self._key(table)
            case _:
                return cursor.execute(f"DELETE FROM {table.name} WHERE {where}", tuple(key.values()))
        sets = ", ".join(f"{name} = %s" for name in row)
        return cursor.execute(f"UPDATE {table.name} SET {sets} WHERE {where}", (*row.values(), *key.values()))

    def _key(self, table: RandomTable) -> dict[str, Any]:
        number = self._random.randrange(self._keys)
        match table.shape:
            case "bigint":
                return {"id": number - self._keys // 2}
            case "unsigned":
                return {"id": 2**64 - 1 - number}
            case "composite":
                return {"region": number % 7, "code": f"Ç-{number // 7}"}
            case "varchar":
                # Keys that differ only in letter case.
                return {"name": f"{'Key' if number % 2 else 'key'} {number // 2}"}
            case _:
                # Values that end in zero bytes, which MySQL's binlog omits.
                return {"uid": number.to_bytes(8).ljust(16, b"\0") if number % 2 else number.to_bytes(16)}

    def _row(self, share: float) -> dict[str, Any]:
        chance = self._random
        row = {
            "number": chance.randint(-(2**31), 2**31 - 1),
            "small": chance.randint(0, 255),
            "amount": Decimal(chance.randint(-(10**14) + 1, 10**14 - 1)) / 10000,
            "ratio": chance.choice((0.0, 1e-300, 1e300, chance.uniform(-1000, 1000))),
            "label": chance.choice(("", "plain", "quote ' \" \\ \n", "naïve 🦊", "x" * 80)),
            "state": chance.choice(("new", "open", "on hold, twice", "closed")),
            "seen": datetime(1970, 1, 1) + timedelta(microseconds=chance.randint(-(10**16), 10**17)),  # noqa: DTZ001 - DATETIME is a wall clock
            "changed": datetime(2001, 1, 1) + timedelta(microseconds=chance.randint(0, 10**15)),  # noqa: DTZ001 - the session is in UTC
            "day": datetime(1600, 1, 1).date() + timedelta(days=chance.randint(0, 300_000)),  # noqa: DTZ001 - only its date
            "raw": chance.randbytes(chance.randint(0, 40)),
            "document": json.dumps({"n": chance.randint(0, 9), "t": chance.choice(("é", "🦊", None, 2.5))}),
        }
        nullable = {"number", "amount", "ratio", "label", "seen", "day", "raw", "document"}
        return {
            name: None if name in nullable and chance.random() < 0.15 else value
            for name, value in row.items()
            if share >= 1.0 or chance.random() < share
        }
