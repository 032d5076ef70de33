"""Read tables again whose rows the log does not tell, while its batches go on.

The scheduler calls `step` between two batches, and asks `holds` before it gives a table events. Watches call what
`request.Requests` has. A table that cannot go on gets no events before its request is in the lake.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from replicator.batch import MirrorContext
from replicator.batch.steps.unclear_values import MISREAD
from replicator.errors import (
    ConnectError,
    EventsLost,
    EventsWrong,
    ReplicatorError,
    SourceError,
    TablePaused,
)
from replicator.model.common import now_ms
from replicator.model.reread import REREAD_KEY, Narrowed, Phase, Request, new_request, requests_in
from replicator.model.table import TableId
from replicator.recovery.connector_repair import LOST_BINLOG, ConnectorRepair
from replicator.recovery.gaps import LeftOutTables, notice_other_prefix
from replicator.recovery.new_tables import NewTables, present_tables
from replicator.recovery.noted_failure import NotedFailure
from replicator.recovery.policy import Healing
from replicator.recovery.request import Requests, Tables, Watch
from replicator.recovery.running import RunningRereads
from replicator.schema.evolution.plan import heals_rows
from replicator.sources.change_log import Offsets
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_POLL_S: Final = 2.0
"""How often the lake is asked for new requests, which any process can make."""
_RESET_S: Final = 10.0
"""Delay before the connector's reset is tried again."""
_LEFT_OUT: Final = (
    "the configuration of the running mirror leaves the table out; if it was changed, run: replicator reload"
)

MakeWatches = Callable[[Requests], Sequence[Watch]]
"""Returns what watches for the mirror whose requests these are."""


