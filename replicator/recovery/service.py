"""Carry out the re-reads of a mirror's tables beside its batches.

Requests are properties of the `_ops` namespace, so any process can make one, and a restarted mirror continues them.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from replicator.batch import MirrorContext
from replicator.batch.steps.unclear_values import MISREAD
from replicator.errors import (
    ColumnsDiffer,
    ConnectError,
    EventsLost,
    EventsWrong,
    LateDefinition,
    NoSuchTable,
    ReplicatorError,
    SchemaError,
    SourceError,
    TablePaused,
    UsageError,
)
from replicator.model.common import now_ms
from replicator.model.reread import REREAD_KEY, Narrowed, Phase, Request, new_request, requests_in
from replicator.model.table import TableId, topic_name
from replicator.recovery.connector_repair import ConnectorRepair
from replicator.recovery.left_out import LeftOutTables
from replicator.recovery.lost_binlog import LostBinlog
from replicator.recovery.new_tables import NewTables, present_tables
from replicator.recovery.policy import Healing
from replicator.recovery.reader.staging import Staging
from replicator.recovery.retries import Retries
from replicator.recovery.table_reread import TableReread
from replicator.runner.table_states import TableStates
from replicator.schema.evolution.plan import heals_rows
from replicator.sources.change_log import Offsets
from replicator.telemetry import Stopwatch, get_logger

if TYPE_CHECKING:
    # It imports SQLAlchemy, which takes a second.
    from replicator.watch.binlog_watch import BinlogWatch
    from replicator.watch.definition_checks import DefinitionChecks

_LOG: Final = get_logger("replicator.reread")
_POLL_S: Final = 2.0
"""How often the lake is asked for new requests."""
_DELAYS_S: Final = (2.0, 5.0, 10.0, 30.0, *[60.0] * 1440)
"""Delays before each retry: MySQL, Kafka or Kafka Connect may be unavailable for a day."""
_FEW_DELAYS_S: Final = (2.0, 5.0, 10.0)
"""The same if it is unlikely that time helps: the source has no such table, or the error is one of the engine."""
_DEFINITION_S: Final = 10.0
"""How long a new table may lack a definition in the log before the source is asked for it."""
_RESET_S: Final = 10.0
"""Delay before the connector's reset is tried again."""
_LEFT_OUT: Final = (
    "the configuration of the running mirror leaves the table out; if it was changed, run: replicator reload"
)


