"""The part of a batch that belongs to one table, and its segments."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from replicator.batch.context import MirrorContext
from replicator.batch.events.executors import DRIVER, SPARK, SparkExecutor
from replicator.batch.state.partition_counts import number_of
from replicator.config import TableOptions
from replicator.decode.records import DriverRecords, Records, SparkRecords
from replicator.lake.ledger import Progress
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import OffsetRange, PartitionProgress
from replicator.model.table import TableId
from replicator.schema.history.versions import SchemaHistory


@dataclass(frozen=True, slots=True)
class TableTask:
    """The part of a batch that belongs to one table: `ranges` of its topic, in batch number `batch`.

    Attributes:
        records: the records of the ranges, if they are few and were fetched; see `plan.prefetch`.
        tail: the last records of the ranges, if the others were not fetched; see `late_definitions`.
        target_schema_at: binlog key of the schema version that the lake tables must have afterwards; None if the task
            was not split at schema changes.
        since_schema_at: that of the version with which an epoch begins if the task was split there, and this is the
            part from there on; None otherwise.
        following: the ranges that the table's next task is expected to have, if Spark's workers will read them.
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
    following: tuple[OffsetRange, ...] = ()

    @property
    def count(self) -> int:
        """Number of offsets to read, gaps included."""
        return sum(r.count for r in self.ranges)

    @property
    def executor(self) -> SparkExecutor:
        """Where the task is executed: on the driver if its records were fetched."""
        return SPARK if self.records is None else DRIVER


@dataclass(frozen=True, slots=True)
class Segment:
    """A task, or the part of it that is committed by itself, and what is known of its table when it begins.

    Attributes:
        options: how the table is configured.
        progress: the markers and schema versions of its lake tables.
        history: the known versions of its schema. The records may show later ones.
    """

    context: MirrorContext
    task: TableTask
    options: TableOptions
    progress: Progress
    history: SchemaHistory

    @classmethod
    def begin(cls, context: MirrorContext, task: TableTask) -> "Segment":
        """Return a task with what is known of its table now.

        Raises:
            LakeUnavailable: the markers of its lake tables were not read yet, and cannot be.
        """
        options, progress = context.config.table(str(task.table)), context.ledger.progress(task.table)
        return cls(context, task, options, progress, context.schemas.history(task.table))

    @property
    def table(self) -> TableId:
        """The source table."""
        return self.task.table

    @property
    def before(self) -> Mapping[int, PartitionProgress]:
        """Partition → how far the lake has the events of the topic; events up to there are redelivered ones."""
        marker = self.progress.resume_marker
        return {} if marker is None else marker.progress.get(self.task.topic, {})

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, as far as that is known."""
        topic, progress = self.task.topic, self.progress
        markers = [m for m in (progress.mirror, progress.changelog) if m is not None]
        seen = {r.partition for r in self.task.ranges} | {
            p for m in markers for p in m.progress.get(topic, {})
        }
        known = (self.context.partition_counts.first(topic), progress.known_partitions(topic))
        return max(number_of(seen), *(count or 0 for count in known))

    def records(self) -> Records:
        """Return the records of the task: the prefetched ones, else read from the log by Spark."""
        return self.logged() if self.task.records is None else DriverRecords(self.task.records)

    def logged(self) -> SparkRecords:
        """Return the records of the task as Spark reads them."""
        return SparkRecords(self.context.spark, self.context.log, self.task.ranges)


class TableAwaits(Exception):  # noqa: N818 no error
    """A table has applied the events up to a point, and must wait there.

    It has reached the position of a tag in some of its partitions; for the others that is not proven yet.

    Attributes:
        done: the tasks that were applied, with their statistics.
    """

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[TableTask, BatchStats]] = []
