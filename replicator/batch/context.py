"""The services that batches use, and the task of one table in a batch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from replicator.batch.decode_queries import DecodeQueries
from replicator.batch.driver_limits import DriverLimits, RecordSizes
from replicator.batch.executors import DRIVER, SPARK, BatchExecutor
from replicator.batch.partition_counts import PartitionCounts
from replicator.batch.prepared_transactions import PreparedTransactions
from replicator.config import ColumnRuleBook, Config
from replicator.decode.schema_tracker import SchemaTracker
from replicator.jvm.spark import local_frame
from replicator.lake.catalog import Lake
from replicator.lake.ledger import Ledger
from replicator.lake.quarantine import Quarantine
from replicator.lake.recoveries import Recoveries
from replicator.lake.row_locations import RowLocationCache
from replicator.lake.small_files import SmallFileLog
from replicator.lake.table_writer import TableWriter
from replicator.model.column_rules import ColumnRules
from replicator.model.commit_marker import OffsetRange
from replicator.model.reread import Narrowed
from replicator.model.table import TableId
from replicator.sources.change_log import ChangeLog, Offsets
from replicator.sources.compressed_positions import CompressedPositions

TAIL: Final = 8
"""Number of offsets at the end of a range among which its last row should be; others are of tombstones or markers."""


@dataclass(slots=True)
class MisreadRows:
    """The rows to read again that batches have found, for the scheduler. Threads may use it."""

    _parts: dict[TableId, Narrowed | None] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def any_left(self) -> bool:
        """Whether rows of any table must be read again."""
        return bool(self._parts)

    def note(self, table: TableId, part: Narrowed | None) -> None:
        """Note a part of a table; None is all of it."""
        with self._lock:
            known = self._parts.get(table)
            if part is None or table not in self._parts:
                self._parts[table] = part
            elif known is not None:
                same = known.column == part.column
                self._parts[table] = Narrowed.to(part.column, (*known.spans, *part.spans)) if same else None

    def take(self, besides: Collection[TableId]) -> dict[TableId, Narrowed | None]:
        """Return the noted parts, and forget them; those of tables in `besides` stay."""
        with self._lock:
            taken = {table: part for table, part in self._parts.items() if table not in besides}
            for table in taken:
                del self._parts[table]
        return taken


@dataclass(slots=True)
class PendingTag:
    """A tag of all tables at one position of the source, as the batches need it; see `tag_boundary`.

    Attributes:
        name: the name of the tag.
        position_key: changes with this position key or a greater one must not be in the tagged snapshots.
        read_ms: when the source was at the position, milliseconds since the epoch.
        resumed: whether another process has started it, so that tables may be tagged already.
        topics: topic → its partitions, as of the current batch.
        proven: the ends of the topics at a time when all changes before the position were in them; None before that.
        settled: tables that need nothing more: they are tagged, have nothing to tag, or are left out.
        problems: table → why it cannot be tagged.
        holds: whether a table with unread events waits because it is not proven that it has all earlier ones.
    """

    name: str
    position_key: int
    read_ms: int
    resumed: bool = False
    topics: Mapping[str, Collection[int]] = field(default_factory=dict)
    proven: Offsets | None = None
    settled: set[TableId] = field(default_factory=set)
    problems: dict[TableId, str] = field(default_factory=dict)
    holds: bool = False


@dataclass(slots=True)
class Tagging:
    """The tag that is being made; None if there is none."""

    pending: PendingTag | None = None

    def awaited_by(self, table: TableId) -> PendingTag | None:
        """Return the tag that must be made before `table` gets any change from after its position."""
        tag = self.pending
        return None if tag is None or table in tag.settled or table in tag.problems else tag


@dataclass(frozen=True, slots=True)
class MirrorContext:
    """The services that batches use; one for the life of a mirror process.

    Attributes:
        created_for: the namespace that new tables move to later, and whose folders they get; None if they stay.
    """

    spark: SparkSession
    config: Config
    log: ChangeLog
    lake: Lake
    ledger: Ledger
    schemas: SchemaTracker
    decode_queries: DecodeQueries
    quarantine: Quarantine
    row_locations: RowLocationCache
    small_files: SmallFileLog
    driver_limits: DriverLimits
    sizes: RecordSizes
    rules: ColumnRuleBook
    compression: CompressedPositions
    recoveries: Recoveries
    tagging: Tagging = field(default_factory=Tagging)
    partition_counts: PartitionCounts = field(default_factory=PartitionCounts)
    misread: MisreadRows = field(default_factory=MisreadRows)
    prepared: PreparedTransactions = field(default_factory=PreparedTransactions)
    created_for: str | None = None

    @property
    def reads_again(self) -> bool:
        """Whether a table can be read again from the source."""
        return self.log.grows and self.config.can_read_source

    @property
    def is_staging(self) -> bool:
        """Whether the tables are those of re-reads."""
        return self.created_for is not None

    @property
    def writer(self) -> TableWriter:
        """The committer of lake tables."""
        return TableWriter(self.lake, self.ledger, self.row_locations, self.small_files)


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


def column_rules(context: MirrorContext, table: TableId) -> ColumnRules:
    """Return the column rules for a table, under every name that it has or had."""
    return context.rules.of(str(table), known_names(context.schemas, table))


def known_names(schemas: SchemaTracker, table: TableId) -> tuple[str, ...]:
    """Return every name that a table has or had, as `database.table`."""
    found: set[TableId] = set()
    left = [table]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += schemas.earlier_names(name) | schemas.later_names(name)
    return tuple(map(str, found))
