"""Tables that a statement may change although its text does not name them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import pytest
from sqlalchemy import Connection

from replicator.model.table import TableId
from replicator.schema.ddl.dml import changed_tables
from replicator.sources.mysql.tables import changed_in_source

ORDERS, LINES, NOTES = (TableId("shop", name) for name in ("orders", "lines", "notes"))
LEDGER = TableId("books", "ledger")
MIRRORED: Final = [ORDERS, LINES, NOTES, LEDGER]
VIEWS: Final = [("shop", name) for name in ("open_orders", "late_orders", "ledger_view", "hidden")]
USED: Final = [
    ("shop", "open_orders", "shop", "orders"),
    ("shop", "late_orders", "shop", "open_orders"),
    ("shop", "late_orders", "shop", "lines"),
    ("shop", "ledger_view", "books", "ledger"),
]


class Server:
    """Answers queries of tables of the information schema; those that are not given are empty."""

    def __init__(self, answers: Mapping[str, Sequence[tuple[str, ...]]]) -> None:
        self.answers = answers

    def execute(self, statement: Any) -> Sequence[tuple[str, ...]]:
        name = str(statement).split("information_schema.")[1].split()[0]
        return self.answers.get(name, ())


def changed(statement: str, **answers: Sequence[tuple[str, ...]]) -> list[TableId]:
    server = Server({"tables": VIEWS, "view_table_usage": USED, **answers})
    return changed_in_source(cast("Connection", server), changed_tables(statement), MIRRORED)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE orders SET n = 1", [ORDERS]),
        ("UPDATE open_orders SET n = 1", [ORDERS]),
        ("UPDATE Open_Orders SET n = 1", [ORDERS]),
        ("DELETE FROM late_orders WHERE n = 1", [ORDERS, LINES]),
        ("INSERT INTO ledger_view VALUES (1)", [LEDGER]),
        ("UPDATE open_orders AS o JOIN notes AS n ON o.id = n.id SET o.n = 1", [ORDERS, NOTES]),
        ("INSERT INTO hidden VALUES (1)", MIRRORED),
        ("INSERT INTO a_temporary_table VALUES (1)", []),
    ],
)
def test_tables_of_views_are_changed(statement: str, expected: list[TableId]) -> None:
    assert changed(f"use `shop`; {statement}") == expected


def test_foreign_keys_and_triggers_of_the_tables_of_a_view_count() -> None:
    statement = "use `shop`; DELETE FROM open_orders"
    cascade = ("shop", "orders", "shop", "lines", "CASCADE", "NO ACTION")
    assert changed(statement, referential_constraints=[cascade]) == [ORDERS, LINES]
    assert changed(statement, triggers=[("shop", "orders")]) == [ORDERS, LINES, NOTES]
