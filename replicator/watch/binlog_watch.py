"""Watch the source's binlog beside the stream, for changes that the events do not show as they are.

A thread reads the binlog; see `sources.binlog.deviations`. The scheduler's thread pauses the tables of what it finds,
and they are healed as others are. A table is not paused before the connector has read past the transaction: a re-read
that began earlier would get its events once more.
"""

import threading
import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from replicator.batch import MirrorContext
from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError, EventsWrong, PrivilegeError, ReplicatorError
from replicator.model.binlog import WATCHED_KEY, BinlogEnd, ConnectorOffset, Watched, watched_in
from replicator.model.common import now_ms
from replicator.model.compared import MAY_DIFFER_KEY, MayDiffer
from replicator.model.gtid import GtidSet
from replicator.model.table import TableId
from replicator.recovery.request import Requests
from replicator.sources.binlog.deviations import Deviation, DeviationKind, RowChanges
from replicator.sources.connector.settings import connect_client
from replicator.sources.mysql.connection import connect
from replicator.sources.mysql.deviation_reader import DeviationReader
from replicator.sources.mysql.tables import changed_in_source, tables_in_source
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.binlog")
_POLL_S: Final = 1.0
"""How often the end of the binlog is asked for."""
_RETRY_S: Final = 5.0
_UNWATCHED_S: Final = 60.0
"""After this time without the binlog, re-reads do not wait for it any more."""
_RECORD_S: Final = 30.0
"""How often it is recorded up to where the binlog was watched, if nothing was found."""
_READ_TIMEOUT_S: Final = 60


@dataclass(frozen=True, slots=True)
class _Suspected:
    """A deviation, and the mirrored tables that it may have changed.

    Attributes:
        before: from where another reader finds the deviation again.
    """

    deviation: Deviation
    tables: tuple[TableId, ...]
    before: Watched | None


@dataclass(frozen=True, slots=True)
class _Connector:
    """Up to where the connector has read.

    Attributes:
        is_known: whether Kafka Connect can be asked. If not, everything counts as read.
        runs: whether it will read more.
        offset: None if it is unknown.
    """

    is_known: bool = True
    runs: bool = False
    offset: ConnectorOffset | None = None

    @classmethod
    def of(cls, config: Config) -> "_Connector":
        client, log = connect_client(config), config.log
        if client is None or not isinstance(log, KafkaLog):
            return cls(is_known=False)
        try:
            if (found := client.find(log.topic_prefix)) is None:
                return cls()
            offset = client.offset(found.name)
            known = None if offset is None else ConnectorOffset.from_json(offset)
            return cls(runs=found.state.summary == "RUNNING", offset=known)
        except (ConnectError, ValueError):
            return cls()

    def has_read(self, deviation: Deviation) -> bool:
        """Return whether the log has all events of a transaction."""
        if not self.is_known:
            return True
        gtids = None if deviation.gtid is None else GtidSet.parse(deviation.gtid)
        end = BinlogEnd(deviation.end.file, deviation.end.pos, gtids)
        return self.offset is not None and self.offset.covers(end)


