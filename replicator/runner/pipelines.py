"""Keep the results of pipelines current while the mirror runs, in a thread of its own.

Each pipeline is refreshed at its interval. The files are read again before each round: one that is new or was edited
is followed without a restart. Another thread reads where the log ends, so that a round goes to the newest position that
the mirrors have reached, and never waits for them.
"""

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from replicator.config import Config
from replicator.errors import Unsettled
from replicator.jvm.spark import own_session
from replicator.lake.properties import PIPELINE_CHECKS
from replicator.lake.recent_changes import RecentChanges
from replicator.maintenance.small_merge import SmallMerge
from replicator.pipelines.files import Pipeline, PipelineFiles, read_pipelines
from replicator.pipelines.inputs.log_ends import ReadEnds, ends_reader
from replicator.pipelines.inputs.recent_ends import RecentEnds
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.names import TableName
from replicator.pipelines.refresh.refresh import Outcome, Refreshed
from replicator.pipelines.rounds import refresh_as_reached, refresh_when_reached
from replicator.pipelines.service import NotRefreshed, Pipelines, Result
from replicator.pipelines.tag_stops import TagStops
from replicator.runner.batch_ends import BatchEnds
from replicator.runner.cadence import Cadence
from replicator.runner.result_upkeep import ResultUpkeep
from replicator.runner.side_thread import SideThread
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.pipelines")
_WAIT_S: Final = 60.0
"""How long a run that ends waits for the inputs of pipelines."""
_LOOK_S: Final = 10.0
"""How often the folder of the pipelines is looked at."""
_UPDATE_S: Final = 0.25
"""How often the end of the log is read, at most."""
_UPDATES: Final = 10
"""How often it is read between two refreshes, if they are further apart."""
_AGAIN_S: Final = 2.0
"""How soon a pipeline that waits for an input is tried again."""


def refresh_once(
    config: Config,
    spark: SparkSession,
    stopping: threading.Event | None = None,
    recent: RecentChanges | None = None,
) -> None:
    """Refresh all pipelines, and log what that did; for a run that ends. `recent` is what it committed to mirrors.

    Raises:
        ReplicatorError: as `refresh_when_reached`.
    """
    if files := read_pipelines(config):
        pipelines = Pipelines.open(config, own_session(spark), files, recent)
        read, stops = ends_reader(config, required=False), TagStops()
        _log(refresh_to_tags(pipelines, read, stops, _WAIT_S, stopping), {})
        _log(refresh_when_reached(pipelines, read, wait=_WAIT_S, stopping=stopping), {})


def refresh_to_tags(
    pipelines: Pipelines, read: ReadEnds, stops: TagStops, wait: float, stopping: threading.Event | None
) -> list[Result]:
    """Bring all results to the position of a complete tag, if there is a new one, and tag them there.

    Raises:
        ReplicatorError: as `refresh_when_reached`.
    """
    if not stops.is_needed(pipelines):
        return []
    ends = stops.limited(pipelines, read())
    if ends.tag is None:
        return []
    results = refresh_when_reached(pipelines, lambda: ends, wait=wait, retry=False, stopping=stopping)
    stops.leave(ends.tag)
    return results


@contextmanager
def following_pipelines(
    config: Config, spark: SparkSession, recent: RecentChanges, batches: BatchEnds
) -> Iterator[None]:
    """Keep the results of pipelines current while the block runs.

    `recent` is what it commits to mirrors, and `batches` tells when it has.
    """
    with ExitStack() as running:
        refreshes = _Refreshes(config, spark, recent, batches)
        running.enter_context(closing(refreshes)).start()
        if config.pipelines.check_every is not None:
            from replicator.runner.result_checks import ResultChecks  # noqa: PLC0415 - it imports PyIceberg

            checks = ResultChecks(config, spark, config.pipelines.check_every)
            checks.start()
            running.callback(checks.close)
        yield