class Rereads:
    """The re-reads of one mirror. All methods are for the scheduler's thread.

    Attributes:
        ended: the requests that this process has carried out.
        lost_binlog: whether the connector lacks binlogs; None if nothing monitors the connector.
        watch: finds changes that the events do not show; None if the binlog is not watched.
        definitions: compares definitions with the source; None if they are not compared.
        new_tables: the tables that the source has and the lake lacks.
        repair: the repairs of the connector.
    """

    def __init__(self, context: MirrorContext, tables: TableStates, stopping: threading.Event) -> None:
        self._context = context
        self._tables = tables
        self._stopping = stopping
        self._active: dict[TableId, TableReread] = {}
        self._waiting: dict[TableId, Request] = {}
        self._retries, self._few_retries = Retries(_DELAYS_S), Retries(_FEW_DELAYS_S)
        self._polled = -_POLL_S
        self._pool: ThreadPoolExecutor | None = None
        self._staging: Staging | None = None
        self.ended: list[Request] = []
        self.lost_binlog: LostBinlog | None = None
        self.watch: BinlogWatch | None = None
        self.definitions: DefinitionChecks | None = None
        self._undefined: dict[TableId, float] = {}
        self._reset_at = 0.0
        # They are not requested again before the mirror is restarted, or they were read on command.
        self._failed: set[TableId] = set()
        self._missing: set[TableId] = set()
        self.new_tables = NewTables(context)
        self._healing = Healing(context.config.heal, possible=context.config.can_read_source)
        self._left_out = LeftOutTables(context)
        self._newest: dict[TableId, Request] | None = None
        self.repair = ConnectorRepair(context)
        tables.on_pause = self._table_paused

    @property
    def any_left(self) -> bool:
        """Whether a request has not ended, or the source was not asked for new tables or changes yet."""
        recovers = self.lost_binlog is not None and self.lost_binlog.is_noticed
        recovers = recovers or self.repair.is_busy or self.repair.has_more
        recovers = recovers or (self.watch is not None and self.watch.is_behind)
        recovers = recovers or (self.definitions is not None and self.definitions.is_behind)
        requested = self._active or self._waiting or self._context.misread.any_left
        return bool(requested or self.new_tables.must_ask or recovers)

    def holds(self, table: TableId) -> bool:
        """Whether no events may be applied to a table: it is new, or was paused when it was requested."""
        found = self._active.get(table)
        request = self._waiting.get(table) if found is None else found.request
        if request is not None:
            return request.held
        # The topic of a new table may have only the changes since the connector was registered.
        return self.new_tables.may_be(table)

    def requests(self) -> list[Request]:
        """Return the requests that this process carries out or has carried out."""
        active = [reread.request for reread in self._active.values()]
        return [*self.ended, *active, *self._waiting.values()]

    def notice_returned(self) -> None:
        """Read the tables again that the configuration includes again, or whose lost events were being sent again.

        They are paused until then.

        It must be called before the first batch.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        config = self._context.config
        for table, reason in self._left_out.returned().items():
            if not config.can_read_source:
                _LOG.warning("a table may lack changes", table=str(table), reason=reason)
                self._left_out.forget(table)
                continue
            self._tables.pause(table, EventsLost(reason, f"run: replicator heal {table}"))
            if config.heal.mode == "auto":
                # The interval between re-reads is for causes that come back by themselves.
                self.request([table], reason, self._healing.max_rows)

    def load(self) -> None:
        """Read the requests in the lake that have not ended. Give up those of tables that are not mirrored any more.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        self._polled = time.monotonic()
        properties = self._context.lake.namespace_properties(self._context.config.lake.ops_namespace)
        self._newest = {request.table: request for request in requests_in(properties)}
        for request in self._newest.values():
            known = self._active.get(request.table)
            if request.has_ended or (known is not None and known.request.id == request.id):
                continue
            if known is None and self._context.config.includes(str(request.table)):
                self._waiting[request.table] = self._with_hold(request)
            elif known is None:
                self._give_up(request)

    def _give_up(self, request: Request) -> None:
        """End the request of a table that the configuration leaves out, and drop what was read of it."""
        _LOG.warning("re-read given up, the table is left out", table=str(request.table))
        topic = self._topic(request.table)
        reread = TableReread(self._context, self._stage(), request, topic, self._record)
        reread.end(Phase.FAILED, problem=_LEFT_OUT)

    def request(
        self,
        tables: Iterable[TableId],
        reason: str,
        max_rows: int | None = None,
        narrowed: Mapping[TableId, Narrowed] | None = None,
    ) -> None:
        """Request re-reads of tables, or of a part of those in `narrowed`, unless one is known that reads as much.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        if self._newest is None:
            self.load()
        for table in tables:
            part, known = (narrowed or {}).get(table), self._waiting.get(table)
            if table not in self._active and (known is None or not known.covers(part)):
                request = self._with_hold(new_request(table, reason, max_rows, part))
                self._record(request)
                self._waiting[table] = request
                _LOG.info("re-read requested", table=str(table), reason=reason)

    @property
    def reads_new_tables(self) -> bool:
        """Whether a table is read of which the lake has nothing, or the source was not asked for new tables yet."""
        held = (r.table for r in self.requests() if r.held and not r.has_ended)
        return self.new_tables.must_ask or any(table not in self._tables.paused for table in held)

    def step(self, first: Offsets, *, publishes: bool = True) -> None:
        """Do what can be done between two batches: start reading, apply some events, publish what is complete.

        `first` is the first offsets of the log. Nothing is published unless the mirror `publishes`.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        self._left_out.record()
        if self.watch is not None:
            self.watch.step()
        if self.definitions is not None:
            self.definitions.step(0 if self.watch is None else self.watch.statements)
        if time.monotonic() >= self._polled + _POLL_S:
            self.load()
        if (
            self.lost_binlog is not None
            and self.lost_binlog.is_noticed
            and not self._recover(self.lost_binlog)
        ):
            return
        self.repair.step()
        self._discover()
        self._heal()
        for table, part in self._context.misread.take({*self._active, *self._waiting}).items():
            self.request([table], MISREAD, narrowed={} if part is None else {table: part})
        self._start_some()
        for table, reread in list(self._active.items()):
            if not self._stopping.is_set() and not self._retries.must_wait(table):
                self._advance(table, reread, first.get(self._topic(table), {}), publishes=publishes)

    def _recover(self, lost: LostBinlog) -> bool:
        """Let the connector begin again, and request the re-read of all tables. Return whether that is done.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        if time.monotonic() < self._reset_at:
            return False
        try:
            if self._context.config.reads_new_tables:
                # No table may continue after the gap. Otherwise the connector takes a new snapshot of all of them.
                # Rows that were read before it must not count either.
                tables = {*self._mirrored(), *self._active, *self._waiting}
                self.replace([new_request(table, lost.reason) for table in sorted(tables)])
            lost.reset_connector()
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

    def replace(self, requests: Iterable[Request]) -> None:
        """Carry out requests instead of those that were made before; their tables get no events meanwhile.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        for request in requests:
            if (active := self._active.pop(request.table, None)) is not None:
                active.cancel()
            self._waiting[request.table] = replace(request, held=True)
            self._record(self._waiting[request.table])
            _LOG.info("re-read requested", table=str(request.table), reason=request.reason)

    def close(self) -> None:
        """Stop reading, and wait for the threads, which end at their next part."""
        self._stopping.set()
        if self.watch is not None:
            self.watch.close()
        if self.definitions is not None:
            self.definitions.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _with_hold(self, request: Request) -> Request:
        """Return the request with `held` set if the table cannot continue without it."""
        if request.held or self._context.ledger.progress(request.table).mirror is not None:
            held = request.held or request.table in self._tables.paused
        else:
            held = True
        # A table without its later events must be read as a whole.
        return replace(request, held=held, narrowed=None if held else request.narrowed)

    def _table_paused(self, table: TableId, cause: Exception) -> None:
        """Note that a table was paused, and request its re-read if that is due.

        A re-read that was under way would wait forever for the mirror to reach its position, so it begins again. So
        does one that may have applied events that are wrong.
        """
        self._healing.note(table, cause)
        active = self._active.get(table)
        known = self._waiting.get(table) if active is None else active.request
        if known is not None and (not known.held or (active is not None and isinstance(cause, EventsWrong))):
            self.replace([new_request(table, known.reason, known.max_rows)])
        self._heal()

    def _heal(self) -> None:
        """Request the re-reads of tables whose rows the log cannot tell.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        incomplete = self._incomplete()
        if not self._tables.paused and not incomplete:
            return
        if self._newest is None:
            self.load()
        newest = self._newest or {}
        plan = self._healing.plan(self._tables.paused, incomplete, newest.get, now_ms())
        for table, at_ms in plan.later.items():
            if table not in self._failed:
                self._context.ledger.note_heal(table, at_ms)
                self._healing.note_told(table, at_ms)
        for table, reason in plan.due.items():
            if table not in self._failed:
                self.request([table], reason, self._healing.max_rows)

    def _incomplete(self) -> dict[TableId, tuple[str, ...]]:
        """Return the tables whose mirrors are null in columns of older rows, if they may be read again."""
        found, config = self._context.ledger.incomplete(), self._context.config
        return {t: names for t, names in found.items() if heals_rows(config.table(str(t)).schema_changes)}

    def _start_some(self) -> None:
        reading = sum(reread.is_reading for reread in self._active.values())
        for table, request in list(self._waiting.items()):
            if reading >= self._context.config.bootstrap.parallel_tables:
                return
            if self._retries.must_wait(table) or self.repair.blocks(table):
                continue
            del self._waiting[table]
            self._active[table] = TableReread(
                self._context, self._stage(), request, self._topic(table), self._record
            )
            reading += 1
            if self.definitions is not None:
                self.definitions.request()

    def _advance(
        self, table: TableId, reread: TableReread, first: Mapping[int, int], *, publishes: bool
    ) -> None:
        most = self._context.config.apply.max_events
        try:
            if reread.is_published():
                reread.finish_published()
            elif self._is_read(reread) and reread.catch_up(first, most, Stopwatch()) and publishes:
                reread.publish()
        except (ColumnsDiffer, LateDefinition) as error:
            self._retry(table, reread, error)
        except (SchemaError, UsageError) as error:
            reread.fail(error)
        except Exception as error:  # noqa: BLE001 - no other table is concerned
            self._retry(table, reread, error)
        if reread.request.has_ended and table in self._active:
            self._ended(table, reread)

    def _is_read(self, reread: TableReread) -> bool:
        """Return whether all rows were read; start or continue to read if not.

        Raises:
            ReplicatorError, PySparkException: reading failed.
        """
        reread.show_progress()
        if reread.is_reading:
            return False
        if (error := reread.read_failure()) is not None:
            raise error
        if reread.is_read:
            # Before the next step, the log's definitions are read: all from before the end of reading are known then.
            return reread.was_read_before()
        if not reread.start(self._threads(), self._stopping):
            if self.new_tables.is_respelt(reread.request.table):
                # Its definition came after the source was asked for its tables, which is done again.
                del self._active[reread.request.table]
                reread.end(Phase.FAILED, problem="the log has it in another letter case")
            else:
                self._define(reread.request.table)
        return False

    def _define(self, table: TableId) -> None:
        """Read the definition of a table from the source if the log still has none after some time.

        The connector writes no definition of a table that was added to its settings later.
        """
        lacking_since = self._undefined.setdefault(table, time.monotonic())
        if time.monotonic() >= lacking_since + _DEFINITION_S:
            self._tables.defined_by_source(table)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            # One more, which asks the source for new tables.
            self._pool = ThreadPoolExecutor(self._context.config.bootstrap.parallel_tables + 1, "reread")
        return self._pool

    def _discover(self) -> None:
        """Request the re-read of tables that the source has and the lake lacks, if the mirror reads new tables.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        present = self.new_tables.step(self._threads)
        # A table that was missing, and that the source has again, may be read again.
        self._failed -= self._missing.intersection(present)
        self._missing -= set(present)
        for table in present:
            with self._tables.alone(table):
                if self._is_wanted(table):
                    self.request([table], "new table")

    def _is_wanted(self, table: TableId) -> bool:
        """Return whether a table of the source must be read, because the lake has nothing of it."""
        if table in self._tables.paused or table in self._failed:
            return False
        return self.new_tables.may_be(table) and self._tables.is_readable(table)

    def _retry(self, table: TableId, reread: TableReread, error: Exception) -> None:
        """Count a failure; the re-read is tried again some times, and then fails.

        Raises:
            LakeUnavailable: it cannot be recorded.
        """
        # Commits may have failed without an answer.
        self._context.ledger.forget(table)
        self._stage().context.ledger.forget(table)
        explained = isinstance(error, (ReplicatorError, PySparkException, Py4JJavaError))
        if not explained:
            _LOG.error("unexpected error of a re-read", table=str(table), exc_info=error)
        is_missing = isinstance(error, NoSuchTable)
        few = self._few_retries.failed(table) if is_missing or not explained else 0.0
        delay = self._retries.failed(table)
        if delay is None or few is None:
            self._missing |= {table} if is_missing else set()
            reread.fail(error)
        else:
            reread.note(error)

    def _ended(self, table: TableId, reread: TableReread) -> None:
        request = reread.request
        del self._active[table]
        self.ended.append(request)
        self._retries.forget(table)
        self._few_retries.forget(table)
        if request.phase is Phase.FAILED:
            if request.narrowed is None:
                self._failed.add(table)
            if request.held and table not in self._tables.paused:
                self._tables.pause(
                    table,
                    TablePaused(
                        f"it could not be read from the source: {request.problem}",
                        f"remove the cause, then run: replicator heal {table}",
                    ),
                )
        if request.phase is Phase.DONE:
            self._failed.discard(table)
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

    def _record(self, request: Request) -> None:
        self._newest = {**(self._newest or {}), request.table: request}
        self._context.lake.set_namespace_property(
            self._context.config.lake.ops_namespace, REREAD_KEY + str(request.table), request.to_json()
        )

    def _stage(self) -> Staging:
        if self._staging is None:
            self._staging = Staging.of(self._context)
        return self._staging

    def _topic(self, table: TableId) -> str:
        return f"{self._context.log.topic_prefix}.{topic_name(table)}"
