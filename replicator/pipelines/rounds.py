"""Refresh pipelines to the newest boundary, and wait until their inputs have reached it."""

import threading
import time
from collections.abc import Collection, Sequence
from typing import Final

from replicator.errors import Unsettled
from replicator.pipelines.inputs.log_ends import LogEnds, ReadEnds
from replicator.pipelines.refresh.refresh import Outcome
from replicator.pipelines.service import NotRefreshed, OnPipeline, Pipelines, Result

_POLL_S: Final = 0.5


def refresh_when_reached(
    pipelines: Pipelines,
    read: ReadEnds,
    names: Collection[str] = (),
    *,
    rebuild: Collection[str] = (),
    wait: float,
    retry: bool = True,
    stopping: threading.Event | None = None,
    on_pipeline: OnPipeline = lambda *_: None,
) -> list[Result]:
    """Bring pipelines to the newest boundary; try those again that wait for an input, for `wait` seconds.

    The mirrors reach a boundary in time only if it stays. After half of the time a newer one is taken: changes that
    cannot be undone may be after the first one.

    Raises:
        Unsettled: no boundary is known within the time.
        UsageError, LogError, ConnectError, LakeError: as `ReadEnds` and `Pipelines.refresh`.
    """
    stop = stopping or threading.Event()
    deadline, half = time.monotonic() + wait, time.monotonic() + wait / 2
    ends = _ends(read, deadline, stop)
    results = pipelines.refresh(ends, names, rebuild=rebuild, retry=retry, on_pipeline=on_pipeline)
    while _waits(results) and time.monotonic() < deadline and not stop.wait(_POLL_S):
        if time.monotonic() > half:
            ends, half = _ends(read, deadline, stop), deadline
        built = {result.pipeline for result in results if not isinstance(result, NotRefreshed)}
        again, before = [name for name in rebuild if name not in built], results
        results = pipelines.refresh(ends, names, rebuild=again, retry=retry, on_pipeline=on_pipeline)
        results = [_more(*pair) for pair in zip(before, results, strict=True)]
    return results


def _more(before: Result, now: Result) -> Result:
    """Return what to report of two refreshes, the second of which may have found nothing to do."""
    if isinstance(before, NotRefreshed) or isinstance(now, NotRefreshed):
        return now
    return before if now.outcome is Outcome.SAME else now


def _waits(results: Sequence[Result]) -> bool:
    return any(isinstance(result, NotRefreshed) and result.waits for result in results)


def _ends(read: ReadEnds, deadline: float, stop: threading.Event) -> LogEnds:
    while True:
        try:
            return read()
        except Unsettled:
            if time.monotonic() > deadline or stop.wait(_POLL_S):
                raise
