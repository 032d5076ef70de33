"""Carry out the re-reads of a mirror between its batches: read, apply some events, publish what is complete."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from replicator.batch import MirrorContext
from replicator.errors import (
    ColumnsDiffer,
    LateDefinition,
    NoSuchTable,
    ReplicatorError,
    SchemaError,
    UsageError,
)
from replicator.model.reread import Phase, Request
from replicator.model.table import TableId, topic_name
from replicator.recovery.new_tables import NewTables
from replicator.recovery.reader.staging import Staging
from replicator.recovery.request import Tables
from replicator.recovery.retries import Retries
from replicator.recovery.table_reread import Record, TableReread
from replicator.sources.change_log import Offsets
from replicator.telemetry import Stopwatch, get_logger

_LOG: Final = get_logger("replicator.reread")
_DELAYS_S: Final = (2.0, 5.0, 10.0, 30.0, *[60.0] * 1440)
"""Delays before each retry: MySQL, Kafka or Kafka Connect may be unavailable for a day."""
_FEW_DELAYS_S: Final = (2.0, 5.0, 10.0)
"""The same if it is unlikely that time helps: the source has no such table, or the error is one of the engine."""
_DEFINITION_S: Final = 10.0
"""How long a new table may lack a definition in the log before the source is asked for it."""

OnEnd = Callable[[Request], None]
"""Called with a request that is done, or that failed for good."""


class RunningRereads:
    """The re-reads of one mirror that are under way. For the scheduler's thread; all methods may raise LakeUnavailable.

    Attributes:
        begun: how many have begun.
        ended: the requests that this process has carried out.
    """

    def __init__(
        self,
        context: MirrorContext,
        tables: Tables,
        new_tables: NewTables,
        record: Record,
        stopping: threading.Event,
        on_end: OnEnd,
    ) -> None:
        self._context = context
        self._tables = tables
        self._new_tables = new_tables
        self._record = record
        self._stopping = stopping
        self._on_end = on_end
        self._active: dict[TableId, TableReread] = {}
        self._retries, self._few_retries = Retries(_DELAYS_S), Retries(_FEW_DELAYS_S)
        self._undefined: dict[TableId, float] = {}
        # They are not requested again before the mirror is restarted, or they were read on command.
        self._failed: set[TableId] = set()
        self._missing: set[TableId] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._staging: Staging | None = None
        self.begun = 0
        self.ended: list[Request] = []

    @property
    def requests(self) -> dict[TableId, Request]:
        """The requests that are under way."""
        return {table: reread.request for table, reread in self._active.items()}

    def request_of(self, table: TableId) -> Request | None:
        """Return the request of a table that is under way."""
        return self._active[table].request if table in self._active else None

    @property
    def reading(self) -> int:
        """The number of tables whose rows are read."""
        return sum(reread.is_reading for reread in self._active.values())

    def has_failed(self, table: TableId) -> bool:
        """Return whether a re-read of the table failed, so that the next one must be requested by a command."""
        return table in self._failed

    def note_present(self, tables: Collection[TableId]) -> None:
        """Let tables be read again that were missing, and that the source has again."""
        self._failed -= self._missing.intersection(tables)
        self._missing -= set(tables)

    def must_wait(self, table: TableId) -> bool:
        """Return whether a re-read failed, and is not to be tried again yet."""
        return self._retries.must_wait(table)

    def begin(self, request: Request) -> None:
        """Carry out a request."""
        self._active[request.table] = self._reread(request)
        self.begun += 1

    def cancel(self, table: TableId) -> None:
        """Stop to carry out a request, which must be replaced by another one."""
        if (active := self._active.pop(table, None)) is not None:
            active.cancel()

    def give_up(self, request: Request, problem: str) -> None:
        """End a request that has not begun, and drop what an earlier process read of it."""
        self._reread(request).end(Phase.FAILED, problem=problem)

    def step(self, first: Offsets, *, publishes: bool) -> None:
        """Do what can be done between two batches; `first` is the first offsets of the log."""
        for table, reread in list(self._active.items()):
            if not self._stopping.is_set() and not self._retries.must_wait(table):
                self._advance(table, reread, first.get(self._topic(table), {}), publishes=publishes)

    def threads(self) -> ThreadPoolExecutor:
        """Return the threads that read."""
        if self._pool is None:
            # One more, which asks the source for new tables.
            self._pool = ThreadPoolExecutor(self._context.config.bootstrap.parallel_tables + 1, "reread")
        return self._pool

    def close(self) -> None:
        """Wait for the threads, which end at their next part because the mirror stops."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

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
            self._ended(table, reread.request)

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
        if not reread.start(self.threads(), self._stopping):
            table = reread.request.table
            if self._new_tables.is_respelt(table):
                # Its definition came after the source was asked for its tables, which is done again.
                del self._active[table]
                reread.end(Phase.FAILED, problem="the log has it in another letter case")
            else:
                self._define(table)
        return False

    def _define(self, table: TableId) -> None:
        """Read the definition of a table from the source if the log still has none after some time.

        The connector writes no definition of a table that was added to its settings later.
        """
        lacking_since = self._undefined.setdefault(table, time.monotonic())
        if time.monotonic() >= lacking_since + _DEFINITION_S:
            self._tables.defined_by_source(table)

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

    def _ended(self, table: TableId, request: Request) -> None:
        del self._active[table]
        self.ended.append(request)
        self._retries.forget(table)
        self._few_retries.forget(table)
        if request.phase is Phase.DONE:
            self._failed.discard(table)
        elif request.narrowed is None:
            self._failed.add(table)
        self._on_end(request)

    def _reread(self, request: Request) -> TableReread:
        return TableReread(self._context, self._stage(), request, self._topic(request.table), self._record)

    def _stage(self) -> Staging:
        if self._staging is None:
            self._staging = Staging.of(self._context)
        return self._staging

    def _topic(self, table: TableId) -> str:
        return f"{self._context.log.topic_prefix}.{topic_name(table)}"