class Recovery:
    """The re-reads of one mirror. All methods are for the scheduler's thread, and may raise LakeUnavailable.

    Attributes:
        connector: the repairs of the connector.
    """

    def __init__(
        self,
        context: MirrorContext,
        tables: Tables,
        stopping: threading.Event,
        noted: NotedFailure | None = None,
        watches: MakeWatches = lambda _: (),
    ) -> None:
        """Recover from lost binlogs, which are `noted`, and from what `watches` find once `start` was called."""
        self._context = context
        self._tables = tables
        self._stopping = stopping
        self._noted = noted or NotedFailure(context.config)
        self._reset_at = 0.0
        # The newest request of each table, also if it has ended; None until those of earlier processes were read.
        self._newest: dict[TableId, Request] | None = None
        self._read_at = -_POLL_S
        self._waiting: dict[TableId, Request] = {}
        self._new_tables = NewTables(context)
        self._left_out = LeftOutTables(context)
        self._healing = Healing(context.config.heal, possible=context.config.can_read_source)
        self._running = RunningRereads(context, tables, self._new_tables, self._record, stopping, self._ended)
        self.connector = ConnectorRepair(context)
        self._watches = tuple(watches(self))
        tables.on_pause(self._table_paused)

    # For the process.

    def open(self) -> None:
        """Learn what earlier processes left, and read the tables again of which the topics may lack changes.

        They are paused until then; see `gaps`. It must be called before the first batch.
        """
        self.connector.load()
        notice_other_prefix(self._context, self._tables)
        config = self._context.config
        for table, reason in self._left_out.returned().items():
            if not config.can_read_source:
                _LOG.warning("a table may lack changes", table=str(table), reason=reason)
                self._left_out.forget(table)
                continue
            self._tables.pause(table, EventsLost(reason, f"run: replicator heal {table}"))
            if config.heal.mode == "auto":
                # The interval between re-reads is for causes that come back by themselves.
                self.request([table], reason, self._context.config.heal.max_rows)

    def start(self) -> None:
        """Begin to watch."""
        for watch in self._watches:
            watch.start()

    def close(self) -> None:
        """Stop watching and reading, and wait for the threads that read."""
        self._stopping.set()
        for watch in self._watches:
            watch.close()
        self._running.close()

    # For the scheduler and the tags.

    @property
    def is_busy(self) -> bool:
        """Whether a request has not ended, or the source was not asked for new tables or changes yet."""
        recovers = self._noted.lacks_binlogs or self.connector.is_busy
        recovers = recovers or any(watch.is_behind for watch in self._watches)
        requested = self._running.requests or self._waiting or self._context.misread.any_left
        return bool(requested or self._new_tables.must_ask or recovers)

    def holds(self, table: TableId) -> bool:
        """Return whether no events may be applied to a table: it is new, or was paused when it was requested."""
        request = self._running.request_of(table) or self._waiting.get(table)
        if request is not None:
            return request.held
        # The topic of a new table may have only the changes since the connector was registered.
        return self._new_tables.may_be(table)

    def requests(self) -> list[Request]:
        """Return the requests that this process carries out or has carried out."""
        return [*self._running.ended, *self._running.requests.values(), *self._waiting.values()]

    def ask_for_new_tables(self) -> None:
        """Let the next step ask the source for new tables, and know what was requested until now."""
        self._load()
        self._new_tables.ask_now()

    @property
    def reads_new_tables(self) -> bool:
        """Whether a table is read of which the lake has nothing, or the source was not asked for new tables yet."""
        return self._new_tables.must_ask or any(t not in self._tables.paused for t in self._held())

    def why_no_tag(self) -> str | None:
        """Return why no tag can be made before tables are read again, which would wait for it; None if it can."""
        if self._noted.lacks_binlogs:
            return f"the connector must begin again: {LOST_BINLOG}"
        lacking = [table for table in self._held() if table not in self._tables.paused]
        return f"{lacking[0]} lacks changes until it has been read from the source" if lacking else None

    def step(self, first: Offsets, *, publishes: bool = True) -> None:
        """Do what can be done between two batches: start reading, apply some events, publish what is complete.

        `first` is the first offsets of the log. Nothing is published unless the mirror `publishes`.
        """
        self._left_out.record()
        if time.monotonic() >= self._read_at + _POLL_S:
            self._load()
        for watch in self._watches:
            watch.step()
        if self._noted.lacks_binlogs and not self._recover():
            return
        self.connector.step()
        self._discover()
        self._heal()
        for table, part in self._context.misread.take({*self._running.requests, *self._waiting}).items():
            self.request([table], MISREAD, narrowed={} if part is None else {table: part})
        self._start_some()
        self._running.step(first, publishes=publishes)

    # For the watches.

    @property
    def paused(self) -> Mapping[TableId, str]:
        """The reason, by paused table."""
        return self._tables.paused

    @property
    def begun(self) -> int:
        """How many re-reads have begun."""
        return self._running.begun

    def pause(self, table: TableId, cause: ReplicatorError) -> None:
        """Stop processing a table. It is read again if that is the remedy of the cause.

        Raises:
            LakeUnavailable: it cannot be recorded; the table is not paused.
        """
        self._tables.pause(table, cause)

    def request(
        self,
        tables: Iterable[TableId],
        reason: str,
        max_rows: int | None = None,
        narrowed: Mapping[TableId, Narrowed] | None = None,
    ) -> None:
        """Request re-reads of tables, or of a part of those in `narrowed`, unless one is known that reads as much."""
        if self._newest is None:
            self._load()
        for table in tables:
            part, known = (narrowed or {}).get(table), self._waiting.get(table)
            if self._running.request_of(table) is None and (known is None or not known.covers(part)):
                request = self._with_hold(new_request(table, reason, max_rows, part))
                self._record(request)
                self._waiting[table] = request
                _LOG.info("re-read requested", table=str(table), reason=reason)

    def replace(self, requests: Iterable[Request]) -> None:
        """Carry out requests instead of those that were made before; their tables get no events meanwhile."""
        for request in requests:
            self._running.cancel(request.table)
            # Held before it is recorded: if that fails, the table must not go on.
            self._waiting[request.table] = replace(request, held=True)
            self._record(self._waiting[request.table])
            _LOG.info("re-read requested", table=str(request.table), reason=request.reason)

    # Requests.

    def _load(self) -> None:
        """Read the requests in the lake that have not ended. Give up those of tables that are not mirrored any more."""
        self._read_at = time.monotonic()
        properties = self._context.lake.namespace_properties(self._context.config.lake.ops_namespace)
        self._newest = {request.table: request for request in requests_in(properties)}
        for request in self._newest.values():
            if request.has_ended:
                continue
            known = self._running.request_of(request.table)
            if known is None and self._context.config.includes(str(request.table)):
                self._waiting[request.table] = self._with_hold(request)
            elif known is None:
                _LOG.warning("re-read given up, the table is left out", table=str(request.table))
                self._running.give_up(request, _LEFT_OUT)

    def _record(self, request: Request) -> None:
        """Write a request to the lake, where a kill does not lose it."""
        self._newest = {**(self._newest or {}), request.table: request}
        key, namespace = REREAD_KEY + str(request.table), self._context.config.lake.ops_namespace
        self._context.lake.set_namespace_property(namespace, key, request.to_json())

    def _held(self) -> list[TableId]:
        return [r.table for r in self.requests() if r.held and not r.has_ended]

    def _with_hold(self, request: Request) -> Request:
        """Return the request with `held` set if the table cannot continue without it."""
        held = request.held or request.table in self._tables.paused
        held = held or self._context.ledger.progress(request.table).mirror is None
        # A table without its later events must be read as a whole.
        return replace(request, held=held, narrowed=None if held else request.narrowed)

    def _start_some(self) -> None:
        for table, request in list(self._waiting.items()):
            if self._running.reading >= self._context.config.bootstrap.parallel_tables:
                return
            if self._running.must_wait(table) or self.connector.blocks(table):
                continue
            del self._waiting[table]
            self._running.begin(request)

    def _ended(self, request: Request) -> None:
        table = request.table
        if request.phase is Phase.DONE:
            self._left_out.forget(table)
            self._tables.resume(table)
            _LOG.info(
                "re-read done",
                table=str(table),
                reason=request.reason,
                rows=request.rows,
                changed=request.changed,
                seconds=round((now_ms() - request.requested_ms) / 1000, 1),
            )
        elif request.held and table not in self._tables.paused:
            reason = f"it could not be read from the source: {request.problem}"
            self._tables.pause(
                table, TablePaused(reason, f"remove the cause, then run: replicator heal {table}")
            )

    # Causes.

    def _table_paused(self, table: TableId, cause: Exception) -> None:
        """Note that a table was paused, and request its re-read if that is due.

        A re-read that was under way would wait forever for the mirror to reach its position, so it begins again. So
        does one that may have applied events that are wrong.
        """
        self._healing.note(table, cause)
        active = self._running.request_of(table)
        known = active or self._waiting.get(table)
        if known is not None and (not known.held or (active is not None and isinstance(cause, EventsWrong))):
            self.replace([new_request(table, known.reason, known.max_rows)])
        self._heal()

    def _heal(self) -> None:
        """Request the re-reads of tables whose rows the log cannot tell."""
        incomplete = self._incomplete()
        if not self._tables.paused and not incomplete:
            return
        if self._newest is None:
            self._load()
        newest = self._newest or {}
        plan = self._healing.plan(self._tables.paused, incomplete, newest.get, now_ms())
        for table, at_ms in plan.later.items():
            if not self._running.has_failed(table):
                self._context.ledger.note_heal(table, at_ms)
                self._healing.note_told(table, at_ms)
        for table, reason in plan.due.items():
            if not self._running.has_failed(table):
                self.request([table], reason, self._context.config.heal.max_rows)

    def _incomplete(self) -> dict[TableId, tuple[str, ...]]:
        """Return the tables whose mirrors are null in columns of older rows, if they may be read again."""
        found, config = self._context.ledger.incomplete(), self._context.config
        return {t: names for t, names in found.items() if heals_rows(config.table(str(t)).schema_changes)}

    def _discover(self) -> None:
        """Request the re-read of tables that the source has and the lake lacks, if the mirror reads new tables."""
        present = self._new_tables.step(self._running.threads)
        self._running.note_present(present)
        for table in present:
            with self._tables.alone(table):
                if self._is_wanted(table):
                    self.request([table], "new table")

    def _is_wanted(self, table: TableId) -> bool:
        """Return whether a table of the source must be read, because the lake has nothing of it."""
        if table in self._tables.paused or self._running.has_failed(table):
            return False
        return self._new_tables.may_be(table) and self._tables.is_readable(table)

    def _recover(self) -> bool:
        """Let the connector begin again, and request the re-read of all tables. Return whether that is done."""
        if time.monotonic() < self._reset_at:
            return False
        try:
            if self._context.config.reads_new_tables:
                # No table may continue after the gap. Otherwise the connector takes a new snapshot of all of them.
                # Rows that were read before it must not count either.
                tables = {*self._mirrored(), *self._running.requests, *self._waiting}
                self.replace([new_request(table, LOST_BINLOG) for table in sorted(tables)])
            self.connector.begin_again(LOST_BINLOG)
            self._noted.begins_again()
        except (ConnectError, SourceError) as error:
            self._reset_at = time.monotonic() + _RESET_S
            _LOG.warning("the connector could not be reset, retrying", reason=error.message, next=error.hint)
            return False
        return True

    def _mirrored(self) -> list[TableId]:
        """Return the tables of the source that have a mirror; those without events have no topic that would name them.

        Raises:
            SourceError: the source cannot be queried.
        """
        ledger = self._context.ledger
        return [t for t in present_tables(self._context)[0] if ledger.progress(t).mirror is not None]
