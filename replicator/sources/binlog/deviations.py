"""Find the transactions in a binlog whose rows the change events do not show. Pure: from listed events to deviations.

- MySQL writes the row events of an XA transaction when it is prepared, and Debezium emits them as if they were
  committed. `XA COMMIT` or `XA ROLLBACK` follows as an event of its own, perhaps much later.
- A session with `binlog_format = STATEMENT` or `MIXED` changes rows without row events: the binlog has its statements.
- InnoDB changes the rows of child tables by foreign keys with an action, without row events. From MySQL 9.6 on, the
  server changes them instead and writes row events, unless `innodb_native_foreign_keys` is on. Each row event of a
  parent tells which of the two it was.
- A session with `binlog_row_value_options = PARTIAL_JSON` writes another kind of row event for updates, which Debezium
  skips.
- If the server cannot write changes of a table without transactions to the binlog, it writes an incident instead.

Statements that are no changes of rows are counted: they may change definitions.

Events are listed as `SHOW BINLOG EVENTS` does.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from replicator.model.position import binlog_number
from replicator.model.table import TableId
from replicator.schema.ddl.dml import ChangedTables, changed_tables


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key that changes rows of `child` when those of `parent` change.

    Attributes:
        on_delete: whether it does if a row of the parent is deleted.
        on_update: whether it does if the referenced columns of a row of the parent change.
        deletes: whether it deletes the row of the child when that of the parent is deleted, rather than set NULL.
    """

    parent: TableId
    child: TableId
    on_delete: bool = True
    on_update: bool = False
    deletes: bool = True


def changed_children(
    cascades: Collection[Cascade], deleted: ChangedTables, updated: ChangedTables
) -> ChangedTables:
    """Return the tables whose rows may change because rows of others are `deleted` or `updated`, at any depth.

    It is not known which columns of a row are updated: every update counts.
    """
    children: set[TableId] = set()
    while True:
        gone = [c for c in cascades if c.on_delete and deleted.may_have(c.parent)]
        changed = [c for c in cascades if c.on_update and updated.may_have(c.parent)]
        children.update(c.child for c in [*gone, *changed])
        more_deleted = deleted | ChangedTables(frozenset(c.child for c in gone if c.deletes))
        more_updated = updated | ChangedTables(
            frozenset(c.child for c in [*changed, *(c for c in gone if not c.deletes)])
        )
        if (more_deleted, more_updated) == (deleted, updated):
            return ChangedTables(frozenset(children))
        deleted, updated = more_deleted, more_updated


_GTID: Final = re.compile(r"'([0-9a-f-]{36}(?::[a-z_]\w*)?:\d+)'", re.IGNORECASE)
_TABLE: Final = re.compile(r"table_id: (\d+) \((.*)\)", re.DOTALL)
_ROWS: Final = re.compile(r"table_id: (\d+)")
_LOGGED: Final = ("USE_SQL_FOREIGN_KEY_F", "NO_FOREIGN_KEY_CHECKS_F")
"""Flags of a row event: the server has written row events of the children; or foreign keys did nothing."""
_DELETES: Final = "Delete_rows"
_CHANGES: Final = (_DELETES, "Update_rows")
_PARTIAL: Final = "Update_rows_partial"
_XA: Final = re.compile(r"XA (START|END|PREPARE|COMMIT|ROLLBACK) (.*?)( ONE PHASE)?", re.DOTALL)


class ListedEvent(NamedTuple):
    """One line of `SHOW BINLOG EVENTS`: file, offset of the event, its type, offset after it, and its description."""

    file: str
    pos: int
    kind: str
    end: int
    info: str


