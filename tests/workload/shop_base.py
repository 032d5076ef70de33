"""What the web shop remembers, and how it runs a transaction."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import pymysql
from pymysql.cursors import Cursor

from tests.workload.values import Values

Connection: TypeAlias = "pymysql.Connection[Cursor]"
Remember: TypeAlias = Callable[[], None]
Action: TypeAlias = Callable[[], Remember | None]


@dataclass
class Product:
    """What the shop knows about a product without asking the database."""

    id: int
    sku: str
    price: Decimal


@dataclass
class Order:
    """An order that may still change."""

    id: int
    status: str
    total: Decimal
    lines: int


@dataclass
class Stock:
    """Everything the writer remembers; changed after a commit only."""

    customers: list[int] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    carts: set[int] = field(default_factory=set)
    coupons: list[str] = field(default_factory=list)


class ShopBase:
    """One connection, one stream of random values, and what was committed so far."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.connection = connection
        self.values = Values(seed)
        self.stock = Stock()
        self.changes = 0
        self.transactions = 0
        self._rows = 0
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00'")
            cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")

    def _run(self, statement: str, *values: Any) -> int:
        """Runs one statement, counts the rows that it changed, returns the last inserted id."""
        with self.connection.cursor() as cursor:
            self._rows += cursor.execute(statement, values)
            return int(cursor.lastrowid or 0)

    def _insert(self, table: str, **values: Any) -> int:
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        return self._run(f"INSERT INTO {table} ({names}) VALUES ({marks})", *values.values())

    def _transact(self, action: Action) -> None:
        """Commits what `action` wrote and then remembers it; rolls back where it has nothing to remember."""
        self._rows = 0
        remember = action()
        if remember is None:
            self.connection.rollback()
            return
        self._commit()
        remember()

    def _commit(self) -> None:
        self.connection.commit()
        self.changes += self._rows
        self.transactions += 1
        self._rows = 0
