"""Refresh pipelines to a boundary that their inputs have reached: to the newest one of now, or to an earlier one."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from replicator.errors import ConnectError, LogError, ReplicatorError, Unsettled, UsageError
from replicator.pipelines.inputs.log_ends import NO_POSITION, LogEnds, ReadEnds
from replicator.pipelines.inputs.recent_ends import RecentEnds
from replicator.pipelines.refresh.refresh import Outcome
from replicator.pipelines.service import NotRefreshed, OnPipeline, Pipelines, Result

_POLL_S: Final = 0.5
_STAYS_S: Final = 10.0
"""How long a boundary stays at least: if it did not as long as a batch takes, a source would always be ahead."""


def refresh_as_reached(
    pipelines: Pipelines,
    recent: RecentEnds,
    names: Collection[str] = (),
    *,
    retry: bool = True,
    limit: Callable[[LogEnds], LogEnds] = lambda ends: ends,
) -> list[Result]:
    """Bring pipelines to the newest of recent boundaries that their inputs have reached, as `limit` returns it.

    Raises:
        UsageError, LakeError: as `Pipelines.refresh`.
    """
    try:
        ends = recent.reached(pipelines.mirrors(names), pipelines.boundaries(names))
    except (Unsettled, LogError, ConnectError, UsageError) as error:
        logs = pipelines.of_log_tables(names)
        found = pipelines.refresh(NO_POSITION, logs, retry=retry) if logs else []
        return [*found, *pipelines.unreached(names, error)]
    return pipelines.refresh(limit(ends), names, retry=retry)


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

    The mirrors reach a boundary in time only if it stays. After half of the time, at least ten seconds, a newer one is
    taken: changes that cannot be undone may be after the first one. While none is known, results of log tables alone
    are refreshed: they have no position in the source.

    Raises:
        Unsettled: no boundary is known within the time, and each of the pipelines needs one.
        UsageError, LogError, ConnectError: the same, as `ReadEnds`.
        UsageError, LakeError: as `Pipelines.refresh`.
    """
    stop = stopping or threading.Event()
    deadline, half = time.monotonic() + wait, time.monotonic() + max(wait / 2, _STAYS_S)
    refresh = partial(pipelines.refresh, retry=retry, on_pipeline=on_pipeline)
    first: list[Result] = []
    try:
        ends = read()
    except ReplicatorError as error:
        if logs := pipelines.of_log_tables(names):
            first = refresh(NO_POSITION, logs, rebuild=[name for name in rebuild if name in logs])
        try:
            if not isinstance(error, Unsettled) or not pipelines.unreached(names, error):
                raise
            ends = _ends(read, deadline, stop)
        except ReplicatorError as last:
            if not logs:
                raise
            return [*first, *pipelines.unreached(names, last)]
    results = _merged(first, refresh(ends, names, rebuild=_left(rebuild, first)))
    while _waits(results) and time.monotonic() < deadline and not stop.wait(_POLL_S):
        if time.monotonic() > half:
            ends, half = _ends(read, deadline, stop), deadline
        results = _merged(results, refresh(ends, names, rebuild=_left(rebuild, results)))
    return results


def _left(rebuild: Collection[str], results: Sequence[Result]) -> list[str]:
    """Return which pipelines must still be computed as a whole."""
    built = {result.pipeline for result in results if not isinstance(result, NotRefreshed)}
    return [name for name in rebuild if name not in built]


def _merged(before: Sequence[Result], now: Sequence[Result]) -> list[Result]:
    known = {result.pipeline: result for result in before}
    return [_more(known.get(result.pipeline, result), result) for result in now]


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
