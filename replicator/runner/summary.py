"""Add up what a run does."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replicator.batch import TableTask
from replicator.model.batch_stats import BatchStats
from replicator.model.common import now_ms
from replicator.model.reread import Phase, Request
from replicator.model.table import TableId
from replicator.telemetry import BatchReport, Stopwatch


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of a run, from its start to its end.

    Attributes:
        rows: changes by kind.
        tables: the tables with a commit of events.
        reread: number of rows, by table that was read from the source.
        paused: the reason, by table.
        quarantined: number of events.
    """

    batches: int
    events: int
    rows: Mapping[str, int]
    tables: tuple[str, ...]
    paused: Mapping[str, str]
    quarantined: int
    seconds: float
    reread: Mapping[str, int]


class RunTotals:
    """The totals of a run so far.

    Attributes:
        batches: number of batches that were started.
        events: number of events that were applied.
        quarantined: number of events that were quarantined; the scheduler adds those that are in no report.
    """

    def __init__(self, *, with_before: bool) -> None:
        """With `with_before`, an update counts as two changes: the row before and the row after it."""
        self.batches = 0
        self.quarantined = 0
        self._with_before = with_before
        self._started = time.monotonic()
        self._started_ms = now_ms()
        self.events = 0
        self._rows: dict[str, int] = {}
        self._tables: set[str] = set()

    def add(
        self, done: Sequence[tuple[TableTask, BatchStats]], watch: Stopwatch, paused: Sequence[TableId]
    ) -> BatchReport:
        """Add the committed tasks of the current batch, and return its report."""
        rows: dict[str, int] = {}
        for _, stats in done:
            _add_counts(rows, stats.rows_by_kind(with_before=self._with_before))
        _add_counts(self._rows, rows)
        watermarks = [stats.watermark_ms for _, stats in done if stats.watermark_ms is not None]
        events = sum(task.count for task, _ in done)
        quarantined = sum(stats.bad for _, stats in done)
        tables = {str(task.table) for task, _ in done}
        self.events += events
        self.quarantined += quarantined
        self._tables |= tables
        return BatchReport(
            batch=self.batches,
            events=events,
            rows=rows,
            tables=len(tables),
            seconds=watch.times(),
            lag_seconds=time.time() - max(watermarks) / 1000 if watermarks else None,
            quarantined=quarantined,
            paused=tuple(map(str, paused)),
        )

    def summary(self, paused: Mapping[TableId, str], rereads: Iterable[Request] = ()) -> RunSummary:
        """Return the totals so far; of `rereads`, those count that were done since the start of the run."""
        done = [r for r in rereads if r.phase is Phase.DONE and (r.ended_ms or 0) >= self._started_ms]
        return RunSummary(
            self.batches,
            self.events,
            dict(self._rows),
            tuple(sorted(self._tables)),
            {str(table): reason for table, reason in sorted(paused.items())},
            self.quarantined,
            time.monotonic() - self._started,
            {str(request.table): request.rows for request in sorted(done, key=lambda r: str(r.table))},
        )


def _add_counts(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    for kind, number in counts.items():
        totals[kind] = totals.get(kind, 0) + number
