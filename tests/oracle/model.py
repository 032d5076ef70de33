"""Model a source database in plain Python: random changes, the log that Debezium would write for them, and the
correct mirror and changelog of that log.

The model is independent of the engine. Rows are dicts of JSON values, as the events carry them.
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
    quoted,
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
    "keyless": (ColumnSpec("page", "varchar"),),
}
KEYLESS = "keyless"
"""The shape without a key: the table may have equal rows."""
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
    """One row that the changelog must contain; `row` has the columns that the table had at that time."""

    kind: str
    op: str
    row: dict[str, Any] | None
    file: str
    pos: int
    number: int

    @property
    def place(self) -> tuple[str, int, int]:
        return (self.file, self.pos, self.number)


@dataclass
class SourceTable:
    """The current state of a source table, and all its changes."""

    name: str
    key: tuple[str, ...]
    columns: list[ColumnSpec]
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    _serial: int = 0

    @property
    def topic(self) -> str:
        return f"shop.{DATABASE}.{self.name}"

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def move_change(self, op: str, old: tuple[str, int, int], new: tuple[str, int]) -> None:
        """Note that the connector reads a change, so far at the position `old`, from another server's binlog."""
        self.changes = [
            replace(c, file=new[0], pos=new[1]) if (c.op, c.place) == (op, old) else c for c in self.changes
        ]

    def new_key(self, row: Row) -> Key:
        """Return the key in `rows` of a new row: a number of its own if the table has no key."""
        if self.key:
            return self.key_of(row)
        self._serial += 1
        return (self._serial,)


