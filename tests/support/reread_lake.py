"""Read a table of a model source again, in parts at different moments, as the engine reads one of MySQL."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from replicator.lake.commit import Staged
from replicator.lake.files.data_files import cast_to_table, stage_data
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.reread import Request, StagingState
from replicator.model.types import spark_sql_name
from replicator.recovery.reader.staging import Staging
from replicator.recovery.table_reread import TableReread
from replicator.runner.scheduler import Scheduler
from replicator.telemetry import Stopwatch
from tests.oracle.compare import lake_value
from tests.oracle.model import Source, SourceTable


@dataclass(frozen=True)
class Moment:
    """The state of a source between two transactions, and the number of records that its log has then."""

    records: int
    tables: Mapping[str, SourceTable]


@dataclass
class Moments:
    """Executes the transactions of a source one by one, and keeps its state after each."""

    source: Source
    seen: list[Moment] = field(default_factory=list)

    def run(self, transactions: int) -> None:
        for _ in range(transactions):
            self.source.run(1)
            self.note()

    def note(self) -> None:
        tables = {table.name: copy.deepcopy(table) for table in self.source.tables}
        self.seen.append(Moment(len(self.source.records), tables))


@dataclass(frozen=True)
class LakeReread:
    """The re-read of one table by a mirror process; `began` has the position and time of the newest change then."""

    mirror: Scheduler
    table: SourceTable
    request: Request
    began: tuple[str, int, int]

    @property
    def reread(self) -> TableReread:
        staging = Staging.of(self.mirror.context)
        return TableReread(self.mirror.context, staging, self.request, self.table.topic, lambda _: None)

    def read(self, parts: Sequence[SourceTable], *, ends: Mapping[int, int] | None = None) -> None:
        """Fill the staging table: part number i of the keys is read from `parts[i]`.

        `ends` is where the log ended when that began, if that is not where it ends now.
        """
        context, table = self.mirror.context, self.request.table
        reread, staging = self.reread, Staging.of(self.mirror.context)
        staging.create(table, staging.schema(reread.task(())))
        ends = self.ends() if ends is None else ends
        file, pos, ts_ms = self.began
        reached = HighWater(SourcePosition(file, pos, server_id=1), 1, ts_ms)
        marker = CommitMarker(
            mirror=context.config.mirror.name,
            sequence=1,
            batch=0,
            progress={self.table.topic: {p: PartitionProgress(end, reached) for p, end in ends.items()}},
            position=SourcePosition(file, pos),
            watermark_ms=1,
            committed_ms=1,
        )
        state = StagingState(self.request.id, "", None, since=ends)
        staging.commit(table, Staged(), marker, state)
        for number, part in enumerate(parts):
            rows = [row for key, row in part.rows.items() if _part_of(key, len(parts)) == number]
            lake_table = staging.load(table)
            assert lake_table is not None
            known = staging.context.ledger.progress(table).mirror
            assert known is not None
            columns = lake_table.columns()
            kinds = {c.name: c.kind for c in part.columns}
            values = [tuple(lake_value(kinds[name], row[name]) for name in columns) for row in rows]
            schema = ", ".join(f"`{n.replace('`', '``')}` {spark_sql_name(t)}" for n, t in columns.items())
            frame = cast_to_table(context.spark.createDataFrame(values, schema), columns)
            files = stage_data(staging.context.lake, lake_table, frame) if rows else []
            state = state.advanced(("0",), len(rows))
            staging.commit(table, Staged(files), _following(known), state)

    def complete(self) -> None:
        """Note the end of the log, which has everything that reading has seen."""
        staging, table = Staging.of(self.mirror.context), self.request.table
        state = staging.state(staging.load(table), self.request)
        known = staging.context.ledger.progress(table).mirror
        assert state is not None
        assert known is not None
        done = replace(state, complete=True, until=self.ends(), watermark_ms=2)
        staging.commit(table, Staged(), _following(known), done)

    def publish(self) -> int:
        """Apply the events that the staging table lacks, and publish it. Returns the number of changed rows."""
        reread = self.reread
        if reread.is_published():
            reread.finish_published()
        else:
            first = self.mirror.context.log.offsets()[0].get(self.table.topic, {})
            while not reread.catch_up(first, 25, Stopwatch()):
                pass
            reread.publish()
        return reread.request.changed or 0

    def ends(self) -> dict[int, int]:
        return dict(self.mirror.context.log.offsets()[1].get(self.table.topic, {}))


def _following(marker: CommitMarker) -> CommitMarker:
    return replace(marker, sequence=marker.sequence + 1)


def _part_of(key: object, parts: int) -> int:
    """Return the part that a key belongs to, at whatever moment it is read."""
    return sum(repr(key).encode()) % parts
