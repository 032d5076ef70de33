"""Lets Spark's workers begin the next task of a table before the driver has committed the current one.

What workers do follows from the offsets of a topic and a `WorkerWriting`, and from nothing else. Their result is used
if the next task needs exactly that; otherwise their files are removed. A wrong forecast costs time, and nothing else.
"""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from replicator.batch.events.worker_task import WorkerWriting
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId

Run = Callable[[tuple[OffsetRange, ...], WorkerWriting], pa.Table]
"""Runs the workers' job for offset ranges, and returns the rows of `task_files.RESULT`."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the next task of a table is expected to read: ranges of a topic, which has an id if the log gives ids."""

    ranges: tuple[OffsetRange, ...]
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class Begun:
    """A job of workers that was begun for an expected task."""

    forecast: Forecast
    writing: WorkerWriting
    result: "Future[pa.Table]"

    def found(self) -> pa.Table | None:
        """Wait for the result and return it; None if the job failed, which has then removed its files."""
        return None if self.result.exception() is not None else self.result.result()

    def fits(self, forecast: Forecast, writing: WorkerWriting) -> bool:
        return self.forecast == forecast and self.writing == replace(writing, label=self.writing.label)


class WorkersAhead:
    """The jobs that were begun for the next tasks of tables and not taken yet: at most one for each table.

    Safe for several threads.
    """

    def __init__(self, spark: SparkSession, threads: int) -> None:
        """Run at most twice this number of jobs at once: a table's next one begins before the last has ended."""
        self._context = spark.sparkContext
        self._pool = ThreadPoolExecutor(2 * threads, "ahead")
        self._begun: dict[TableId, Begun] = {}
        self._lock = threading.Lock()

    def ranges(self, table: TableId) -> tuple[OffsetRange, ...]:
        """Return the ranges that were begun for a table; none if nothing was."""
        with self._lock:
            begun = self._begun.get(table)
        return () if begun is None else begun.forecast.ranges

    def begin(self, table: TableId, forecast: Forecast, writing: WorkerWriting, run: Run) -> None:
        """Begin the task that follows one with `writing`."""
        following = replace(
            writing,
            decoder=replace(writing.decoder, ranges=forecast.ranges),
            commit=writing.commit + (writing.changelog is not None),
            label=uuid.uuid4().hex,
        )
        self.forget(table)
        job = self._pool.submit(self._tagged, following.label, partial(run, forecast.ranges, following))
        with self._lock:
            self._begun[table] = Begun(forecast, following, job)

    def take(self, table: TableId, forecast: Forecast, writing: WorkerWriting) -> Begun | None:
        """Return what was begun for a task; None if nothing was, or if the task needs something else."""
        begun = self._pop(table)
        if begun is None or begun.fits(forecast, writing):
            return begun
        self._stop(begun)
        return None

    def forget(self, table: TableId) -> None:
        """Stop what was begun for a table, and remove its files."""
        if (begun := self._pop(table)) is not None:
            self._stop(begun)

    def close(self) -> None:
        """Stop everything that was begun. What waits does not begin in place of what is stopped."""
        for begun in list(self._begun.values()):
            begun.result.cancel()
        for table in list(self._begun):
            self.forget(table)
        self._pool.shutdown()

    def _pop(self, table: TableId) -> Begun | None:
        with self._lock:
            return self._begun.pop(table, None)

    def _stop(self, begun: Begun) -> None:
        # One that has not begun has no job in Spark.
        if not begun.result.cancel() and not begun.result.done():
            self._context.cancelJobsWithTag(begun.writing.label)
        begun.result.add_done_callback(lambda _: begun.writing.remove_files())

    def _tagged(self, tag: str, job: Callable[[], pa.Table]) -> pa.Table:
        self._context.addJobTag(tag)
        try:
            return job()
        finally:
            self._context.removeJobTag(tag)
