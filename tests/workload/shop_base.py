"""The state of the web shop in memory, and how it runs a transaction."""

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
    """A product, as far as the shop needs it without a query."""

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
    """The state of the writer; it changes only after a commit."""

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
        """Run one statement, count the rows that it changed, and return the last inserted id."""
        with self.connection.cursor() as cursor:
            self._rows += cursor.execute(statement, values)
            return int(cursor.lastrowid or 0)

    def _insert(self, table: str, **values: Any) -> int:
        names = ", ".join(values)
        placeholders = ", ".join(["%s"] * len(values))
        return self._run(f"INSERT INTO {table} ({names}) VALUES ({placeholders})", *values.values())

    def _transact(self, action: Action) -> None:
        """Commit the writes of `action` and then update the state; roll back if `action` returns nothing."""
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
