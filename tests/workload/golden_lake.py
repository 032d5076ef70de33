"""The events of the golden lake: tables in each state that a lake may have, and their later events.

The log has two phases. `write_golden_lake` lets an engine apply the first; the second is in the archive only, and
begins with redelivered events of a restarted connector.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record

HASH_KEY_VARIABLE: Final = "GOLDEN_LAKE_HASH_KEY"
HASH_KEY: Final = "not-a-secret-0123456789"
ORDERS: Final = "shop.shop.orders"
DROPPED: Final = ("shop.shop.numbers", 0, 2)
"""Topic, partition and offset of a bad event that was dropped in the first phase."""

BAD_GUARDED: Final = ("shop.shop.guarded", 0, 1)
"""The event that pauses the table `guarded`."""

LARGE: Final = 5_000_000_000
"""Too large for INT: an event with it is bad until the column's definition as BIGINT arrives."""

SECTIONS: Final[Mapping[str, Any]] = {
    "columns": {"hash_key": {"env": HASH_KEY_VARIABLE}},
    "table": [
        {"name": "shop.orders", "partition": ["bucket(2, id)"]},
        {
            "name": "shop.users",
            "columns": {"hash": ["email"], "exclude": ["note"], "mask": {"phone": {"keep_last": 2}}},
        },
        {"name": "shop.carts", "strategy": "merge"},
        {"name": "shop.clicks", "keyless": "changelog"},
        {"name": "shop.strict", "schema_changes": {"add": "fail"}},
        {"name": "shop.guarded", "on_bad_event": "pause"},
    ],
}
"""The sections of the mirror's configuration that differ from `LakeHarness.config`."""

ID = ColumnSpec("id", "bigint", False)
NAME = ColumnSpec("name", "varchar")
NUMBER = ColumnSpec("number", "int")
TABLES: Final[Mapping[str, Sequence[ColumnSpec]]] = {
    "orders": (
        ID,
        ColumnSpec("customer", "varchar"),
        ColumnSpec("amount", "decimal"),
        ColumnSpec("seen", "datetime"),
        ColumnSpec("paid", "timestamp"),
    ),
    "visits": (ColumnSpec("page", "varchar"), ColumnSpec("seconds", "int")),
    "clicks": (ColumnSpec("button", "varchar"),),
    "users": (ID, *(ColumnSpec(name, "varchar") for name in ("email", "phone", "note"))),
    "people": (ID, NAME, NUMBER, ColumnSpec("_file", "varchar")),
    **dict.fromkeys(("carts", "strict", "items", "stock", "rebuilt", "invoices", "gone"), (ID, NAME)),
    "guarded": (ID, NUMBER),
    "numbers": (ID, NUMBER),
}
KEYLESS: Final = ("visits", "clicks")


