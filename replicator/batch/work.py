"""What a batch works with, and what one table has to take in of it."""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from replicator.apply.lake import Lake
from replicator.apply.recent import RecentPlaces
from replicator.config import ColumnRuleBook, Config
from replicator.decode.schema_book import SchemaBook
from replicator.held import RecordSizes
from replicator.ledger import Ledger, next_marker
from replicator.model.census import Census
from replicator.model.commit import CommitMarker, OffsetRange
from replicator.model.table import TableId
from replicator.quarantine import Quarantine
from replicator.source.log import ChangeLog
from replicator.spark import local_frame


@dataclass(frozen=True, slots=True)
class Engine:
    """What a batch works with; one for the life of a mirror process."""

    spark: SparkSession
    config: Config
    log: ChangeLog
    lake: Lake
    ledger: Ledger
    book: SchemaBook
    quarantine: Quarantine
    recent: RecentPlaces
    sizes: RecordSizes
    rules: ColumnRuleBook


@dataclass(frozen=True, slots=True)
class Work:
    """What one table has to take in: `ranges` of its topic, as part of batch number `batch`.

    Attributes:
        records: those of the ranges, where they are few and were fetched already (see `fetched`).
        until: the place of the version of the source's schema that the lake is to have afterwards; None where the
            work was not looked through for changes of the schema.
        again: they were in quarantine, and what came after them may be in the lake; see `process_again`.
    """

    table: TableId
    topic: str
    topic_id: str | None
    ranges: tuple[OffsetRange, ...]
    batch: int
    records: pa.Table | None = None
    until: int | None = None
    again: bool = False

    @property
    def count(self) -> int:
        """Records to read, gaps in the offsets included."""
        return sum(r.count for r in self.ranges)


def records_of(engine: Engine, work: Work) -> DataFrame:
    """The records of `work`: those that were fetched, or read from the log by Spark."""
    if work.records is None:
        return engine.log.read(engine.spark, work.ranges)
    return local_frame(engine.spark, work.records)


def marker_of(engine: Engine, work: Work, base: CommitMarker | None, census: Census) -> CommitMarker:
    """The marker of the commit that adds `work`, as `census` counted it, to a table whose newest marker is `base`."""
    return next_marker(engine.config.mirror.name, work.batch, work.topic, work.topic_id, base, census)


def already_in(marker: CommitMarker | None, work: Work) -> dict[int, int]:
    """Partition → offset up to which a table has this batch's events; only where it has any of them."""
    if marker is None or work.again:
        return {}
    known = {r.partition: marker.next_offset(work.topic, r.partition) for r in work.ranges}
    return {r.partition: n for r in work.ranges if (n := known[r.partition]) is not None and n > r.start}
