"""Compare the results of pipelines with their queries while the mirror runs, in a thread of its own beside refreshes.

A comparison computes a result as a whole. One that takes longer than a tenth of the interval is given up, so that the
comparisons of one result never take more than that share of the time.
"""

import threading
import time
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession

from replicator.config import Config
from replicator.errors import CommitConflict, FencedError
from replicator.jvm.spark import check_java, first_line, own_session
from replicator.lake.reading.reader import open_catalog
from replicator.pipelines.checked import RECOMPUTED, last_recomputed
from replicator.pipelines.checking import Checked, check_when_settled
from replicator.pipelines.files import Pipeline, read_pipelines
from replicator.pipelines.output.check_log import CheckCounts, CheckLog
from replicator.pipelines.query.definition import Action
from replicator.pipelines.service import Pipelines
from replicator.runner.side_thread import SideThread
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.pipelines")
_GROUP: Final = "replicator-pipeline-check"
_SHARE: Final = 0.1
_LEAST_S: Final = 60.0
_LOOK_S: Final = 30.0
_SETTLE_S: Final = 30.0
_ATTEMPTS: Final = 3


class ResultChecks:
    """Compares each result once in an interval."""

    def __init__(self, config: Config, spark: SparkSession, every: float) -> None:
        self._config, self._spark, self._every = config, spark, every
        self._thread = SideThread("pipeline checks", self._round, _warn)
        self._last: dict[str, float] | None = None
        self._session: SparkSession | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Give up the comparison that runs now."""
        if not self._thread.stopping.is_set():
            self._thread.stopping.set()
            self._spark.sparkContext.cancelJobGroup(_GROUP)
        self._thread.close()

    def _round(self) -> float:
        if self._last is None:
            # If they cannot be read, which is reported once, each result is compared an interval after the start.
            self._last = {}
            with open_catalog(self._config.lake) as catalog:
                found = last_recomputed(catalog, self._config.lake.ops_namespace)
            self._last = {name: at.timestamp() for name, at in found.items()}
        self._check_due(self._last)
        return _LOOK_S

    def _check_due(self, last: dict[str, float]) -> None:
        files = read_pipelines(self._config)
        now = time.time()
        for definition in files.pipelines:
            # One that was never compared is, an interval after the start.
            if self._thread.stopping.is_set() or last.setdefault(definition.name, now) + self._every > now:
                continue
            last[definition.name] = now
            if self._session is None:
                self._session = own_session(self._spark)
            self._check(Pipelines.open(self._config, self._session, files), definition)

    def _check(self, pipelines: Pipelines, definition: Pipeline) -> None:
        context = pipelines.lake.spark.sparkContext
        context.setJobGroup(_GROUP, f"comparing {definition.name} with its query", interruptOnCancel=True)
        budget, began = max(_LEAST_S, self._every * _SHARE), time.monotonic()
        timer = threading.Timer(budget, context.cancelJobGroup, (_GROUP,))
        timer.start()
        try:
            repair = self._config.pipelines.on_difference == "repair"
            checked = check_when_settled(
                pipelines,
                definition,
                repair=repair,
                wait=min(budget, _SETTLE_S),
                stopping=self._thread.stopping,
            )
        except Exception as error:  # noqa: BLE001 - what fails is compared again, an interval later
            check_java(pipelines.lake.spark)
            took = time.monotonic() - began
            late = f"it took more than {budget:,.0f} s" if took >= budget else first_line(error)
            if not self._thread.stopping.is_set():
                _LOG.warning("a result was not compared", pipeline=definition.name, reason=late)
        else:
            self._tell(pipelines, checked, time.monotonic() - began)
        finally:
            timer.cancel()

    def _tell(self, pipelines: Pipelines, checked: Checked, seconds: float) -> None:
        differing = checked.missing + checked.extra
        facts = {"pipeline": checked.pipeline, "rows": checked.rows, "seconds": round(seconds, 1)}
        if checked.is_equal:
            _LOG.info("the result equals its query", **facts)
        else:
            _LOG.error(
                "the result differs from its query",
                **facts,
                missing=checked.missing,
                extra=checked.extra,
                repaired=checked.repaired,
                next=None if checked.repaired else f"replicator pipeline check {checked.pipeline} --repair",
            )
        counts = {checked.pipeline: [CheckCounts(RECOMPUTED, Action.WARN, checked.rows, differing)]}
        lake = self._config.lake
        log = CheckLog(pipelines.lake, lake.ops_namespace, self._config.mirror.name)
        for _ in range(_ATTEMPTS):
            with suppress(CommitConflict, FencedError):
                log.add(counts, checked.boundary)
                return


def _warn(reason: str, hint: str | None) -> None:
    _LOG.warning("results cannot be checked", reason=reason, next=hint)