class DeviationKind(StrEnum):
    """Why the change events do not show the rows."""

    ROLLED_BACK = "a prepared XA transaction was rolled back"
    STATEMENT = "a statement was logged without its rows"
    CASCADE = "a foreign key may have changed rows without events"
    PARTIAL = "a session changed rows with binlog_row_value_options = PARTIAL_JSON"
    LOST = "the server could not write changes to the binlog, which has an incident instead"
    OTHER_SERVER = "another server without GTIDs has become the source, so their order is not known"
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
    """A transaction whose rows the change events do not show.

    Attributes:
        kind: why.
        changed: the tables that it may have changed; empty if these are not known.
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


@dataclass(slots=True)
class Transaction:
    """A transaction, as far as its events were listed.

    Attributes:
        at: where it begins.
        tables: the tables of its row events.
        by_id: the same by the number that these have.
        deleted: the tables of which it deleted rows. Foreign keys may have changed rows of other tables then.
        updated: the tables of which it updated rows. The same is true.
        stated: the tables that it changed by statements.
        cascaded: the tables whose rows it may have changed by foreign keys, without row events; known at its end.
        partial: the tables of which it has events with parts of values.
    """

    at: BinlogPlace
    gtid: str | None = None
    tables: ChangedTables = field(default_factory=ChangedTables)
    by_id: dict[str, ChangedTables] = field(default_factory=dict)
    deleted: ChangedTables = field(default_factory=ChangedTables)
    updated: ChangedTables = field(default_factory=ChangedTables)
    stated: ChangedTables = field(default_factory=ChangedTables)
    cascaded: ChangedTables = field(default_factory=ChangedTables)
    partial: ChangedTables = field(default_factory=ChangedTables)
    is_begun: bool = False

    @property
    def hidden(self) -> list[tuple[DeviationKind, ChangedTables]]:
        """The changes that events do not show, if it is committed."""
        return [
            (DeviationKind.STATEMENT, self.stated),
            (DeviationKind.PARTIAL, self.partial),
            (DeviationKind.CASCADE, self.cascaded),
        ]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Which tables have row events in a stretch of one server's binlog.

    Attributes:
        server: its UUID.
        first, upto: where the stretch begins and ends.
        newest: the tables that a row event may be of → where the last one is.
    """

    server: str | None
    first: BinlogPlace
    upto: BinlogPlace
    newest: Mapping[ChangedTables, BinlogPlace]

    def since(self, place: BinlogPlace, before: "RowChanges | None") -> ChangedTables | None:
        """Return the tables with row events after `place`; None if the stretch does not have all of them.

        `before` is what was known when the binlog was at `place`, by which another server is recognized.
        """
        same = before is not None and (before.server, before.first) == (self.server, self.first)
        if not same or place.order < self.first.order:
            return None
        found = ChangedTables()
        for tables, newest in self.newest.items():
            if newest.order >= place.order:
                found |= tables
        return found


def may_cascade(events: Iterable[ListedEvent]) -> bool:
    """Return whether foreign keys may have changed rows in these events without row events."""
    return any(_unlogged_parent(event) is not None for event in events)


