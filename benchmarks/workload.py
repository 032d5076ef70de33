"""The benchmark's source database: every row, change and final state is computed and never stored.

A row is a pure function of its number and its version. So a before-image needs no stored row, several processes can
write disjoint parts of one log, and the final state is known exactly.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from zlib import crc32

DATABASE = "shop"
ROWS_PER_TRANSACTION = 100
SNAPSHOT, INSERT, UPDATE, DELETE = range(4)

_BINLOG_LIMIT = 64 * 1024 * 1024
_BINLOG_EVENT_BYTES = {INSERT: 190, UPDATE: 300, DELETE: 190}
_TRANSACTION_HEAD_BYTES = 234
_TRANSACTION_TAIL_BYTES = 31
_SNAPSHOT_TIME_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC
_STATUSES = ("new", "paid", "packed", "shipped", "delivered", "returned", "cancelled", "on hold")
_WORDS = (
    "leave", "at", "the", "door", "gift", "wrap", "please", "call", "before", "noon", "fragile", "second",
    "floor", "ring", "twice", "blue", "paper", "no", "plastic", "invoice", "by", "mail", "express", "crate",
    "handle", "with", "care", "weekend", "only", "side", "entrance", "thanks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """The contents of one log: `snapshot_rows` rows in `tables` tables, then `changes` changes."""

    prefix: str
    tables: int = 1
    partitions: int = 1
    snapshot_rows: int = 1_000_000
    changes: int = 500_000
    with_schemas: bool = False
    avro: bool = False
    seed: int = 7

    def table(self, index: int) -> str:
        """Return the name of a table in the database."""
        return "orders" if self.tables == 1 else f"orders_{index:03d}"

    def topic(self, index: int) -> str:
        """Return the topic of a table, as Debezium names it."""
        return f"{self.prefix}.{DATABASE}.{self.table(index)}"

    def locate(self, number: int) -> tuple[int, int]:
        """Return (table index, primary key) of the row with this number."""
        return number % self.tables, number // self.tables + 1


@dataclass(frozen=True, slots=True)
class Row:
    """One version of one row; `cents` is the amount in hundredths, `updated_us` is in UTC microseconds."""

    id: int
    quantity: int
    cents: int
    status: str
    note: str
    updated_us: int

    @property
    def amount(self) -> str:
        """Return the amount with two decimals, as the source shows it."""
        return f"{self.cents // 100}.{self.cents % 100:02d}"

    @property
    def size(self) -> int:
        """Return the bytes of the values as MySQL stores them, the minimum that a change of this row must write."""
        return 8 + 4 + 6 + 1 + len(self.status) + 1 + len(self.note) + 8

    def checksum(self) -> int:
        """Return a CRC-32 of all values; `benchmarks.lake.CHECKSUM` computes it in the lake."""
        text = f"{self.id}|{self.quantity}|{self.amount}|{self.status}|{self.note}|{self.updated_us}"
        return crc32(text.encode())


@dataclass(frozen=True, slots=True)
class Change:
    """One source event: the kind of change, the number of the row, and the position in the binlog."""

    kind: int
    number: int
    transaction: int
    file: int
    pos: int

    @property
    def commit_us(self) -> int:
        """Return the source commit time in UTC microseconds; transactions are 2 ms apart."""
        return _SNAPSHOT_TIME_US + (0 if self.kind == SNAPSHOT else 60_000_000 + self.transaction * 2_000)


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table after all changes."""

    rows: int
    cents: int
    checksum: int


def row(key: int, version: int) -> Row:
    """Return the values of a row at a version; versions begin at 0."""
    mixed = (key * 2_654_435_761 + version * 2_246_822_519 + 374_761_393) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2_654_435_769) & 0xFFFFFFFF
    words = _WORDS
    note = (
        f"{words[mixed & 31]} {words[mixed >> 5 & 31]} {words[mixed >> 10 & 31]} {words[mixed >> 15 & 31]} "
        f"{words[mixed >> 20 & 31]} {words[mixed >> 25 & 31]} ref {mixed:08x} rev {version}"
    )
    return Row(
        key,
        mixed % 1000,
        (mixed * 7 + key) % 1_000_000_000,
        _STATUSES[mixed >> 29],
        note,
        _SNAPSHOT_TIME_US + version * 86_400_000_000 + mixed % 86_400_000_000,
    )


def changes(layout: Layout) -> Iterator[Change]:
    """Yield all events in commit order: the snapshot, then updates (70 %), inserts (20 %), deletes (10 %)."""
    file, pos = 1, 157
    for number in range(layout.snapshot_rows):
        yield Change(SNAPSHOT, number, 0, file, pos)
    random = Random(layout.seed)
    live = array("l", range(layout.snapshot_rows))
    fresh = layout.snapshot_rows
    for step in range(layout.changes):
        transaction, index = divmod(step, ROWS_PER_TRANSACTION)
        if index == 0:
            if pos > _BINLOG_LIMIT:
                file, pos = file + 1, 157
            pos += _TRANSACTION_HEAD_BYTES
        draw = random.random()
        if draw < 0.2:
            kind, number = INSERT, fresh
            live.append(fresh)
            fresh += 1
        else:
            place = int(random.random() * len(live))
            kind, number = UPDATE, live[place]
            if draw >= 0.9:
                kind = DELETE
                live[place] = live[-1]
                live.pop()
        yield Change(kind, number, transaction, file, pos)
        pos += _BINLOG_EVENT_BYTES[kind]
        if index == ROWS_PER_TRANSACTION - 1:
            pos += _TRANSACTION_TAIL_BYTES


def final_state(layout: Layout) -> tuple[dict[str, TableState], dict[str, int]]:
    """Return the state of each table after the last change, and totals of the log."""
    versions: dict[int, int] = {}
    totals = {"events": 0, "tombstones": 0, "changed_bytes": 0}
    for change in changes(layout):
        _, key = layout.locate(change.number)
        totals["events"] += 1
        if change.kind == DELETE:
            totals["tombstones"] += 1
            totals["changed_bytes"] += row(key, versions.pop(change.number)).size
            continue
        versions[change.number] = versions.get(change.number, -1) + 1
        totals["changed_bytes"] += row(key, versions[change.number]).size
    sums = {layout.table(index): [0, 0, 0] for index in range(layout.tables)}
    for number, version in versions.items():
        index, key = layout.locate(number)
        image = row(key, version)
        counted = sums[layout.table(index)]
        counted[0] += 1
        counted[1] += image.cents
        counted[2] += image.checksum()
    return {name: TableState(*counted) for name, counted in sums.items()}, totals