class _Refreshes:
    """Refreshes pipelines at their intervals, a little earlier or later if a batch of the mirror ends then."""

    def __init__(
        self, config: Config, spark: SparkSession, recent: RecentChanges, batches: BatchEnds
    ) -> None:
        self._config, self._spark, self._changes, self._batches = config, spark, recent, batches
        self._thread = SideThread("pipelines", self._round, _warn)
        self._updates: SideThread | None = None
        self._retry = True
        self._cadence = Cadence()
        self._reported: dict[str, str] = {}
        self._pipelines: Pipelines | None = None
        self._read: ReadEnds | None = None
        self._recent: RecentEnds | None = None
        self._shortest, self._needs_position = config.pipelines.every, False
        self._session: SparkSession | None = None
        self._upkeep = ResultUpkeep(config)
        self._stops = TagStops()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the round that runs now."""
        self._thread.close()
        if self._updates is not None:
            self._updates.close()

    def _round(self) -> float:
        """Refresh what is due; return the seconds until the next round."""
        files = read_pipelines(self._config)
        for name, broken in files.broken.items():
            self._report(name, broken.error.message, broken.error.hint)
        if not (definitions := files.pipelines):
            return _LOOK_S
        pipelines, read, recent = self._opened(files)
        tagged = refresh_to_tags(
            pipelines, read, self._stops, self._config.pipelines.every, self._thread.stopping
        )
        _log(tagged, self._reported)
        names = [d.name for d in definitions]
        now, cadence = time.monotonic(), self._cadence
        if due := cadence.due(names, now):
            self._batches.await_one(
                cadence.fresh_since(now), cadence.patience(due, now), self._thread.stopping
            )
            if self._thread.stopping.is_set():
                return 0.0
            began, idle = time.monotonic(), not self._batches.any_since(cadence.last)
            self._shortest = min(self._every(d) for d in definitions)
            results = refresh_as_reached(
                pipelines,
                recent,
                due,
                retry=self._retry,
                limit=lambda ends: self._stops.limited(pipelines, ends),
            )
            self._retry = False
            _log(results, self._reported)
            every = [r for r in (*tagged, *results) if isinstance(r, Refreshed)]
            written = [r.table for r in every if r.outcome is not Outcome.SAME]
            tables = [name for table in written for name in (table, table.changes)]
            if any(d.expectations for d in files.definitions):
                tables.append(TableName(self._config.lake.ops_namespace, PIPELINE_CHECKS))
            small = SmallMerge(pipelines.lake, pipelines.tables.index, pipelines.tables.files)
            self._upkeep.run(pipelines.lake, tables if written else [], small)
            waiting = {r.pipeline for r in results if isinstance(r, NotRefreshed) and r.waits}
            again = {d.name: self._again(d, waiting) for d in definitions if d.name in due}
            cadence.began(again, began, idle=idle)
        cadence.follow(self._shortest if self._needs_position else None)
        return min(cadence.pause(names, time.monotonic()), _LOOK_S)

    def _update_ends(self, recent: RecentEnds) -> float:
        if self._needs_position:
            with suppress(Unsettled):
                recent.update()
        return max(_UPDATE_S, self._shortest / _UPDATES)

    def _opened(self, files: PipelineFiles) -> tuple[Pipelines, ReadEnds, RecentEnds]:
        if self._session is None:
            self._session = own_session(self._spark)
        if self._read is None or self._recent is None:
            self._read = ends_reader(self._config, required=False)
            self._recent = RecentEnds(self._read)
            self._updates = SideThread("log ends", partial(self._update_ends, self._recent), _warn)
            self._updates.start()
        if self._pipelines is None or self._pipelines.files != files:
            self._pipelines = Pipelines.open(self._config, self._session, files, self._changes)
            self._needs_position = len(self._pipelines.of_log_tables()) < len(files.pipelines)
        return self._pipelines, self._read, self._recent

    def _every(self, definition: Pipeline) -> float:
        every = definition.every if isinstance(definition, Definition) else None
        return every or self._config.pipelines.every

    def _again(self, definition: Pipeline, waiting: Collection[str]) -> float:
        every = self._every(definition)
        return min(every, _AGAIN_S) if definition.name in waiting else every

    def _report(self, name: str, reason: str, hint: str | None) -> None:
        if self._reported.get(name) != reason:
            self._reported[name] = reason
            _warn(reason, hint)


def _warn(reason: str, hint: str | None) -> None:
    _LOG.warning("pipelines cannot be refreshed", reason=reason, next=hint)


def _log(results: Sequence[Result], reported: dict[str, str]) -> None:
    """Log what refreshes did, each reason of a pause or a longer wait once."""
    for result in results:
        if isinstance(result, Refreshed):
            reported.pop(result.pipeline, None)
            if result.outcome is not Outcome.SAME or result.changes:
                _log_refreshed(result)
        elif reported.get(result.pipeline) != result.reason:
            reported[result.pipeline] = result.reason
            _log_not(result)


def _log_refreshed(result: Refreshed) -> None:
    _LOG.info(
        "pipeline refreshed",
        pipeline=result.pipeline,
        outcome=str(result.outcome),
        boundary=str(result.boundary),
        changes=result.changes,
        added=result.added,
        removed=result.removed,
        seconds=round(result.seconds, 3),
        **({} if result.reason is None else {"whole": result.reason}),
    )
    for check in result.checks:
        if check.failed:
            _LOG.warning(
                "rows do not meet a check",
                pipeline=result.pipeline,
                check=check.name,
                rows=check.failed,
                action=str(check.action),
            )


def _log_not(result: NotRefreshed) -> None:
    if result.waits:
        _LOG.info("pipeline waits", pipeline=result.pipeline, reason=result.reason)
    else:
        _LOG.error("pipeline paused", pipeline=result.pipeline, reason=result.reason, next=result.hint)