class DeviationScanner:
    """Finds the deviations in the events of one server, which must be given in their order.

    Attributes:
        cascades: the foreign keys with an action that the server has, or had a moment ago.
        statements: how many statements were found that may have changed definitions.
        newest: the tables that a row event may be of → where the last one was found.
    """

    def __init__(self) -> None:
        self.cascades: frozenset[Cascade] = frozenset()
        self.statements = 0
        self.newest: dict[ChangedTables, BinlogPlace] = {}
        self._open: dict[str, Transaction] = {}
        # The one to which the next event belongs.
        self._current: Transaction | None = None

    @property
    def open(self) -> Mapping[str, Transaction]:
        """The prepared transactions whose outcome is not known yet, by their identifier."""
        return self._open

    def restart_at(self, following: BinlogPlace) -> BinlogPlace:
        """Return from where a new scanner must be given the events, if this one was given those before `following`."""
        begun = [prepared.at for prepared in self._open.values()]
        if self._current is not None:
            begun.append(self._current.at)
        return min([*begun, following], key=lambda place: place.order)

    def scan(self, events: Iterable[ListedEvent]) -> list[Deviation]:
        """Return the deviations that end in these events, in their order; of equal cascades only the last one."""
        found = [deviation for event in events for deviation in self._next(event)]
        last = {d.changed: d for d in found if d.kind is DeviationKind.CASCADE}
        return [d for d in found if d.kind is not DeviationKind.CASCADE or d is last[d.changed]]

    def _next(self, event: ListedEvent) -> list[Deviation]:
        place = BinlogPlace(event.file, event.pos)
        match event.kind:
            case kind if "gtid" in kind.lower() and kind != "Previous_gtids":
                found = _GTID.search(event.info)
                self._current = Transaction(place, None if found is None else found[1].lower())
            case "Table_map":
                current, (number, tables) = self._begun(place), _mapped(event.info)
                self.newest[tables] = place
                if current.by_id.get(number) != tables:
                    current.tables |= tables
                    current.by_id[number] = tables
            case kind if kind.startswith(_CHANGES):
                self._rows(event)
            case "Incident":
                current = self._current or Transaction(place)
                return [_deviation(DeviationKind.LOST, ChangedTables(), current, event)]
            case "Query":
                return self._query(event, place)
            case "Execute_load_query":
                return self._statement(event, place, event.info)
            case "XA_prepare":
                return self._prepared(event)
            case "Xid":
                return self._finished(event)
        return []

    def _begun(self, place: BinlogPlace) -> Transaction:
        """Return the transaction of an event at a place; the event may be its first one."""
        self._current = self._current or Transaction(place)
        return self._current

    def _rows(self, event: ListedEvent) -> None:
        if (current := self._current) is None:
            return
        if event.kind == _PARTIAL and (found := _ROWS.match(event.info)):
            current.partial |= current.by_id.get(found[1], ChangedTables())
        if (parent := _unlogged_parent(event)) is None:
            return
        tables = current.by_id.get(parent, ChangedTables())
        if event.kind.startswith(_DELETES):
            current.deleted |= tables
        else:
            current.updated |= tables

    def _query(self, event: ListedEvent, place: BinlogPlace) -> list[Deviation]:
        if (xa := _XA.fullmatch(event.info.strip())) is not None:
            if xa[1] in ("COMMIT", "ROLLBACK"):
                return self._outcome(event, xa[2].strip(), place, rolled_back=xa[1] == "ROLLBACK")
            self._begun(place).is_begun = True
            return []
        match event.info.strip().upper():
            case "BEGIN":
                self._begun(place).is_begun = True
                return []
            case "COMMIT" | "ROLLBACK":
                return self._finished(event)
        return self._statement(event, place, event.info)

    def _statement(self, event: ListedEvent, place: BinlogPlace, text: str) -> list[Deviation]:
        current, changed = self._begun(place), changed_tables(text)
        if not changed:
            self.statements += 1
        current.stated |= changed
        return [] if current.is_begun else self._finished(event)

    def _prepared(self, event: ListedEvent) -> list[Deviation]:
        current, xa = self._current, _XA.fullmatch(event.info.strip())
        if current is None or xa is None:
            return []
        if xa[1] == "COMMIT":
            return self._finished(event)
        current.cascaded = changed_children(self.cascades, current.deleted, current.updated)
        self._open[xa[2].strip()] = current
        self._current = None
        return []

    def _outcome(
        self, event: ListedEvent, identifier: str, place: BinlogPlace, *, rolled_back: bool
    ) -> list[Deviation]:
        current, prepared = self._current or Transaction(place), self._open.pop(identifier, None)
        self._current = None
        if prepared is None:
            return [_deviation(DeviationKind.UNKNOWN, ChangedTables(), current, event)] if rolled_back else []
        if rolled_back:
            # Its statements and its foreign keys changed nothing.
            return _deviations(current, event, [(DeviationKind.ROLLED_BACK, prepared.tables)])
        return _deviations(current, event, prepared.hidden)

    def _finished(self, event: ListedEvent) -> list[Deviation]:
        current, self._current = self._current, None
        if current is None:
            return []
        current.cascaded = changed_children(self.cascades, current.deleted, current.updated)
        return _deviations(current, event, current.hidden)


def _deviations(
    current: Transaction, event: ListedEvent, found: Iterable[tuple[DeviationKind, ChangedTables]]
) -> list[Deviation]:
    return [_deviation(kind, changed, current, event) for kind, changed in found if changed]


def _deviation(
    kind: DeviationKind, changed: ChangedTables, current: Transaction, event: ListedEvent
) -> Deviation:
    return Deviation(kind, changed, current.at, BinlogPlace(event.file, event.end), current.gtid)


def _unlogged_parent(event: ListedEvent) -> str | None:
    """Return the number of the table in a row event whose foreign keys may have changed rows without row events."""
    if not event.kind.startswith(_CHANGES) or any(flag in event.info for flag in _LOGGED):
        return None
    found = _ROWS.match(event.info)
    return None if found is None else found[1]


def _mapped(info: str) -> tuple[str, ChangedTables]:
    """Return the number in a table map, and the tables that it may mean: both parts of a name may contain dots."""
    found = _TABLE.match(info)
    number, name = ("", "") if found is None else found.groups()
    parts = name.split(".")
    tables = (TableId(".".join(parts[:i]), ".".join(parts[i:])) for i in range(1, len(parts)))
    return number, ChangedTables(frozenset(tables))
