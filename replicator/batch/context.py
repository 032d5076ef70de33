"""The services that batches use."""

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from replicator.batch.events.ahead import WorkersAhead
from replicator.batch.state.driver_limits import DriverLimits, RecordSizes
from replicator.batch.state.misread_rows import MisreadRows
from replicator.batch.state.partition_counts import PartitionCounts
from replicator.batch.state.prepared_transactions import PreparedTransactions
from replicator.batch.state.tagging import Tagging
from replicator.config import ColumnRuleBook, Config
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.lake.catalog.tables import Lake
from replicator.lake.files.small_files import SmallFileLog
from replicator.lake.ledger import Ledger
from replicator.lake.quarantine import Quarantine
from replicator.lake.recent_changes import RecentChanges
from replicator.lake.recoveries import Recoveries
from replicator.lake.rows.locations import RowLocationCache
from replicator.lake.table_writer import TableWriter
from replicator.model.column_rules import ColumnRules
from replicator.model.table import TableId
from replicator.sources.change_log import ChangeLog
from replicator.sources.compressed_positions import CompressedPositions

TAIL: Final = 8
"""Number of offsets at the end of a range among which its last row should be; others are of tombstones or markers."""


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
    quarantine: Quarantine
    row_locations: RowLocationCache
    small_files: SmallFileLog
    driver_limits: DriverLimits
    sizes: RecordSizes
    rules: ColumnRuleBook
    compression: CompressedPositions
    recoveries: Recoveries
    ahead: WorkersAhead
    tagging: Tagging = field(default_factory=Tagging)
    partition_counts: PartitionCounts = field(default_factory=PartitionCounts)
    misread: MisreadRows = field(default_factory=MisreadRows)
    prepared: PreparedTransactions = field(default_factory=PreparedTransactions)
    recent: RecentChanges = field(default_factory=RecentChanges)
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
        return TableWriter(self.lake, self.ledger, self.row_locations, self.small_files, self.recent)


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
