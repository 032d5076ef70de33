"""A source database in plain Python: what it does at random, the log that Debezium would make of it, and what a
right mirror and a right changelog of that log hold.

Nothing here knows the engine. Rows are dicts of JSON values, as the events carry them.
"""

import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)

DATABASE = "shop"
ODD_WORDS = (
    "",
    " ",
    "a",
    "A",
    "ä",
    "o`x",
    'say "hi"',
    "it's",
    "a\\b",
    "line\nbreak",
    "tab\t",
    "🦊",
    "null",
    "%_",
    "0",
)
SHAPES: Mapping[str, tuple[ColumnSpec, ...]] = {
    "bigint": (ColumnSpec("id", "bigint", False),),
    "composite": (ColumnSpec("region", "int", False), ColumnSpec("code`x", "varchar", False)),
    "varchar": (ColumnSpec("Größe.1", "varchar", False),),
}
VALUES = (
    ColumnSpec("number", "int"),
    ColumnSpec("a name", "varchar"),
    ColumnSpec("amount", "decimal"),
    ColumnSpec("seen", "datetime"),
)

Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Record:
    """One record of the log: a change, a tombstone (no value) or a definition."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    snapshot: bool = False


@dataclass(frozen=True)
class Change:
    """One row that the changelog must hold; `row` has the columns that the table had then."""

    kind: str
    op: str
    row: Row | None
    file: str
    pos: int
    number: int

    @property
    def place(self) -> tuple[str, int, int]:
        return (self.file, self.pos, self.number)


@dataclass
class SourceTable:
    """A table of the source as it is now, and every change it went through."""

    name: str
    key: tuple[str, ...]
    columns: list[ColumnSpec]
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return f"shop.{DATABASE}.{self.name}"

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)


class Source:
    """A database that changes at random and writes its log.

    Args:
        seed: the same seed does the same things.
        partitions: of each data topic.
        with_schemas: whether events and keys carry their schema.
        truncates: whether tables are truncated now and then.
    """

    def __init__(
        self, seed: int, *, partitions: int = 1, with_schemas: bool = False, truncates: bool = True
    ) -> None:
        self.random = random.Random(seed)
        self.partitions = partitions
        self.with_schemas = with_schemas
        self.truncates = truncates
        self.tables: list[SourceTable] = []
        self.records: list[Record] = []
        # Right before the number of a binlog file outgrows its padding.
        self._file, self._pos, self._ts = 999_998, 4, 1_700_000_000_000

    def start(self, shapes: Sequence[str], rows: int) -> None:
        """Make one table for each of `shapes` and read them as a connector's snapshot does."""
        for number, shape in enumerate(shapes):
            table = SourceTable(
                f"t{number}_{shape}", tuple(c.name for c in SHAPES[shape]), [*SHAPES[shape], *VALUES]
            )
            self.tables.append(table)
            for _ in range(rows):
                row = self._new_row(table)
                table.rows[table.key_of(row)] = row
        place = self._place()
        for table in self.tables:
            self._define(table, "CREATE", place)
        for table in self.tables:
            for row in table.rows.values():
                self._log(table, "r", place, after=row)

    def run(self, transactions: int) -> None:
        """Change the database."""
        for _ in range(transactions):
            table = self.random.choice(self.tables)
            kinds: dict[Callable[[SourceTable], None], int] = {
                self._insert: 30,
                self._update: 40,
                self._delete: 15,
                self._rename_key: 10,
                self._add_column: 2,
                self._widen: 1,
                self._truncate: 2 if self.truncates else 0,
            }
            self.random.choices(list(kinds), list(kinds.values()))[0](table)

    def delivered(self, restarts: int) -> list[Record]:
        """The log as it arrives where the connector is killed `restarts` times and repeats a suffix each time."""
        first = next((i for i, r in enumerate(self.records) if r.value and not r.snapshot), len(self.records))
        arrived, position = [], 0
        for stop in sorted(self.random.randint(first, len(self.records)) for _ in range(restarts)):
            arrived += self.records[position:stop]
            position = max(first, stop - self.random.randint(0, 40))
        return arrived + self.records[position:]

    # What happens in the database

    def _insert(self, table: SourceTable) -> None:
        place = self._place()
        for number in range(self.random.choice((1, 1, 1, 4))):
            row = self._new_row(table)
            if table.key_of(row) in table.rows:
                continue
            table.rows[table.key_of(row)] = row
            self._log(table, "c", replace(place, row=number), after=row)

    def _update(self, table: SourceTable) -> None:
        place = self._place()
        for number, key in enumerate(self._some(table, self.random.choice((1, 1, 3)))):
            before = table.rows[key]
            after = dict(before)
            for column in self.random.sample(table.columns, 2):
                if column.name not in table.key:
                    after[column.name] = self._value(column)
            table.rows[key] = after
            self._log(table, "u", replace(place, row=number), before=before, after=after)

    def _delete(self, table: SourceTable) -> None:
        place = self._place()
        for number, key in enumerate(self._some(table, self.random.choice((1, 2)))):
            self._log(table, "d", replace(place, row=number), before=table.rows.pop(key))

    def _rename_key(self, table: SourceTable) -> None:
        """An UPDATE of the key: a delete and a create from one place."""
        place = self._place()
        for number, key in enumerate(self._some(table, self.random.choice((1, 2)))):
            fresh = self._new_row(table)
            if table.key_of(fresh) in table.rows:
                continue
            before = table.rows.pop(key)
            after = before | {name: fresh[name] for name in table.key}
            table.rows[table.key_of(after)] = after
            self._log(table, "d", replace(place, row=number), before=before)
            self._log(table, "c", replace(place, row=number), after=after)

    def _truncate(self, table: SourceTable) -> None:
        table.rows.clear()
        self._log(table, "t", self._place())

    def _add_column(self, table: SourceTable) -> None:
        """Nullable, or NOT NULL with a default: then the rows that are there get it, and no event says so."""
        name = f"extra{len(table.columns)}"
        column = self.random.choice(
            (
                ColumnSpec(name, "int"),
                ColumnSpec(name, "int", False, "7"),
                ColumnSpec(name, "varchar", False, "it's `new`"),
            )
        )
        value = None if column.default is None else _wire(column.kind, column.default)
        table.columns.insert(self.random.randint(len(table.key), len(table.columns)), column)
        for row in table.rows.values():
            row[column.name] = value
        self._define(table, "ALTER", self._place())

    def _widen(self, table: SourceTable) -> None:
        for i, column in enumerate(table.columns):
            if column.kind == "int":
                table.columns[i] = replace(column, kind="bigint")
                self._define(table, "ALTER", self._place())
                return

    # The log

    def _place(self) -> Place:
        if self.random.random() < 0.05:
            self._file, self._pos = self._file + 1, 4
        self._pos += self.random.randint(1, 500)
        self._ts += self.random.randint(-3, 400)
        return Place(self._file, self._pos, 0, self._ts)

    def _log(
        self,
        table: SourceTable,
        op: str,
        place: Place,
        *,
        before: Row | None = None,
        after: Row | None = None,
    ) -> None:
        value = change_event(op, place, table.name, before=before, after=after, database=DATABASE)
        image = before if op == "d" else after
        key, partition = None, self.random.randrange(self.partitions)
        if image is not None:
            key = key_of(image, table.key)
            partition = zlib.crc32(key) % self.partitions
        if self.with_schemas:
            value = with_value_schema(value, table.columns, table.topic)
            key = None if key is None else with_key_schema(key, table.columns, table.key, table.topic)
        self.records.append(Record(table.topic, partition, key, value, snapshot=op == "r"))
        if op == "d":
            self.records.append(Record(table.topic, partition, key, None))
        self._expect(table, op, place, before, after)

    def _expect(
        self, table: SourceTable, op: str, place: Place, before: Row | None, after: Row | None
    ) -> None:
        at = (f"mysql-bin.{place.file:06d}", place.pos, place.row)
        images: dict[str, Row | None] = {
            "u": {"UPDATE_BEFORE": before, "UPDATE_AFTER": after},
            "d": {"DELETE": before},
            "t": {"TRUNCATE": None},
        }.get(op, {"INSERT": after})
        for kind, row in images.items():
            table.changes.append(Change(kind, op, None if row is None else dict(row), *at))

    def _define(self, table: SourceTable, kind: str, place: Place) -> None:
        value = schema_change_event(place, table.name, table.columns, table.key, kind=kind, database=DATABASE)
        if self.with_schemas:
            # Its reader does not look at the schema, so an empty one will do.
            value = b'{"schema":{"type":"struct","fields":[]},"payload":' + value + b"}"
        self.records.append(Record("shop", 0, None, value, snapshot=kind == "CREATE"))

    # Values

    def _some(self, table: SourceTable, count: int) -> list[Key]:
        return self.random.sample(list(table.rows), min(count, len(table.rows)))

    def _new_row(self, table: SourceTable) -> dict[str, Any]:
        return {c.name: self._value(c, key=c.name in table.key) for c in table.columns}

    def _value(self, column: ColumnSpec, *, key: bool = False) -> Any:
        choose = self.random
        if column.optional and choose.random() < 0.2:
            return None
        match column.kind:
            case "bigint":
                return (
                    choose.randint(-20, 20)
                    if key
                    else choose.choice((-(2**63), 2**63 - 1, choose.randint(-9, 9)))
                )
            case "int":
                return (
                    choose.randint(0, 3)
                    if key
                    else choose.choice((-(2**31), 2**31 - 1, choose.randint(-9, 9)))
                )
            case "decimal":
                return choose.randint(-(10**12) + 1, 10**12 - 1) / 100
            case "datetime":
                return choose.randint(-(10**15), 4 * 10**15)
            case _:
                return choose.choice(ODD_WORDS) + ("" if key else choose.choice(ODD_WORDS))


def _wire(kind: str, text: str) -> Any:
    return text if kind == "varchar" else json.loads(text)
