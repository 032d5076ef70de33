"""Compare the tables of a mirror with the source beside its batches: rows that changed recently, and whole tables."""

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from replicator.config import Config
from replicator.errors import ReplicatorError
from replicator.model.common import matches
from replicator.model.table import TableId
from replicator.recovery.request import Requests
from replicator.telemetry import get_logger
from replicator.watch.differences import Differences

if TYPE_CHECKING:
    # It loads SQLAlchemy and Arrow's readers, which a mirror that compares nothing does not need.
    from replicator.verify.interruption import Interruption
    from replicator.verify.results import TableResult
    from replicator.watch.check_thread import CheckThread, Ended

_LOG: Final = get_logger("replicator.verify")
_POLL_S: Final = 10.0
"""How often lake and source are asked which table is due, while some are."""
_LONGEST_POLL_S: Final = 300.0
_FAILED_S: Final = 300.0
"""How long no check begins after one that failed: whatever failed may be away for some time."""
_LOOK_S: Final = 10.0
"""How often rows that changed recently are compared."""
_SOON_S: Final = 4.0
"""The same, while some were not equal."""
_LOOK_ROWS: Final = 100
"""Rows in a second that are compared because they changed recently."""
_MOST_LOOK_ROWS: Final = 2_000


class ScheduledChecks:
    """Compares tables in a thread of its own. All methods are for the scheduler's thread."""

    def __init__(self, config: Config, requests: Requests, stopping: threading.Event) -> None:
        self._config = config
        self._requests = requests
        self._stopping = stopping
        self._differences = Differences(config, requests)
        self._thread: CheckThread | None = None
        self._pool = ThreadPoolExecutor(1, "verify")
        self._running: Future[Ended | None] | None = None
        self._interruption: Interruption | None = None
        self._polled = self._looked = time.monotonic()
        self._next_look = self._looked + _LOOK_S
        self._rest_until = 0.0
        self._changed: set[TableId] = set()
        self._has_open = self._is_look = False
        self._has_backlog = False

    def step(self, paused: Collection[TableId]) -> None:
        """Begin the check that is due, or handle the result of one that has ended. `paused` tables are left out.

        Raises:
            LakeUnavailable: a repair cannot be requested.
        """
        if self._running is not None:
            if self._running.done():
                ended, self._running = self._running, None
                self._handle(ended)
            return
        now = time.monotonic()
        if self._differences.is_unrecorded and not self._stopping.is_set():
            self._start(lambda thread, _: thread.record())
            return
        if self._has_backlog or self._stopping.is_set() or now < self._rest_until:
            return
        looks = (bool(self._changed) or self._has_open) and now >= self._next_look
        checks = (
            self._config.verify.every is not None
            and not self._requests.is_busy
            and now >= self._polled + _POLL_S
        )
        # In turn: the load of the one must not keep the other from its turn.
        if looks and not (checks and self._is_look):
            self._begin_look(frozenset(paused))
        elif checks:
            self._begin(frozenset(paused))

    def note_committed(self, tables: Collection[TableId]) -> None:
        """Note that tables got changes."""
        self._changed.update(tables)

    def note_backlog(self, *, has_backlog: bool) -> None:
        """Note whether the mirror has a backlog. A check that is under way then ends, and begins again later."""
        self._has_backlog = has_backlog
        if has_backlog and self._interruption is not None:
            self._interruption.set()

    def close(self) -> None:
        """End the check under way, and wait for its thread."""
        if self._interruption is not None:
            self._interruption.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self, work: "Callable[[CheckThread, Interruption], Ended | None]") -> None:
        from replicator.verify.interruption import Interruption  # noqa: PLC0415

        self._interruption = Interruption()
        self._running = self._pool.submit(self._carry_out, work, self._interruption)

    def _carry_out(
        self, work: "Callable[[CheckThread, Interruption], Ended | None]", interruption: "Interruption"
    ) -> "Ended | None":
        """Carry out some work in the thread. Return None if it is interrupted, or has nothing to do."""
        from replicator.watch.check_thread import CheckThread  # noqa: PLC0415

        try:
            self._thread = self._thread or CheckThread(self._config, self._differences)
            return work(self._thread, interruption)
        except Exception:
            # Statements that were ended fail.
            if interruption.event.is_set():
                return None
            raise

    def _begin(self, paused: Collection[TableId]) -> None:
        self._polled, self._is_look = time.monotonic(), False
        self._start(lambda thread, interruption: thread.check_next(paused, interruption))

    def _begin_look(self, paused: Collection[TableId]) -> None:
        now = time.monotonic()
        rows = min(_MOST_LOOK_ROWS, int(_LOOK_ROWS * (now - self._looked)))
        exclude, corrected = self._config.verify.exclude, self._differences.corrected
        if self._config.verify.every is None and not self._requests.is_busy:
            corrected.clear()
        # Rows of tables that are being corrected still differ.
        left_out = {*paused, *corrected}
        tables = frozenset(t for t in self._changed - left_out if not matches(str(t), exclude))
        self._changed, self._looked, self._next_look = set(), now, now + _LOOK_S
        self._is_look = True
        self._start(lambda thread, interruption: thread.look(tables, rows, interruption))

    def _handle(self, ended: "Future[Ended | None]") -> None:
        error = ended.exception()
        if error is not None:
            # A check must not end the mirror.
            hint = error.hint if isinstance(error, ReplicatorError) else None
            reason = (str(error) or type(error).__name__).splitlines()[0][:300]
            _LOG.warning("a scheduled check failed", reason=reason, next=hint)
            now = time.monotonic()
            self._polled, self._next_look = now + _FAILED_S, now + _FAILED_S
            return
        if (found := ended.result()) is None:
            if not self._is_look:
                self._polled = time.monotonic() + min(_LONGEST_POLL_S, (self._config.verify.every or 0) / 10)
            return
        now = time.monotonic()
        self._rest_until = now + found.rest
        if found.is_look:
            self._has_open = found.has_open
        if found.is_look and found.has_open:
            self._next_look = min(self._next_look, now + _SOON_S)
        for table, result in found.results:
            self._note(table, result, found)

    def _note(self, table: TableId, result: "TableResult", found: "Ended") -> None:
        if not found.is_look:
            _LOG.info(
                "table checked",
                table=result.table,
                verdict=str(result.verdict),
                rows=result.source_rows,
                position=result.position,
                seconds=round(result.seconds, 3),
                reason=result.reason,
            )
        if result.verdict == "different":
            self._differences.found(table, result, found.causes.get(table), is_look=found.is_look)
        elif not found.is_look:
            self._differences.corrected.pop(table, None)