@dataclass
class GoldenHistory:
    """Changes of the source, as records of its log."""

    records: list[Record] = field(default_factory=list)
    columns: dict[str, Sequence[ColumnSpec]] = field(default_factory=dict)
    pos: int = 100

    def define(self, table: str, kind: str, ddl: str | None = None, *columns: ColumnSpec, **old: str) -> None:
        """Write a definition; without `columns`, with the previous ones."""
        found = columns or (self.columns.get(old.get("old_name", table)) or TABLES.get(table, ()))
        self.columns[table] = found
        key = [] if table in KEYLESS else ["id"]
        value = schema_change_event(self._next(), table, found, key, kind=kind, ddl=ddl, **old)
        self.records.append(Record("shop", 0, None, value))

    def read(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Write rows that one snapshot read."""
        place = Place(1, 90, server_id=0)
        for number, row in enumerate(rows, start=1):
            last = "last_in_data_collection" if number == len(rows) else "true"
            self._add(table, "r", place, None, row, snapshot=last)

    def insert(self, table: str, *rows: Mapping[str, Any], partition: int = 0) -> None:
        place = self._next()
        for number, row in enumerate(rows):
            self._add(table, "c", _row(place, number), None, row, partition=partition)

    def update(self, table: str, before: Mapping[str, Any], **changed: Any) -> None:
        self._add(table, "u", self._next(), before, {**before, **changed})

    def delete(self, table: str, before: Mapping[str, Any]) -> None:
        self._add(table, "d", self._next(), before, None)
        if table not in KEYLESS:
            topic = f"shop.shop.{table}"
            self.records.append(Record(topic, _partition(table, before), key_of(before, ["id"]), None))

    def truncate(self, table: str) -> None:
        self._add(table, "t", self._next(), None, None)

    def garbage(self, table: str, text: bytes) -> None:
        self.records.append(Record(f"shop.shop.{table}", 0, b'{"id":0}', text))

    def _next(self) -> Place:
        self.pos += 100
        return Place(1, self.pos, ts_ms=1_700_000_000_000 + self.pos, gtid=f"golden:{self.pos}")

    def _add(
        self,
        table: str,
        op: str,
        place: Place,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
        *,
        partition: int = 0,
        snapshot: str = "false",
    ) -> None:
        value = change_event(op, place, table, before=before, after=after)
        if op == "r":
            event = json.loads(value)
            event["source"]["snapshot"] = snapshot
            value = json.dumps(event).encode()
        image = after or before
        key = None if image is None or table in KEYLESS else key_of(image, ["id"])
        topic = f"shop.shop.{table}"
        if table == "orders":
            # The events of the other tables have no schema.
            value = with_value_schema(value, self.columns[table], topic)
            key = None if key is None else with_key_schema(key, self.columns[table], ["id"], topic)
            partition = _partition(table, image)
        self.records.append(Record(topic, partition, key, value))


def _partition(table: str, row: Mapping[str, Any] | None) -> int:
    return row["id"] % 2 if table == "orders" and row is not None else 0


def _row(place: Place, number: int) -> Place:
    return Place(place.file, place.pos, number, place.ts_ms, place.server_id, place.gtid)


def order(number: int, amount: Any = 12.5, **others: Any) -> dict[str, Any]:
    row = {"id": number, "customer": f"ö{number}", "amount": amount, "seen": number * 1_000_001}
    return row | {"paid": f"2023-11-14T22:13:2{number}.5Z"} | others


def user(number: int, **others: Any) -> dict[str, Any]:
    row = {"id": number, "email": f"{number}@example.org", "phone": "0123456", "note": "not for the lake"}
    return row | others


def named(number: int, name: str | None = "x") -> dict[str, Any]:
    return {"id": number, "name": name}


def numbered(number: int, value: int) -> dict[str, Any]:
    return {"id": number, "number": value}


def person(key: int, **others: Any) -> dict[str, Any]:
    return {"id": key, "name": f"p{key}", "number": key * 10, "_file": "f"} | others


def created() -> GoldenHistory:
    """Return the history of all tables: their snapshot and the first changes."""
    history = GoldenHistory()
    for table in TABLES:
        history.define(table, "CREATE")
    history.read("orders", order(1), order(2, None, customer=None, seen=None, paid=None), order(3, -0.01))
    history.insert("orders", order(4), order(5, 9_999_999_999.99))
    history.update("orders", order(1), amount=13)
    history.insert(
        "visits", {"page": "a", "seconds": 1}, {"page": "a", "seconds": 1}, {"page": None, "seconds": 2}
    )
    history.insert("clicks", {"button": "buy"}, {"button": "buy"})
    history.read("users", user(1), user(2, email=None))
    history.insert("people", person(1), person(2, number=None))
    history.insert("carts", named(1), named(2))
    for table in ("strict", "items", "stock", "rebuilt", "invoices", "gone"):
        history.insert(table, named(1), named(2))
    history.insert("guarded", numbered(1, 10))
    history.insert("numbers", numbered(1, 10), numbered(2, 20))
    return history


def changed(history: GoldenHistory) -> None:
    """Write the changes that give each table its history; only interrupted and paused tables have more."""
    history.records.clear()
    history.delete("orders", order(3, -0.01))
    history.update("orders", order(4), customer="another")
    history.update("visits", {"page": "a", "seconds": 1}, seconds=3)
    history.insert("clicks", {"button": "back"})
    history.update("users", user(1), phone="9876543")
    text, fresh = ColumnSpec("number", "varchar"), ColumnSpec("state", "varchar", False, "new")
    history.define(
        "people",
        "ALTER",
        "ALTER TABLE people RENAME COLUMN name TO `full name`, MODIFY number VARCHAR(200), "
        "ADD state VARCHAR(200) NOT NULL DEFAULT 'new'",
        *(ID, ColumnSpec("full name", "varchar"), text, ColumnSpec("_file", "varchar"), fresh),
    )
    history.insert("people", {"id": 3, "full name": "p3", "number": "thirty", "_file": "g", "state": "old"})
    history.truncate("carts")
    history.insert("carts", named(3))
    history.define("bills", "ALTER", old_name="invoices")
    history.insert("bills", named(3))
    history.insert("gone", named(3))
    history.define("gone", "DROP", "DROP TABLE gone")
    history.garbage("numbers", b"not JSON")
    history.update("numbers", numbered(1, 10), number=LARGE)
    history.insert("numbers", numbered(3, 30))
    history.records.append(Record("shop", 0, None, b'{"no": "definition"}'))


def interrupted(history: GoldenHistory, table: str) -> None:
    """Write the events of one table for a batch during which the process is killed."""
    history.records.clear()
    if table == "stock":
        fresh = ColumnSpec("state", "varchar", False, "full")
        ddl = "ALTER TABLE stock ADD state VARCHAR(200) NOT NULL DEFAULT 'full'"
        history.define("stock", "ALTER", ddl, ID, NAME, fresh)
        history.insert("stock", named(3) | {"state": "empty"})
    elif table == "rebuilt":
        history.define("rebuilt", "DROP", "DROP TABLE rebuilt")
        history.define("rebuilt", "CREATE", None, ID, NAME)
        history.insert("rebuilt", named(9))
    else:
        history.update(table, named(1), name="y")
        history.insert(table, named(3))


def paused(history: GoldenHistory) -> None:
    """Write the events that pause two tables."""
    history.records.clear()
    history.define("strict", "ALTER", "ALTER TABLE strict ADD more INT", ID, NAME, ColumnSpec("more", "int"))
    history.insert("strict", named(3) | {"more": 1})
    history.garbage("guarded", b'{"op": "c", "after": ')
    history.insert("guarded", numbered(2, 20))


def later(history: GoldenHistory, first_phase: Sequence[Record]) -> None:
    """Write the second phase, which begins with redelivered newest events of two tables."""
    history.records.clear()
    for topic, count in ((ORDERS, 3), ("shop.shop.users", 1), ("shop.shop.items", 2)):
        history.records += [r for r in first_phase if r.topic == topic][-count:]
    history.update("orders", order(1, 13), customer=None)
    history.delete("orders", order(5, 9_999_999_999.99))
    history.insert("orders", order(3), order(6))
    history.update("visits", {"page": "a", "seconds": 3}, page="b")
    history.delete("visits", {"page": None, "seconds": 2})
    history.insert("clicks", {"button": "buy"})
    history.update("users", user(1, phone="9876543"), email="new@example.org")
    history.insert("users", user(3))
    history.define(
        "people",
        "ALTER",
        "ALTER TABLE people DROP _file, RENAME COLUMN state TO mood",
        *(ID, ColumnSpec("full name", "varchar"), ColumnSpec("number", "varchar")),
        ColumnSpec("mood", "varchar", False, "new"),
    )
    first = {"id": 1, "full name": "p1", "number": "10", "mood": "new"}
    history.update("people", first, mood="good")
    history.delete("people", {"id": 3, "full name": "p3", "number": "thirty", "mood": "old"})
    history.insert("carts", named(5), partition=1)
    history.update("carts", named(3), name="z")
    history.insert("strict", named(4) | {"more": 2})
    history.insert("guarded", numbered(3, 30))
    history.delete("items", named(2))
    history.update("stock", named(1) | {"state": "full"}, name="y")
    history.insert("rebuilt", named(10))
    history.delete("bills", named(1))
    wide = (ID, ColumnSpec("number", "bigint"))
    history.define("numbers", "ALTER", "ALTER TABLE numbers MODIFY number BIGINT", *wide)
    history.insert("numbers", numbered(4, LARGE))
    history.define("fresh", "CREATE", None, ID, NAME)
    history.insert("fresh", named(1))
    history.garbage("orders", b"not JSON either")
