"""The lines that MySQL 9.7 answers to `SHOW BINLOG EVENTS`, of transactions of several kinds.

Recorded in tests/golden/binlog, with the names of the database and of the server replaced. A line has offset, type,
offset after the event, and description, between tabs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from sqlalchemy import Connection

from replicator.sources.binlog.deviations import ListedEvent
from tests.support.golden import FOLDER

UUID = "bd6b9431-e951-11f1-9e91-02fc00000001"
FILE = "mysql-bin.000001"
SERVER = "3e11"


def listed(text: str, file: str = FILE) -> list[ListedEvent]:
    """Return the events in recorded lines."""
    rows = [line.split("\t") for line in text.strip().splitlines()]
    return [ListedEvent(file, int(pos), kind, int(end), info) for pos, kind, end, info in rows]


def _recorded(name: str) -> str:
    return (FOLDER / "binlog" / f"{name}.tsv").read_text(encoding="utf-8")


ROLLED_BACK: Final = _recorded("rolled-back")
COMMITTED: Final = _recorded("committed")
COMPRESSED: Final = _recorded("compressed")
ROWS: Final = _recorded("rows")
STATEMENTS: Final = _recorded("statements")
DEFINITIONS: Final = _recorded("definitions")
CALLS: Final = _recorded("calls")
CASCADES: Final = _recorded("cascades")
"""Deletes, updates and replaces a row, with `innodb_native_foreign_keys`."""
PREPARED_CASCADE: Final = _recorded("prepared-cascade")
LOGGED_CASCADES: Final = _recorded("logged-cascades")
"""Cascades that have events, a replaced row, and a delete without foreign keys."""


class Rows(list[tuple[Any, ...]]):
    def all(self) -> "Rows":
        return self

    def first(self) -> tuple[Any, ...] | None:
        return self[0] if self else None


@dataclass
class ListingServer:
    """Has the events of some files; the last one is written."""

    files: dict[str, list[ListedEvent]]
    uuid: str = SERVER
    gtids: str = ""
    cascades: list[tuple[str, ...]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    use_unicode: bool = True

    @property
    def dbapi_connection(self) -> "ListingServer":
        return self

    @property
    def connection(self) -> Connection:
        return cast("Connection", self)

    def execution_options(self, **_: object) -> None:
        return None

    def scalar(self, _: object) -> str:
        return self.uuid

    def execute(self, statement: object) -> Rows:
        name = list(self.files)[-1]
        if "VERSION" in str(statement):
            return Rows([("9.7.0",)])
        if "referential_constraints" in str(statement):
            return Rows(self.cascades)
        if "STATUS" in str(statement):
            return Rows([(name, self._size(name), "", "", self.gtids)])
        return Rows((name, self._size(name), "No") for name in self.files)

    def _size(self, name: str) -> int:
        return self.files[name][-1].end if self.files[name] else 4

    def exec_driver_sql(self, statement: str, names: Sequence[str]) -> Rows:
        self.statements.append(statement)
        words = statement.split()
        start, most = int(words[words.index("FROM") + 1]) if "FROM" in words else 4, int(words[-1])
        found = [e for e in self.files[names[0]] if e.pos >= start]
        # The events in a compressed transaction are listed behind it, and not without it.
        while found and found[0].pos == found[0].end:
            found.pop(0)
        sent = self._sent
        return Rows((e.file, e.pos, sent(e.kind), 1, e.end, sent(e.info)) for e in found[:most])

    def _sent(self, value: str) -> str | bytes:
        """Return a text as PyMySQL does. An escaped byte in it is not of UTF-8."""
        sent = value.encode("utf-8", "surrogateescape")
        return sent.decode() if self.use_unicode else sent