class Source:
    """A database that executes random changes and writes its log.

    Args:
        seed: the same seed makes the same changes.
        partitions: number of partitions of each data topic.
        with_schemas: whether events and keys carry their schema.
        truncates: whether tables are sometimes truncated, if topics have one partition.
        compressed: whether transactions are compressed: all their events have one position then, and each statement
            numbers its rows from zero.
        numbered: whether events contain their number within the transaction; only without schemas.
        alters: how many of a hundred transactions alter a table.
        gtids: whether transactions have GTIDs.
    """

    def __init__(
        self,
        seed: int,
        *,
        partitions: int = 1,
        with_schemas: bool = False,
        truncates: bool = True,
        compressed: bool = False,
        numbered: bool = False,
        alters: int = 3,
        gtids: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.partitions = partitions
        self.with_schemas = with_schemas
        self.truncates = truncates
        self.compressed = compressed
        self.numbered = numbered
        self.alters = alters
        self.gtids = gtids
        self.tables: list[SourceTable] = []
        self.records: list[Record] = []
        # Just before the number of a binlog file exceeds six digits.
        self._file, self._pos, self._ts = 999_998, 4, 1_700_000_000_000
        self._transaction: Place | None = None
        self._names = 0
        self._number = 0
        self._server, self._committed = 1, 0

    @property
    def position(self) -> tuple[int, int]:
        """The binlog file and offset of the newest event."""
        return self._file, self._pos

    def start(self, shapes: Sequence[str], rows: int) -> None:
        """Create one table for each of `shapes`, and read them as a connector's snapshot does."""
        for number, shape in enumerate(shapes):
            key = () if shape == KEYLESS else tuple(c.name for c in SHAPES[shape])
            table = SourceTable(f"t{number}_{shape}", key, [*SHAPES[shape], *VALUES])
            self.tables.append(table)
            for _ in range(rows):
                row = self._new_row(table)
                table.rows[table.new_key(row)] = row
        # What an initial snapshot reads has neither the id of a server nor a GTID.
        place = replace(self._place(), server_id=0, gtid=None)
        for table in self.tables:
            self._define(table, "CREATE", place)
        for table in self.tables:
            for row in table.rows.values():
                self._log(table, "r", place, after=row)

    def run(self, transactions: int) -> None:
        """Execute random transactions."""
        for _ in range(transactions):
            if self.random.randrange(100) < self.alters:
                self._alter(self.random.choice(self.tables))
            elif self.compressed:
                self._transaction, self._number = self._place(), 0
                for _ in range(self.random.choice((1, 2, 5))):
                    self._statement(self.random.choice(self.tables))
                self._transaction = None
            else:
                self._statement(self.random.choice(self.tables))

    def _statement(self, table: SourceTable) -> None:
        if self._transaction is None:
            self._number = 0
        kinds: dict[Callable[[SourceTable], None], int] = {
            self._insert: 30,
            self._update: 40,
            self._delete: 15,
            self._rename_key: 10 if table.key else 0,
            self._truncate: 2 if self._may_truncate else 0,
        }
        self.random.choices(list(kinds), list(kinds.values()))[0](table)

    @property
    def _may_truncate(self) -> bool:
        """Whether a table may be truncated: in a separate transaction, and its topic has one partition."""
        return self.truncates and self._transaction is None and self.partitions == 1

    def _alter(self, table: SourceTable) -> None:
        kinds = (
            self._add_column,
            self._add_column,
            self._widen,
            self._rename_column,
            self._drop_column,
            self._replace_column,
        )
        self.random.choice(kinds)(table)

    def delivered(self, restarts: int) -> list[Record]:
        """Return the log if the connector is killed `restarts` times and redelivers a suffix each time."""
        first = next((i for i, r in enumerate(self.records) if r.value and not r.snapshot), len(self.records))
        arrived, position = [], 0
        for stop in sorted(self.random.randint(first, len(self.records)) for _ in range(restarts)):
            arrived += self.records[position:stop]
            position = max(first, stop - self.random.randint(0, 40))
        return arrived + self.records[position:]

    # Changes of the database

    def _insert(self, table: SourceTable) -> None:
        place = self._place()
        for number in range(self.random.choice((1, 1, 1, 4))):
            row = self._new_row(table)
            if table.key and table.key_of(row) in table.rows:
                continue
            table.rows[table.new_key(row)] = row
            self._log(table, "c", replace(place, row=number), after=row)

    def _update(self, table: SourceTable) -> None:
        place = self._place()
        for number, key in enumerate(self._some(table, self.random.choice((1, 1, 3)))):
            before = table.rows[key]
            after = dict(before)
            for column in self.random.sample(table.columns, 2):
                if column.name not in table.key:
                    after[column.name] = self._value(column)
            if after == before:
                # MySQL does not log an UPDATE that changes no value.
                continue
            table.rows[key] = after
            self._log(table, "u", replace(place, row=number), before=before, after=after)

    def _delete(self, table: SourceTable) -> None:
        place = self._place()
        for number, key in enumerate(self._some(table, self.random.choice((1, 2)))):
            self._log(table, "d", replace(place, row=number), before=table.rows.pop(key))

    def _rename_key(self, table: SourceTable) -> None:
        """Execute an UPDATE of the key, which is logged as a delete and a create at one position."""
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
        """Add a nullable column, or a NOT NULL one with a default, which existing rows get without an event."""
        self._names += 1
        name = f"extra {self._names}"
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
        self._define(table, "ALTER", self._place(), f"ADD COLUMN {quoted(name)} ...")

    def _widen(self, table: SourceTable) -> None:
        for i, column in enumerate(table.columns):
            if column.kind == "int":
                table.columns[i] = replace(column, kind="bigint")
                self._define(table, "ALTER", self._place(), f"MODIFY COLUMN {quoted(column.name)} BIGINT ...")
                return

    def _rename_column(self, table: SourceTable) -> None:
        self._names += 1
        if (column := self._any_value_column(table)) is not None:
            self._call(table, column, f"new name {self._names}")
            self._define(
                table,
                "ALTER",
                self._place(),
                f"RENAME COLUMN {quoted(column.name)} TO {quoted(f'new name {self._names}')}",
            )

    def _drop_column(self, table: SourceTable) -> None:
        if (column := self._any_value_column(table)) is not None:
            self._drop(table, column)
            self._define(table, "ALTER", self._place(), f"DROP COLUMN {quoted(column.name)}")

    def _replace_column(self, table: SourceTable) -> None:
        """Drop a column and rename another one to its name."""
        gone, stays = self._any_value_column(table), self._any_value_column(table)
        if gone is None or stays is None or gone == stays:
            return
        self._drop(table, gone)
        self._call(table, stays, gone.name)
        self._define(
            table,
            "ALTER",
            self._place(),
            f"DROP COLUMN {quoted(gone.name)}, RENAME COLUMN {quoted(stays.name)} TO {quoted(gone.name)}",
        )

    def _any_value_column(self, table: SourceTable) -> ColumnSpec | None:
        found = [c for c in table.columns if c.name not in table.key]
        # An update needs two columns.
        return self.random.choice(found) if len(found) > 2 else None

    @staticmethod
    def _call(table: SourceTable, column: ColumnSpec, name: str) -> None:
        table.columns[table.columns.index(column)] = replace(
            column, name=name, renamed_from=column.first_name
        )
        for row in [*table.rows.values(), *(c.row for c in table.changes if c.row is not None)]:
            if column.name in row:
                row[name] = row.pop(column.name)

    @staticmethod
    def _drop(table: SourceTable, column: ColumnSpec) -> None:
        """Drop a column. Its values that the changelog keeps are not compared."""
        table.columns.remove(column)
        for row in [*table.rows.values(), *(c.row for c in table.changes if c.row is not None)]:
            row.pop(column.name, None)

    # The log

    def _place(self) -> Place:
        if self._transaction is not None:
            return self._transaction
        if self.random.random() < 0.05:
            self._file, self._pos = self._file + 1, 4
        self._pos += self.random.randint(1, 500)
        self._ts += self.random.randint(-3, 400)
        self._committed += 1
        gtid = f"{self._server:08d}-1111-1111-1111-111111111111:{self._committed}" if self.gtids else None
        return Place(self._file, self._pos, 0, self._ts, self._server, gtid)

    def fail_over(self, file: int, pos: int) -> None:
        """Continue on another server, whose binlog ends at this position. The promotion takes some seconds."""
        self._file, self._pos, self._ts = file, pos, self._ts + 5_000
        self._server, self._committed = self._server + 1, 0

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
        if self.numbered and op != "r":
            value = self._with_number(value, place)
        image = before if op == "d" else after
        key, partition = None, self.random.randrange(self.partitions)
        if not table.key:
            partition = 0
        elif image is not None:
            key = key_of(image, table.key)
            partition = zlib.crc32(key) % self.partitions
        if self.with_schemas:
            value = with_value_schema(value, table.columns, table.topic)
            key = None if key is None else with_key_schema(key, table.columns, table.key, table.topic)
        self.records.append(Record(table.topic, partition, key, value, snapshot=op == "r"))
        if op == "d" and key is not None:
            self.records.append(Record(table.topic, partition, key, None))
        self._expect(table, op, place, before, after)

    def _with_number(self, value: bytes, place: Place) -> bytes:
        self._number += 1
        block = {"id": f"{place.file}:{place.pos}", "total_order": self._number, "data_collection_order": 1}
        return json.dumps(json.loads(value) | {"transaction": block}, ensure_ascii=False).encode()

    def _expect(
        self, table: SourceTable, op: str, place: Place, before: Row | None, after: Row | None
    ) -> None:
        at = (f"mysql-bin.{place.file:06d}", place.pos, place.row)
        changelog_rows: dict[str, dict[str, Row | None]] = {
            "u": {"UPDATE_BEFORE": before, "UPDATE_AFTER": after},
            "d": {"DELETE": before},
            "t": {"TRUNCATE": None},
        }
        for kind, row in changelog_rows.get(op, {"INSERT": after}).items():
            table.changes.append(Change(kind, op, None if row is None else dict(row), *at))

    def _define(self, table: SourceTable, kind: str, place: Place, action: str = "...") -> None:
        value = schema_change_event(
            place,
            table.name,
            table.columns,
            table.key,
            kind=kind,
            database=DATABASE,
            ddl=f"{kind} TABLE {quoted(table.name)} {action}",
            snapshot="false" if place.server_id else "true",
        )
        if self.with_schemas:
            # Its reader ignores the schema, so an empty one suffices.
            value = b'{"schema":{"type":"struct","fields":[]},"payload":' + value + b"}"
        self.records.append(Record("shop", 0, None, value, snapshot=kind == "CREATE"))

    # Values

    def _some(self, table: SourceTable, count: int) -> list[Key]:
        return self.random.sample(list(table.rows), min(count, len(table.rows)))

    def _new_row(self, table: SourceTable) -> dict[str, Any]:
        if not table.key and table.rows and self.random.random() < 0.4:
            return dict(self.random.choice(list(table.rows.values())))
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
