"""Begin the tables of a new lake with the rows that an archive has of them, as re-reads do with the source's rows.

The rows are events of a snapshot, in topics of their own. They become a staging table, which is published with the
position of the rows as its own; the events of the table's topic go on from there.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from replicator.batch import TableTask, apply_task
from replicator.batch.steps.decode import current_schema
from replicator.batch.task import Segment
from replicator.batch.values import BatchSchema
from replicator.errors import BeginningMissing, MissingSchema, SchemaError
from replicator.lake.commit import Staged
from replicator.lake.ledger import chunks
from replicator.model.commit_marker import CommitMarker, HighWater, OffsetRange, PartitionProgress
from replicator.model.common import now_ms
from replicator.model.moments import ReplayRange, parse_as_of
from replicator.model.position import SourcePosition
from replicator.model.reread import Request, StagingState
from replicator.model.table import TableId
from replicator.recovery.publish import Publication
from replicator.recovery.reader.staging import Staging
from replicator.recovery.table_reread import TableReread
from replicator.runner.scheduler import Scheduler
from replicator.schema.history.order import binlog_key
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import ArchivedRows
from replicator.sources.archive.moments import Moments
from replicator.telemetry import Stopwatch, get_logger

_LOG: Final = get_logger("replicator.runner")
_REASON: Final = "rows of the archive"


def begin_with_rows(scheduler: Scheduler, log: ArchiveChangeLog, wanted: ReplayRange) -> None:
    """Fill the tables of which the lake has nothing, and the archive has rows. A table that fails is paused.

    Raises:
        ArchiveError: the archive is damaged.
        LakeUnavailable: the catalog does not answer.
    """
    found = {
        topic: rows
        for topic, rows in log.reader.manifest.rows.items()
        if scheduler.tables.includes(TableId(rows.database, rows.table))
    }
    if not found:
        return
    moments, staging = Moments(log.reader, log.topic_prefix), Staging.of(scheduler.context)
    ends = lru_cache(lambda at: moments.ends(parse_as_of(at)))
    last = None if wanted.until is None else moments.ends(wanted.until)
    for topic, rows in found.items():
        at, table = f"{rows.file}:{rows.pos}", TableId(rows.database, rows.table)
        starts = ends(at)
        filling = _Filling(scheduler, staging, log, table, topic, rows, _of_topic(starts, topic))
        try:
            if filling.is_done():
                continue
            if last is not None and any(end < starts.get(key, 0) for key, end in last.items()):
                raise BeginningMissing(
                    f"the archive has the rows of {table} as they were at {at}, after the end of the range",
                    "replay up to that position, or a later one",
                )
            filling.run()
        except SchemaError as error:
            scheduler.tables.pause(table, error)


def _of_topic(offsets: Mapping[tuple[str, int], int], topic: str) -> dict[int, int]:
    return {partition: offset for (name, partition), offset in offsets.items() if name == topic}


@dataclass(frozen=True, slots=True)
class _Filling:
    """Fills one table; `starts` is partition → offset of the first event after the rows."""

    scheduler: Scheduler
    staging: Staging
    log: ArchiveChangeLog
    table: TableId
    topic: str
    rows: ArchivedRows
    starts: Mapping[int, int]

    @property
    def request(self) -> Request:
        """The request; its id is the same each time, so that an interrupted publication continues."""
        number = hashlib.sha256(self.rows.topic.encode()).hexdigest()[:12]
        return Request(number, self.table, _REASON, now_ms(), held=True)

    def is_done(self) -> bool:
        """Return whether the lake has the table; complete its publication if the process was killed meanwhile."""
        tables, ledger = self.scheduler.tables, self.scheduler.context.ledger
        if not tables.is_readable(self.table):
            return True
        reread = TableReread(self.scheduler.context, self.staging, self.request, self.topic, lambda _: None)
        if reread.is_published():
            reread.finish_published()
        return ledger.progress(self.table).mirror is not None

    def run(self) -> None:
        """Fill a staging table, and make it the mirror."""
        schema = self._schema()
        self.staging.create(self.table, schema)
        count = 0
        for ranges in self._ranges():
            task = TableTask(self.table, self.rows.topic, None, ranges, 0)
            count += apply_task(self.staging.context, task, Stopwatch()).changes
        state = self._complete(count)
        Publication(self.scheduler.context, self.staging, self.request, state, schema, self.topic).publish()
        self.staging.drop(self.table)
        _LOG.info(
            "table begun with the rows of the archive", table=str(self.table), rows=count, at=str(self._at)
        )

    @property
    def _at(self) -> SourcePosition:
        return SourcePosition(self.rows.file, self.rows.pos)

    def _schema(self) -> BatchSchema:
        """Return the schema that the table had at the position of the rows.

        Raises:
            MissingSchema: the archive does not define it.
        """
        context, at = self.scheduler.context, binlog_key(self._at)
        versions = context.schemas.history(self.table).versions
        if not versions:
            raise MissingSchema(f"the archive has no definition of {self.table}")
        then = [version for version in versions if version.at <= at] or versions[:1]
        task = TableTask(self.table, self.rows.topic, None, (), 0, target_schema_at=then[-1].at)
        return current_schema(Segment.begin(self.staging.context, task))

    def _ranges(self) -> Iterator[tuple[OffsetRange, ...]]:
        reader = self.log.reader
        first, ends = reader.start_offsets(), reader.end_offsets()
        ranges = tuple(
            OffsetRange(self.rows.topic, p, first[self.rows.topic, p], ends[self.rows.topic, p])
            for p in reader.partitions(self.rows.topic)
        )
        yield from chunks(ranges, self.scheduler.context.config.apply.max_events)

    def _complete(self, count: int) -> StagingState:
        """Let the staging table end at the position of the rows."""
        rows, context = self.rows, self.scheduler.context
        base = self.staging.context.ledger.progress(self.table).mirror
        reached = HighWater(replace(self._at, server_id=rows.server_id), 0, rows.ts_ms)
        partitions = self.log.first_partitions(self.topic)
        marker = CommitMarker(
            mirror=context.config.mirror.name,
            sequence=1 if base is None else base.sequence + 1,
            batch=0,
            progress={
                self.topic: {p: PartitionProgress(offset, reached) for p, offset in self.starts.items()}
            },
            position=self._at,
            watermark_ms=rows.ts_ms,
            committed_ms=now_ms(),
            partition_counts={} if partitions is None else {self.topic: partitions},
        )
        starts = dict(self.starts)
        state = StagingState(
            self.request.id,
            "",
            None,
            rows=count,
            complete=True,
            file=rows.file,
            pos=rows.pos,
            watermark_ms=rows.ts_ms,
            until=starts,
            since=starts,
        )
        self.staging.commit(self.table, Staged(), marker, state)
        return state
