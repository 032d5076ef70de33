"""Find the transactions in a binlog whose rows the change events do not tell. Pure: from listed events to deviations.

- MySQL writes the row events of an XA transaction when it is prepared, and Debezium emits them as if they were
  committed. `XA COMMIT` or `XA ROLLBACK` follows as an event of its own, perhaps much later.
- A session with `binlog_format = STATEMENT` or `MIXED` changes rows without row events: the binlog has its statements.

Events are listed as `SHOW BINLOG EVENTS` does.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from replicator.model.position import binlog_number
from replicator.model.table import TableId
from replicator.schema.dml import ChangedTables, changed_tables

_GTID: Final = re.compile(r"'([0-9a-f-]{36}(?::[a-z_]\w*)?:\d+)'", re.IGNORECASE)
_TABLE: Final = re.compile(r"table_id: \d+ \((.*)\)", re.DOTALL)
_XA: Final = re.compile(r"XA (START|END|PREPARE|COMMIT|ROLLBACK) (.*?)( ONE PHASE)?", re.DOTALL)


class ListedEvent(NamedTuple):
    """One line of `SHOW BINLOG EVENTS`: file, offset of the event, its type, offset after it, and its description."""

    file: str
    pos: int
    kind: str
    end: int
    info: str


class DeviationKind(StrEnum):
    """Why the change events do not tell the rows."""

    ROLLED_BACK = "a prepared XA transaction was rolled back"
    STATEMENT = "a statement was logged without its rows"
    UNKNOWN = "an XA transaction was rolled back, and its beginning is not known"


class BinlogPlace(NamedTuple):
    """An offset in a binlog file of one server."""

    file: str
    pos: int

    @property
    def order(self) -> tuple[int, int]:
        """The order of the places of one server."""
        return binlog_number(self.file), self.pos

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


@dataclass(frozen=True, slots=True)
class Deviation:
    """A transaction whose rows the change events do not tell.

    Attributes:
        kind: why.
        changed: the tables that it may have changed.
        at: where its outcome begins in the binlog: of an XA transaction that it was rolled back, else the transaction.
        end: the place after that. A table that is read later has the right rows.
        gtid: the GTID of the outcome; None if the server has no GTIDs.
    """

    kind: DeviationKind
    changed: ChangedTables
    at: BinlogPlace
    end: BinlogPlace
    gtid: str | None = None

    def __str__(self) -> str:
        return f"{self.at} ({self.gtid})" if self.gtid else str(self.at)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared XA transaction whose outcome is not known yet.

    Attributes:
        at: where it begins.
        tables: the tables of its row events.
        stated: the tables that it changed by statements.
    """

    at: BinlogPlace
    tables: ChangedTables
    stated: ChangedTables = field(default_factory=ChangedTables)


@dataclass(frozen=True, slots=True)
class _Transaction:
    """The transaction to which the next event belongs."""

    at: BinlogPlace
    gtid: str | None = None
    tables: ChangedTables = field(default_factory=ChangedTables)
    stated: ChangedTables = field(default_factory=ChangedTables)
    is_begun: bool = False


class DeviationScanner:
    """Finds the deviations in the events of one server, which must be given in their order."""

    def __init__(self) -> None:
        self._open: dict[str, Prepared] = {}
        self._current: _Transaction | None = None

    @property
    def open(self) -> Mapping[str, Prepared]:
        """The prepared transactions whose outcome is not known yet, by their identifier."""
        return self._open

    def restart_at(self, following: BinlogPlace) -> BinlogPlace:
        """Return from where a new scanner must be given the events, if this one was given those before `following`."""
        begun = [prepared.at for prepared in self._open.values()]
        if self._current is not None:
            begun.append(self._current.at)
        return min([*begun, following], key=lambda place: place.order)

    def scan(self, events: Iterable[ListedEvent]) -> list[Deviation]:
        """Return the deviations that end in these events, in their order."""
        return [found for event in events if (found := self._next(event)) is not None]

    def _next(self, event: ListedEvent) -> Deviation | None:
        place = BinlogPlace(event.file, event.pos)
        match event.kind:
            case kind if "gtid" in kind.lower() and kind != "Previous_gtids":
                found = _GTID.search(event.info)
                self._current = _Transaction(place, None if found is None else found[1].lower())
                return None
            case "Table_map":
                current = self._current or _Transaction(place)
                self._current = replace(current, tables=current.tables | _mapped(event.info))
                return None
            case "Query":
                return self._query(event, place)
            case "Execute_load_query":
                return self._statement(event, place, event.info)
            case "XA_prepare":
                return self._prepared(event)
            case "Xid":
                return self._finished(event)
        return None

    def _query(self, event: ListedEvent, place: BinlogPlace) -> Deviation | None:
        if (xa := _XA.fullmatch(event.info.strip())) is not None:
            if xa[1] in ("COMMIT", "ROLLBACK"):
                return self._outcome(event, xa[2].strip(), place, rolled_back=xa[1] == "ROLLBACK")
            self._current = replace(self._current or _Transaction(place), is_begun=True)
            return None
        match event.info.strip().upper():
            case "BEGIN":
                self._current = replace(self._current or _Transaction(place), is_begun=True)
                return None
            case "COMMIT" | "ROLLBACK":
                return self._finished(event)
        return self._statement(event, place, event.info)

    def _statement(self, event: ListedEvent, place: BinlogPlace, text: str) -> Deviation | None:
        current = self._current or _Transaction(place)
        self._current = replace(current, stated=current.stated | changed_tables(text))
        return None if current.is_begun else self._finished(event)

    def _prepared(self, event: ListedEvent) -> Deviation | None:
        current, xa = self._current, _XA.fullmatch(event.info.strip())
        if current is None or xa is None:
            return None
        if xa[1] == "COMMIT":
            return self._finished(event)
        self._open[xa[2].strip()] = Prepared(current.at, current.tables, current.stated)
        self._current = None
        return None

    def _outcome(
        self, event: ListedEvent, identifier: str, place: BinlogPlace, *, rolled_back: bool
    ) -> Deviation | None:
        current, prepared = self._current or _Transaction(place), self._open.pop(identifier, None)
        self._current = None
        if prepared is None:
            return _deviation(DeviationKind.UNKNOWN, ChangedTables(), current, event) if rolled_back else None
        if rolled_back:
            # Its statements changed nothing.
            changed, kind = prepared.tables, DeviationKind.ROLLED_BACK
        else:
            changed, kind = prepared.stated, DeviationKind.STATEMENT
        return _deviation(kind, changed, current, event) if changed else None

    def _finished(self, event: ListedEvent) -> Deviation | None:
        current, self._current = self._current, None
        if current is None or not current.stated:
            return None
        return _deviation(DeviationKind.STATEMENT, current.stated, current, event)


def _deviation(
    kind: DeviationKind, changed: ChangedTables, current: _Transaction, event: ListedEvent
) -> Deviation:
    return Deviation(kind, changed, current.at, BinlogPlace(event.file, event.end), current.gtid)


def _mapped(info: str) -> ChangedTables:
    """Return the tables that the description of a table map may mean: both parts of a name may contain dots."""
    found = _TABLE.match(info)
    parts = [] if found is None else found[1].split(".")
    return ChangedTables(
        frozenset(TableId(".".join(parts[:i]), ".".join(parts[i:])) for i in range(1, len(parts)))
    )
