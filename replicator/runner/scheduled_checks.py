"""Compare the tables of a mirror with the source beside its batches, one at a time, as `[verify]` says."""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from replicator.config import Config
from replicator.errors import ReplicatorError
from replicator.model.clock import now_ms
from replicator.model.patterns import matches
from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable
from replicator.runner.rereads import Rereads
from replicator.telemetry import get_logger

if TYPE_CHECKING:
    # It loads SQLAlchemy and Arrow's readers, which a mirror without scheduled checks does not need.
    from replicator.verify.interruption import Interruption
    from replicator.verify.results import TableResult

_LOG: Final = get_logger("replicator.verify")
_POLL_S: Final = 10.0
"""How often lake and source are asked which table is due, while some are."""
_LONGEST_POLL_S: Final = 300.0
_FAILED_S: Final = 300.0
"""How long no check begins after one that failed: whatever failed may be away for some time."""
_WAIT_S: Final = 300.0
"""How long a check waits for the connector, and then for the mirror."""


class ScheduledChecks:
    """Checks tables in a thread of its own. All methods are for the scheduler's thread."""

    def __init__(self, config: Config, rereads: Rereads, stopping: threading.Event) -> None:
        self._config = config
        self._rereads = rereads
        self._stopping = stopping
        self._pool = ThreadPoolExecutor(1, "verify")
        self._running: Future[tuple[TableId, TableResult] | None] | None = None
        self._interruption: Interruption | None = None
        self._polled = time.monotonic()
        self._repaired: set[TableId] = set()
        self._tried: dict[TableId, int] = {}
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
        if self._config.verify.every is None or self._has_backlog or self._rereads.any_left:
            return
        if time.monotonic() >= self._polled + _POLL_S and not self._stopping.is_set():
            self._begin(frozenset(paused))

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

    def _begin(self, paused: Collection[TableId]) -> None:
        from replicator.verify.interruption import Interruption  # noqa: PLC0415

        self._polled = time.monotonic()
        self._interruption = Interruption()
        self._running = self._pool.submit(self._check_next, paused, self._interruption)

    def _check_next(
        self, paused: Collection[TableId], interruption: "Interruption"
    ) -> "tuple[TableId, TableResult] | None":
        """Check the table that is due; return None if there is none, or if the check was interrupted."""
        try:
            if (table := self._next(paused)) is None:
                return None
            # If it fails, others come first.
            self._tried[table] = now_ms()
            return table, self._check(table, interruption)
        except Exception:
            # Statements that were ended fail.
            if interruption.event.is_set():
                return None
            raise

    def _next(self, paused: Collection[TableId]) -> TableId | None:
        from replicator.lake.reader import namespace_properties, open_catalog  # noqa: PLC0415
        from replicator.model.verified import verified_in  # noqa: PLC0415
        from replicator.sources.mysql.tables import included_tables  # noqa: PLC0415

        config = self._config
        with open_catalog(config.lake) as catalog:
            checked = verified_in(namespace_properties(catalog, config.lake.ops_namespace))
        tables = [
            table
            for table in included_tables(config)
            if table not in paused and not matches(str(table), config.verify.exclude)
        ]
        known = {check.table: check for check in checked}
        before_ms = now_ms() - int(1000 * (config.verify.every or 0))
        return due(tables, known, self._repaired, before_ms, self._tried)

    def _check(self, table: TableId, interruption: "Interruption") -> "TableResult":
        from replicator.verify.mirror_check import Wanted, verify  # noqa: PLC0415
        from replicator.verify.table_check import Limits  # noqa: PLC0415

        limits = Limits(rows_per_second=self._config.verify.max_rows_per_second)
        wanted = Wanted((str(table),), _WAIT_S, limits, may_be_resumed=False, interruption=interruption)
        report = verify(self._config, wanted, lambda *_: interruption.go_on())
        # The name may be a pattern that matches others too.
        return next(result for result in report.tables if result.table == str(table))

    def _handle(self, ended: "Future[tuple[TableId, TableResult] | None]") -> None:
        error = ended.exception()
        if error is not None:
            # A check must not end the mirror.
            hint = error.hint if isinstance(error, ReplicatorError) else None
            reason = (str(error) or type(error).__name__).splitlines()[0][:300]
            _LOG.warning("a scheduled check failed", reason=reason, next=hint)
            self._polled = time.monotonic() + _FAILED_S
            return
        if (found := ended.result()) is None:
            self._polled = time.monotonic() + min(_LONGEST_POLL_S, (self._config.verify.every or 0) / 10)
            return
        table, result = found
        was_repaired = table in self._repaired
        self._repaired.discard(table)
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
            # What a repair leaves is not repaired again at once: its cause would make the mirror read all the time.
            self._differs(
                table, result, repairs=self._config.verify.on_difference == "repair" and not was_repaired
            )

    def _differs(self, table: TableId, result: "TableResult", *, repairs: bool) -> None:
        """Log that a mirror differs, and request its repair."""
        _LOG.error(
            "the mirror differs from the source",
            table=result.table,
            missing=result.counts.get("missing", 0),  # type: ignore[call-overload]  # kinds are texts
            unexpected=result.counts.get("unexpected", 0),  # type: ignore[call-overload]
            different=result.counts.get("different", 0),  # type: ignore[call-overload]
            position=result.position,
            next="it is repaired now" if repairs else f"run: replicator verify --table {table} --repair",
        )
        if repairs:
            from replicator.verify.results import repaired_part  # noqa: PLC0415

            part = repaired_part(result)
            narrowed = {} if part is None else {table: part}
            self._rereads.request([table], "verify", self._config.heal.max_rows, narrowed)
            self._repaired.add(table)


def due(
    tables: Sequence[TableId],
    checked: Mapping[TableId, VerifiedTable],
    repaired: Collection[TableId],
    before_ms: int,
    tried: Mapping[TableId, int] | None = None,
) -> TableId | None:
    """Return the table to check next: one that was repaired, or else the one whose last check is oldest.

    Return None if all were checked after `before_ms`, milliseconds since the epoch. `tried` is when this process began
    to check a table, whether or not that succeeded.
    """
    ended = {table: checked[table].ended_ms if table in checked else 0 for table in tables}
    waiting = [table for table in tables if table in repaired or ended[table] <= before_ms]
    begun = tried or {}
    return min(waiting, key=lambda t: (t not in repaired, max(ended[t], begun.get(t, 0)), t), default=None)
