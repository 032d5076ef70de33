"""The part of a batch that belongs to one table."""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from replicator.batch.context import MirrorContext
from replicator.batch.events.executors import DRIVER, SPARK, BatchExecutor
from replicator.jvm.spark import local_frame
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId


@dataclass(frozen=True, slots=True)
class TableTask:
    """The part of a batch that belongs to one table: `ranges` of its topic, in batch number `batch`.

    Attributes:
        records: the records of the ranges, if they are few and were prefetched; see `prefetch_records`.
        tail: the last records of the ranges, if the others were not prefetched; see `late_definitions`.
        target_schema_at: binlog key of the schema version that the lake tables must have afterwards; None if the task
            was not split at schema changes.
        since_schema_at: that of the version with which an epoch begins if the task was split there, and this is the
            part from there on; None otherwise.
    """

    table: TableId
    topic: str
    topic_id: str | None
    ranges: tuple[OffsetRange, ...]
    batch: int
    records: pa.Table | None = None
    tail: pa.Table | None = None
    target_schema_at: int | None = None
    since_schema_at: int | None = None

    @property
    def count(self) -> int:
        """Number of offsets to read, gaps included."""
        return sum(r.count for r in self.ranges)

    @property
    def executor(self) -> BatchExecutor:
        """Where the task is executed: on the driver if its records were prefetched."""
        return SPARK if self.records is None else DRIVER


def read_records(context: MirrorContext, task: TableTask) -> DataFrame:
    """Return the records of `task`: the prefetched ones, else read from the log by Spark."""
    if task.records is None:
        return context.log.read(context.spark, task.ranges)
    return local_frame(context.spark, task.records)


class TableAwaits(Exception):  # noqa: N818 no error
    """A table has applied the events up to a point, and must wait there.

    Attributes:
        done: the tasks that were applied, with their statistics.
    """

    def __init__(self, done: list[tuple[TableTask, BatchStats]]) -> None:
        super().__init__()
        self.done = done
