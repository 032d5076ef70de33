"""Two tables, `orders` and `bills`, that exchange their names."""

import json

from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.oracle.model import Record
from tests.support.scenario import ID, other_table, row_of

A, B = ColumnSpec("a", "int"), ColumnSpec("b", "varchar")


def exchange_of(place: int, one: list[ColumnSpec], other: list[ColumnSpec], *, divided: bool) -> list[Record]:
    """Return the definitions after `orders` and `bills` exchanged their names; `orders` then has the columns `one`.

    Debezium 3.6 divides the statement into one for each table, and writes no definition for an intermediate name.
    """
    statements = ["orders TO tmp", "bills TO orders", "tmp TO bills"]
    if not divided:
        whole = "RENAME TABLE " + ", ".join(statements)
        return [
            other_table("orders", "ALTER", place, ddl=whole, columns=one),
            other_table("bills", "ALTER", place, ddl=whole, columns=other),
        ]
    first, second, third = [f"RENAME TABLE shop.{s.replace('TO ', 'TO shop.')}" for s in statements]
    passing = json.loads(schema_change_event(Place(1, place), "tmp", [], [], kind="ALTER", ddl=first))
    return [
        Record("shop", 0, None, json.dumps(passing | {"tableChanges": []}).encode()),
        other_table("orders", "ALTER", place, ddl=second, columns=one),
        other_table("bills", "ALTER", place, ddl=third, columns=other),
    ]


def before_exchange() -> list[Record]:
    return [
        other_table("orders", "CREATE", 100, columns=[ID, A]),
        other_table("bills", "CREATE", 110, columns=[ID, B]),
        row_of("orders", 200, id=1, a=1),
        row_of("bills", 210, id=2, b="two"),
        row_of("bills", 220, id=3, b="three"),
    ]


def after_exchange() -> list[Record]:
    return [row_of("orders", 400, id=2, b="four"), row_of("bills", 410, id=5, a=5)]
