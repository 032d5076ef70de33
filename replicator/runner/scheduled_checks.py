"""Compare the tables of a mirror with the source beside its batches, one at a time, as `[verify]` says."""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from replicator.config import Config
from replicator.errors import ReplicatorError
from replicator.model.clock import now_ms
from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable
from replicator.runner.rereads import Rereads
from replicator.telemetry import get_logger

if TYPE_CHECKING:
    # It loads SQLAlchemy and Arrow's readers, which a mirror without scheduled checks does not need.
    from replicator.verify.results import TableResult

_LOG: Final = get_logger("replicator.verify")
_POLL_S: Final = 10.0
"""How often it is asked which table is due."""
_WAIT_S: Final = 300.0
"""How long a check waits for the connector, and then for the mirror."""


class _Interrupted(Exception):  # noqa: N818 - no error
    """The check ends, because the mirror stops or has a backlog."""


class ScheduledChecks:
    """Checks tables in a thread of its own. All methods are for the scheduler's thread.

    Attributes:
        has_backlog: whether the mirror has a backlog. A check that is under way ends, and begins again later.
    """

    def __init__(self, config: Config, rereads: Rereads, stopping: threading.Event) -> None:
        self._config = config
        self._rereads = rereads
        self._stopping = stopping
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, "verify")
        self._running: Future[TableResult | None] | None = None
        self._polled = time.monotonic()
        self._repaired: set[TableId] = set()
        self.has_backlog = False

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
        if self._config.verify.every is None or self.has_backlog or self._rereads.any_left:
            return
        if time.monotonic() >= self._polled + _POLL_S:
            self._polled = time.monotonic()
            self._running = self._pool.submit(self._check_next, frozenset(paused))

    def close(self) -> None:
        """End the check under way, and wait for its thread."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _check_next(self, paused: Collection[TableId]) -> "TableResult | None":
        """Check the table that is due; return None if there is none, or if the check was interrupted."""
        from replicator.lake.reader import namespace_properties, open_catalog  # noqa: PLC0415
        from replicator.model.verified import verified_in  # noqa: PLC0415
        from replicator.sources.mysql.tables import included_tables  # noqa: PLC0415
        from replicator.verify.mirror_check import Wanted, verify  # noqa: PLC0415
        from replicator.verify.table_check import Limits  # noqa: PLC0415

        config = self._config
        with open_catalog(config.lake) as catalog:
            checked = verified_in(namespace_properties(catalog, config.lake.ops_namespace))
        tables = [table for table in included_tables(config) if table not in paused]
        known = {check.table: check for check in checked}
        table = due(tables, known, self._repaired, now_ms() - int(1000 * (config.verify.every or 0)))
        if table is None:
            return None
        limits = Limits(rows_per_second=config.verify.max_rows_per_second)
        wanted = Wanted((str(table),), _WAIT_S, limits, may_be_resumed=False)
        try:
            return verify(config, wanted, lambda *_: self._go_on()).tables[0]
        except _Interrupted:
            return None

    def _go_on(self) -> None:
        if self._stopping.is_set() or self._closing.is_set() or self.has_backlog:
            raise _Interrupted

    def _handle(self, ended: "Future[TableResult | None]") -> None:
        error = ended.exception()
        if error is not None:
            # A check must not end the mirror.
            hint = error.hint if isinstance(error, ReplicatorError) else None
            _LOG.warning("a scheduled check failed", reason=str(error).splitlines()[0][:300], next=hint)
            return
        if (result := ended.result()) is None:
            return
        table = TableId(*result.table.split(".", 1))
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
            self._differs(table, result)

    def _differs(self, table: TableId, result: "TableResult") -> None:
        """Tell that a mirror differs, and request its repair if that is configured."""
        repairs = self._config.verify.on_difference == "repair"
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
            self._rereads.request([table], "verify", narrowed={} if part is None else {table: part})
            self._repaired.add(table)


def due(
    tables: Sequence[TableId],
    checked: Mapping[TableId, VerifiedTable],
    repaired: Collection[TableId],
    before_ms: int,
) -> TableId | None:
    """Return the table to check next: one that was repaired, or else the one whose last check is oldest.

    Return None if all were checked after `before_ms`, milliseconds since the epoch.
    """
    ended = {table: checked[table].ended_ms if table in checked else 0 for table in tables}
    first = min(tables, key=lambda table: (table not in repaired, ended[table], table), default=None)
    if first is None or (first not in repaired and ended[first] > before_ms):
        return None
    return first