class BinlogWatch:
    """Watches the binlog of one mirror's source.

    `step` and `close` are for the scheduler's thread; the rest is for the thread that `start` starts.

    Attributes:
        statements: how many statements were seen that may have changed definitions.
        changes: the tables with row events in what was watched; None if nothing was.
    """

    def __init__(self, context: MirrorContext, requests: Requests) -> None:
        self._context = context
        self._requests = requests
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._ready: list[_Suspected] = []
        self._watched: Watched | None = None
        self._recorded: Watched | None = None
        self._recorded_at: float | None = None
        self._found: list[tuple[Deviation, Watched | None]] = []
        self._pending: list[_Suspected] = []
        self._warned: set[TableId] = set()
        self._told: set[TableId] = set()
        # What foreign keys may have changed and is not recorded yet: the last transaction of each table.
        self._may_differ: dict[TableId, MayDiffer] = {}
        self._is_behind = True
        self._failed_since: float | None = None
        self._failure: str | None = None
        self.statements = 0
        self.changes: RowChanges | None = None

    @property
    def is_behind(self) -> bool:
        """Whether it has not read the binlog up to its end yet, or tables are to be paused; not if it cannot read."""
        with self._lock:
            return self._is_behind or bool(self._ready)

    def start(self) -> None:
        """Start to watch where an earlier process has stopped."""
        lake, config = self._context.lake, self._context.config
        self._recorded = watched_in(lake.namespace_properties(config.lake.ops_namespace))
        self._context.prepared.begin()
        threading.Thread(target=self._run, name="binlog", daemon=True).start()

    def close(self) -> None:
        """Stop watching. Does not wait for the thread, which may be in a request."""
        self._stop.set()
        self._context.prepared.end()

    def step(self) -> None:
        """Pause the tables of what was found, and record up to where the binlog was watched."""
        with self._lock:
            ready, watched, behind = list(self._ready), self._watched, self._is_behind
            may_differ = dict(self._may_differ)
        # A table is read again after the last one.
        newest = {table: suspected.deviation for suspected in ready for table in suspected.tables}
        for table, deviation in newest.items():
            self._requests.pause(table, _error(table, deviation))
        with self._lock:
            self._ready = self._ready[len(ready) :]
        if self._recorded_at is None:
            is_due = bool(ready) or self._recorded is None or not behind
        else:
            is_due = bool(ready) or time.monotonic() >= self._recorded_at + _RECORD_S
        lake, namespace = self._context.lake, self._context.config.lake.ops_namespace
        for table, found in may_differ.items():
            if is_due or table not in self._told:
                lake.set_namespace_property(namespace, f"{MAY_DIFFER_KEY}{table}", found.to_json())
                self._told.add(table)
                with self._lock:
                    if self._may_differ[table] == found:
                        del self._may_differ[table]
        if watched is not None and watched != self._recorded and is_due:
            lake.set_namespace_property(namespace, WATCHED_KEY, watched.to_json())
            self._recorded, self._recorded_at = watched, time.monotonic()

    def _run(self) -> None:
        reader = DeviationReader(self._recorded)
        try:
            while not self._stop.is_set():
                try:
                    with connect(self._context.config.source, read_timeout=_READ_TIMEOUT_S) as connection:
                        connection.execution_options(isolation_level="AUTOCOMMIT")
                        self._watch(connection, reader)
                except PrivilegeError as error:
                    _LOG.warning("the binlog is not watched", reason=error.message, next=error.hint)
                    return
                except Exception as error:  # noqa: BLE001 - nothing may end the watch
                    self._failed(error)
                    self._stop.wait(_RETRY_S)
        finally:
            self._set_behind(False)
            self._context.prepared.end()

    def _failed(self, error: Exception) -> None:
        """Log why the binlog is not watched at the moment. Nothing waits for it any more."""
        known = isinstance(error, ReplicatorError)
        reason = error.message if isinstance(error, ReplicatorError) else f"{type(error).__name__}: {error}"
        if reason != self._failure:
            _LOG.warning("the binlog is not watched at the moment", reason=reason, exc_info=not known)
        self._failure, self._failed_since = reason, self._failed_since or time.monotonic()
        if time.monotonic() > self._failed_since + _UNWATCHED_S:
            self._context.prepared.end()
        self._set_behind(False)

    def _succeeded(self) -> None:
        if self._failed_since is not None:
            self._failure = self._failed_since = None
            self._context.prepared.begin()

    def _watch(self, connection: Connection, reader: DeviationReader) -> None:
        """Read the binlog until the watch is stopped. Raises ReplicatorError if the server does not answer."""
        while not self._stop.is_set():
            before = reader.watched()
            found, more = reader.read(connection)
            self._succeeded()
            if (gap := reader.take_gap()) is not None:
                _LOG.warning(
                    "a part of the binlog was not watched",
                    since=str(gap.since),
                    reason=gap.reason,
                    next="run: replicator verify",
                )
            self._found += [(deviation, before) for deviation in found]
            while self._found:
                # It is noted again if the server does not answer now.
                self._note(connection, *self._found[0])
                del self._found[0]
            self.statements, self.changes = reader.statements, reader.changes()
            self._publish(reader, caught_up=not more)
            if not more:
                self._stop.wait(_POLL_S)

    def _note(self, connection: Connection, deviation: Deviation, before: Watched | None) -> None:
        if deviation.kind is DeviationKind.UNKNOWN:
            _LOG.warning(
                "an XA transaction was rolled back, and it is not known which tables it had changed",
                at=str(deviation),
                next="run: replicator verify",
            )
            return
        mirrored = tables_in_source(connection, self._context.config)
        if deviation.kind is DeviationKind.STATEMENT:
            tables = tuple(changed_in_source(connection, deviation.changed, mirrored))
        elif deviation.kind in (DeviationKind.LOST, DeviationKind.OTHER_SERVER):
            tables = tuple(mirrored)
        else:
            tables = tuple(table for table in mirrored if deviation.changed.may_have(table))
        if deviation.kind is DeviationKind.CASCADE and not self._context.config.rereads_cascades:
            self._warn_of_cascades(deviation, tables)
        elif tables:
            self._add_pending(_Suspected(deviation, tables, before))

    def _add_pending(self, suspected: _Suspected) -> None:
        """Note what the connector has not read yet. Of cascades to the same tables, the first and the last suffice."""
        same = [s for s in self._pending if _is_same_cascade(s, suspected)]
        if len(same) > 1:
            self._pending.remove(same[-1])
        self._pending.append(suspected)

    def _warn_of_cascades(self, deviation: Deviation, tables: tuple[TableId, ...]) -> None:
        """Record the tables whose rows foreign keys may have changed, and log each once."""
        end, reason = deviation.end, f"{deviation.kind}, at {deviation}"
        with self._lock:
            self._may_differ |= dict.fromkeys(tables, MayDiffer(reason, end.file, end.pos, now_ms()))
        for table in tables:
            if table not in self._warned:
                self._warned.add(table)
                _LOG.warning(
                    "a foreign key may have changed rows without events",
                    table=str(table),
                    at=str(deviation),
                    next=f'run: replicator verify {table} --repair; or set cascades = "reread" in [source]',
                )

    def _publish(self, reader: DeviationReader, *, caught_up: bool) -> None:
        """Give the scheduler's thread what the connector has read, and tell re-reads of prepared transactions."""
        connector = _Connector.of(self._context.config) if self._pending else _Connector()
        read = [s for s in self._pending if connector.has_read(s.deviation)]
        self._pending = [s for s in self._pending if s not in read]
        # What a stopped connector has not read may take any time.
        awaited = bool(self._pending) and connector.runs
        with self._lock:
            self._ready += read
            # A restart must find those again that are pending.
            watched = self._pending[0].before if self._pending else reader.watched()
            self._watched = watched or self._watched
        self._set_behind(awaited or not caught_up)
        if reader.reached is not None and not self._stop.is_set():
            prepared = [found.tables | found.stated for found in reader.open.values()]
            self._context.prepared.note(reader.reached.order, prepared)

    def _set_behind(self, behind: bool) -> None:
        with self._lock:
            self._is_behind = behind


def _is_same_cascade(one: _Suspected, other: _Suspected) -> bool:
    kinds = {one.deviation.kind, other.deviation.kind}
    return kinds == {DeviationKind.CASCADE} and one.tables == other.tables


def _error(table: TableId, deviation: Deviation) -> EventsWrong:
    return EventsWrong(
        f"the events of {table} do not show its rows: {deviation.kind}, at {deviation}",
        f"read the table again: replicator heal {table}",
    )
