"""Read the source's binlog bit by bit, and find the transactions whose rows the change events do not show.

`SHOW BINLOG EVENTS` needs REPLICATION SLAVE, as the connector does, and the end of the binlog REPLICATION CLIENT.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from replicator.model.binlog import BinlogEnd, Watched
from replicator.model.gtid import GtidSet
from replicator.model.position import binlog_number
from replicator.schema.ddl.dml import ChangedTables
from replicator.sources.binlog.deviations import (
    BinlogPlace,
    Cascade,
    Deviation,
    DeviationKind,
    DeviationScanner,
    ListedEvent,
    RowChanges,
    Transaction,
    may_cascade,
)
from replicator.sources.mysql.binlogs import COMPRESSED as PAYLOAD
from replicator.sources.mysql.binlogs import previous_gtids, read_binlogs
from replicator.sources.mysql.connection import read_binlog_end
from replicator.sources.mysql.tables import read_cascades

_FILE_START: Final = 4
_MOST_GTIDS: Final = 600
"""Length of a GTID set that is recorded at most: catalogs in a database limit properties."""
MOST_EVENTS: Final = 2_000
"""Number of events that are listed by one statement."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of the binlog that was not read: from `since` on."""

    since: BinlogPlace
    reason: str


class DeviationReader:
    """Reads one server's binlog from a place on. For one thread.

    Attributes:
        reached: the place up to which it has read; None before the first call of `read`.
    """

    def __init__(self, known: Watched | None = None, most_events: int = MOST_EVENTS) -> None:
        """Continue from what is `known` of an earlier reader. Without it, begin at the end of the binlog."""
        self._known = known
        self._server = None if known is None else known.server
        self._most_events = most_events
        self._scanner = DeviationScanner()
        self._statements = 0
        self._cascades: frozenset[Cascade] = frozenset()
        self.reached = None if known is None else BinlogPlace(known.file, known.pos)
        self._first = self.reached
        self._done = None if known is None else BinlogPlace(known.done_file, known.done_pos)
        self._gap: Gap | None = None
        # The transactions that were watched for certain, also on an earlier server.
        self._gtids = GtidSet.parse(known.gtids) if known is not None and known.gtids else None
        self._skipped: GtidSet | None = None

    @property
    def open(self) -> Mapping[str, Transaction]:
        """The prepared XA transactions whose outcome was not read yet."""
        return self._scanner.open

    @property
    def statements(self) -> int:
        """How many statements were read that may have changed definitions."""
        return self._statements + self._scanner.statements

    def changes(self) -> RowChanges | None:
        """Return which tables have row events in what was read of the present server; None before the first `read`."""
        if self._first is None or self.reached is None:
            return None
        return RowChanges(self._server, self._first, self.reached, dict(self._scanner.newest))

    def take_gap(self) -> Gap | None:
        """Return the part of the binlog that could not be read since the last call; None if there is none."""
        gap, self._gap = self._gap, None
        return gap

    def watched(self) -> Watched | None:
        """Return from where another reader can continue; None before the first call of `read`."""
        if self.reached is None or self._server is None:
            return None
        begin = self._scanner.restart_at(self.reached)
        done = self.reached if self._done is None else max(self.reached, self._done, key=lambda at: at.order)
        gtids = None if self._gtids is None else str(self._gtids)
        if gtids is not None and len(gtids) > _MOST_GTIDS:
            gtids = None
        return Watched(self._server, begin.file, begin.pos, done.file, done.pos, gtids)

    def read(self, connection: Connection) -> tuple[list[Deviation], bool]:
        """Read some events. Return the deviations that end in them, and whether there may be more events.

        Raises:
            SourceError: the server cannot be queried.
        """
        server = str(connection.scalar(text("SELECT @@server_uuid")))
        end = read_binlog_end(connection)
        if self.reached is None:
            self._begin(server, BinlogPlace(end.file, end.pos))
            self._gtids = end.gtids
            return [], False
        if server != self._server:
            return self._follow(connection, server, end), True
        if self.reached == (end.file, end.pos):
            self._gtids, self._skipped = end.gtids, None
            return [], False
        sizes = read_binlogs(connection)
        if self.reached.file not in sizes or self.reached.pos > max(sizes[self.reached.file], end.pos):
            oldest = min(sizes, key=binlog_number)
            self._skip(server, BinlogPlace(oldest, _FILE_START), "MySQL has deleted its binlog")
            return [], True
        return self._read(connection, sizes)

    def _begin(self, server: str, place: BinlogPlace) -> None:
        self._server, self.reached, self._done, self._first = server, place, place, place
        self._scanner.newest.clear()

    def _follow(self, connection: Connection, server: str, end: BinlogEnd) -> list[Deviation]:
        """Continue on another server: in its newest file before which all transactions were watched on the last one.

        What is prepared there is known from the last one, and transactions that were watched do not count twice.
        Without GTIDs, no event shows whether it was sent by the last server.
        """
        known = self._gtids
        for name in sorted(read_binlogs(connection), key=binlog_number, reverse=True):
            if known is not None and known.lacking(GtidSet.parse(previous_gtids(connection, name))) == 0:
                self._skipped = known
                self._begin(server, BinlogPlace(name, _FILE_START))
                return []
        here = BinlogPlace(end.file, end.pos)
        self._skip(server, here, "another server has become the source")
        self._gtids = end.gtids
        if end.gtids is None:
            return [Deviation(DeviationKind.OTHER_SERVER, ChangedTables(), here, here)]
        return []

    def _skip(self, server: str, place: BinlogPlace, reason: str) -> None:
        """Continue at another place than where this reader has read up to."""
        if self.reached is not None:
            self._gap = Gap(self.reached, reason)
        # What was skipped may have statements.
        self._statements += self._scanner.statements + 1
        self._scanner = DeviationScanner()
        self._begin(server, place)

    def _read(self, connection: Connection, sizes: Mapping[str, int]) -> tuple[list[Deviation], bool]:
        file, pos = self.reached or BinlogPlace("", 0)
        later = sorted((n for n in sizes if binlog_number(n) > binlog_number(file)), key=binlog_number)
        events: list[ListedEvent] = []
        is_end = True
        if not later or pos < sizes[file]:
            events, is_end = self._listed(connection, BinlogPlace(file, pos))
        if may_cascade(events):
            # Foreign keys that a statement among these events removes count too.
            known, now = self._cascades, read_cascades(connection)
            self._scanner.cascades, self._cascades = known | now, now
        found = self._scanner.scan(events)
        if events:
            self.reached = BinlogPlace(file, events[-1].end)
        if later and is_end:
            self.reached = BinlogPlace(later[0], _FILE_START)
        return [d for d in found if self._is_new(d)], bool(later) or not is_end

    def _is_new(self, found: Deviation) -> bool:
        if self._skipped is not None and found.gtid is not None:
            return self._skipped.lacking(GtidSet.parse(found.gtid)) > 0
        return self._done is None or found.end.order > self._done.order

    def _listed(self, connection: Connection, start: BinlogPlace) -> tuple[list[ListedEvent], bool]:
        """Return events from a place on, and whether these are all of the file."""
        most = self._most_events
        while True:
            with _undecoded(connection):
                rows = connection.exec_driver_sql(
                    f"SHOW BINLOG EVENTS IN %s FROM {int(start.pos)} LIMIT {int(most)}", (start.file,)
                ).all()
            # Columns: file, offset, type, server, offset after it, description.
            events = [
                ListedEvent(start.file, int(row[1]), _text(row[2]), int(row[4]), _text(row[5]))
                for row in rows
            ]
            if len(events) < most:
                return events, True
            if whole := _without_cut(events):
                return whole, False
            most *= 4


@contextmanager
def _undecoded(connection: Connection) -> Iterator[None]:
    """Let the driver return texts as bytes: MySQL lists a statement as its session wrote it, in any character set."""
    driver = connection.connection.dbapi_connection
    before, driver.use_unicode = driver.use_unicode, False  # type: ignore[union-attr]  # of PyMySQL
    try:
        yield
    finally:
        driver.use_unicode = before  # type: ignore[union-attr]


def _text(value: bytes | str) -> str:
    """Decode a text of the binlog. Of a statement in another character set, only the words in ASCII are right."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _without_cut(events: list[ListedEvent]) -> list[ListedEvent]:
    """Return the events, but without a compressed transaction at the end: its own events may not all be listed.

    MySQL lists them after the transaction, each with the offset after it.
    """
    if events[-1].kind != PAYLOAD and events[-1].pos != events[-1].end:
        return events
    last = max((i for i, event in enumerate(events) if event.kind == PAYLOAD), default=0)
    return events[:last]
