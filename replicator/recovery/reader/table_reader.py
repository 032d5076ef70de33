"""Fill a staging table with the rows of its source table, in parts, and find the events that it must contain then.

No lock is held while rows are read. Each part is read in a statement of its own, so the parts are of different moments.
That is no problem, because every change since the start is applied to the staging table afterwards, in the order of the
log, and a change contains the whole row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, text

from replicator import failpoints
from replicator.config import Config, KafkaLog
from replicator.errors import (
    ColumnsDiffer,
    NoSuchTable,
    RowsChanged,
    SourceError,
    UnsupportedChange,
    UsageError,
)
from replicator.lake.commit import Staged
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.common import now_ms
from replicator.model.gtid import GtidSet
from replicator.model.position import SourcePosition
from replicator.model.reread import Request, StagingState
from replicator.model.table import TableId, TableSchema
from replicator.recovery.reader.commit_fence import Fence, TopicEnd, topic_ends
from replicator.recovery.reader.key_ranges import KeyRanges, first_row
from replicator.recovery.reader.part_reader import Part, PartReader
from replicator.recovery.reader.source_rows import matched_columns
from replicator.recovery.reader.staging import Staging
from replicator.recovery.reader.waits import NewPartitions, PreparedRows
from replicator.schema.history.order import binlog_key
from replicator.sources.mysql.connection import connect, read_binlog_end
from replicator.sources.mysql.replication import FILE_START, rotate_binlog
from replicator.sources.mysql.table_rows import Boundary, SourceTable, describe
from replicator.sources.mysql.throttle import OnWait, StopSignal, Throttle
from replicator.sources.source_positions import known_offset, required_positions
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_WAVES: Final = 4
"""Number of ranges for each core between two commits."""
_POLL_S: Final = 0.5
_SETTLE_S: Final = 10.0
"""How long to wait for commits under way if the account may not rotate the binlog."""
_NO_POSITION: Final = "it has no known position in the binlog yet, or takes a snapshot"


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads one table; runs in a thread of its own.

    Attributes:
        columns: the columns of the staging table.
        on_rows: called with the number of rows read so far and the estimated number.
        on_wait: called with the reason when waiting for the connector's position begins, and with None when it ends.
        throttle: decides when the next part is read.
        new_partitions: decides when the first part is read, if the topic has more partitions than before.
        prepared: decides when the first part is read, if prepared transactions have changed the table.
        stopping: if set, reading ends at the next part.
    """

    config: Config
    staging: Staging
    request: Request
    topic: str
    columns: TableSchema
    key: tuple[str, ...]
    on_rows: Callable[[int, int], None]
    on_wait: OnWait
    throttle: Throttle
    new_partitions: NewPartitions
    prepared: PreparedRows
    stopping: StopSignal

    def run(self) -> bool:
        """Read what the staging table lacks, and find out up to where the log must be applied to it.

        Return False if reading was stopped.

        Raises:
            ColumnsDiffer: the columns of the source table changed since reading began; start again.
            ReplicatorError: MySQL, Kafka, Kafka Connect or the lake failed; continue later.
        """
        state = self._state()
        if state is None and not (self._await_new_partitions() and self._await_position()):
            return False
        if state is None or not state.complete:
            with connect(self.config.source) as connection:
                state = self._read(connection, state)
        return state is not None and state.complete and (state.until is not None or self._find_end(state))

    def _state(self) -> StagingState | None:
        return self.staging.state(self.staging.load(self.request.table), self.request)

    def _await_new_partitions(self) -> bool:
        """Wait until all events written from now on are in the partition that their row has from now on.

        Return False if reading was stopped.
        """
        if not self.new_partitions.has(self._topic_end().count or 0):
            return True
        if self.new_partitions.wait(lambda: self._topic_end().count or 0, self.stopping):
            return False
        with connect(self.config.source) as connection:
            end = read_binlog_end(connection)
        # Events that the connector made before it knew the new partitions may still be on their way to the log.
        return self._await_connector(end)

    def _await_position(self) -> bool:
        """Wait until the connector reads the binlog from a known position. Return False if reading was stopped.

        Changes from before that position never arrive, so the rows must be read later. While the connector takes a
        snapshot, the topic ends in the middle of its rows.
        """
        waits, read_offset = False, self._offset_reader()
        while (offset := read_offset()) is None or offset.in_snapshot:
            if not waits:
                _LOG.info(
                    "reading waits for the connector", table=str(self.request.table), reason=_NO_POSITION
                )
                self.on_wait(_NO_POSITION)
                waits = True
            if self.stopping.wait(_POLL_S):
                return False
        if waits:
            self.on_wait(None)
        return True

    def _read(self, connection: Connection, state: StagingState | None) -> StagingState | None:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        table = self._described(connection)
        if state is None:
            state = self._begin(connection, table)
            if state is None:
                return None
        elif state.fingerprint != table.fingerprint:
            raise _changed(self.request.table)
        columns = matched_columns(table, self.columns)
        self._refuse_zero_dates(connection, table)
        plain = not connection.scalar(text("SELECT @@require_secure_transport"))
        self.on_rows(state.rows, max(table.rows, state.rows))
        with PartReader(self.config, self.staging, table, columns, may_be_plain=plain) as reader:
            return self._read_parts(connection, table, reader, state)

    def _refuse_zero_dates(self, connection: Connection, table: SourceTable) -> None:
        """Check that no key has a zero or an invalid date: the lake would have it as a date that may be another row's.

        Raises:
            UnsupportedChange: a key has one.
        """
        if (query := table.zero_date_query(self.key)) is not None and first_row(connection, query):
            raise UnsupportedChange(
                f"a key of {table.table} has a zero or invalid date (such as 0000-00-00 or 2024-02-31), which "
                "the lake cannot tell from another one",
                f"change these rows in the source, or exclude the table; then run: replicator heal {table.table}",
            )

    def _read_parts(
        self, connection: Connection, table: SourceTable, reader: PartReader, state: StagingState
    ) -> StagingState:
        """Read and commit one part after the other, until all are complete or reading must stop."""
        if self.throttle.wait(state.rows, self.stopping):
            return state
        last = state.last
        keys = None if last is None else KeyRanges.of(connection, table, last, reader.rows_per_range)
        # Only a short walk of the index comes before the first rows. With a limit, the reader waits after each part.
        current = reader.start(self._next_part(connection, keys, reader, state.after, 1))
        while True:
            part, following, upcoming = current.part, None, None
            if part.upto != last:
                waves = 1 if self.throttle.is_limited else _WAVES
                # The index is walked while this part is read, and no core waits for the commit.
                upcoming = self._next_part(connection, keys, reader, part.upto, waves)
                following = None if self.throttle.is_limited else reader.start(upcoming)
            state = self._commit_part(connection, table, state, part, current.files())
            self.on_rows(state.rows, max(table.rows, state.rows))
            if state.complete or upcoming is None or self.throttle.wait(state.rows, self.stopping):
                return state
            current = reader.start(upcoming) if following is None else following

    def _described(self, connection: Connection) -> SourceTable:
        table = describe(connection, self.request.table, self.key)
        if table is None:
            name = self.request.table
            raise NoSuchTable(
                f"the source has no table {name}", f"drop it in the lake: replicator drop {name}"
            )
        narrowed = self.request.narrowed
        return table if narrowed is None else table.part(narrowed)

    def _begin(self, connection: Connection, table: SourceTable) -> StagingState | None:
        """Note where the log ends, and from which key to which one the table is read.

        Return None if reading was stopped.
        """
        most = self.request.max_rows
        if most is not None and table.rows > most:
            raise UsageError(
                f"{table.table} has about {table.rows:,} rows, more than heal.max_rows",
                f"read it on command: replicator heal {table.table}",
            )
        if not self.key:
            # Without a key it must be known that no change is in between; see `_find_end`.
            self._await_connector(read_binlog_end(connection))
        end = self._fenced_end(connection)
        if end is None:
            return None
        if self.new_partitions.seconds_left(end.count or 0):
            raise _partitions_added(self.topic)
        low, time_ms = read_binlog_end(connection), _time_ms(connection)
        last = first_row(connection, table.last_query) if table.key else None
        state = StagingState(self.request.id, table.fingerprint, last, since=end.offsets)
        reached = HighWater(
            SourcePosition(low.file, FILE_START, server_id=_server_id(connection)), 0, time_ms
        )
        marker = CommitMarker(
            mirror=self.config.mirror.name,
            sequence=1,
            batch=0,
            progress={
                end.topic: {p: PartitionProgress(offset, reached) for p, offset in end.offsets.items()}
            },
            position=SourcePosition(low.file, low.pos),
            watermark_ms=time_ms,
            committed_ms=now_ms(),
            topic_ids={} if end.topic_id is None else {end.topic: end.topic_id},
            partition_counts=end.counts,
        )
        self.staging.commit(self.request.table, Staged(), marker, state)
        failpoints.reach("after-reread-start")
        return state

    def _fenced_end(self, connection: Connection) -> TopicEnd | None:
        """Return where the topic ended at some moment, after the rows of all events before that have become visible.

        Return None if reading was stopped.
        """
        end, prepared = self._topic_end(), self._await_prepared(connection)
        fences, server_id = self.staging.fences, _server_id(connection)
        if not prepared and (shared := self._shared(end, server_id)) is not None:
            return shared
        while True:
            began_ms, offset = now_ms(), self._offset_reader()()
            ends = topic_ends(self._log, self.topic, all_tables=True)
            # The log may have got their events since the last round, and their rows are visible only from now on.
            if not self._await_prepared(connection):
                break
            prepared = True
        if self.stopping.is_set():
            return None
        with fences.lock:
            if not prepared and (shared := self._shared(ends[self.topic], server_id)) is not None:
                return shared
            is_shared = not self.prepared.transactions.any_open()
            _await_commits(connection)
            if is_shared and offset is not None:
                reached = binlog_key(SourcePosition(offset.file, offset.pos))
                fences.newest = Fence(began_ms, server_id, ends, reached)
        return ends[self.topic]

    def _await_prepared(self, connection: Connection) -> bool:
        return self.prepared.wait(lambda: read_binlog_end(connection), self.stopping)

    def _shared(self, end: TopicEnd, server_id: int) -> TopicEnd | None:
        """Return the end of the topic at the newest fence; None if the table needs one of its own."""
        fence, read = self.staging.fences.newest, self.staging.context.ledger.progress(self.request.table)
        if fence is None or read.mirror_schema is None:
            return None
        then = fence.end_for(self.request, end, read.mirror_schema.at, server_id)
        # Without a key, no event may be in between.
        return then if self.key or then == end else None

    @property
    def _log(self) -> KafkaLog:
        if not isinstance(self.config.log, KafkaLog):
            raise UsageError(
                "an archive cannot be combined with reading the source", 'set log.kind = "kafka"'
            )
        return self.config.log

    def _topic_end(self) -> TopicEnd:
        return topic_ends(self._log, self.topic)[self.topic]

    def _commit_part(
        self,
        connection: Connection,
        table: SourceTable,
        state: StagingState,
        part: Part,
        files: Sequence[Any],
    ) -> StagingState:
        """Commit a part with the state after it, and return that."""
        state = state.advanced(part.upto, sum(int(file.recordCount()) for file in files))
        if part.upto == state.last:
            if self._described(connection).fingerprint != table.fingerprint:
                raise _changed(self.request.table)
            state = _completed(connection, state)
        failpoints.reach("before-reread-commit")
        self.staging.commit(self.request.table, Staged(files), self._next_marker(), state)
        failpoints.reach("after-reread-commit")
        return state

    def _next_marker(self) -> CommitMarker:
        marker = self.staging.context.ledger.progress(self.request.table).mirror
        if marker is None:
            raise SourceError(f"the staging table of {self.request.table} was dropped")
        return replace(marker, sequence=marker.sequence + 1, committed_ms=now_ms())

    def _next_part(
        self,
        connection: Connection,
        keys: KeyRanges | None,
        reader: PartReader,
        after: Boundary | None,
        waves: int,
    ) -> Part:
        """Return the next ranges of keys after `after`, `waves` of them for each core.

        `keys` is None if the table is read as a whole, or has no rows.
        """
        if keys is None or after == keys.last:
            # Without an index that orders the rows, they are read in one statement.
            return Part(("1 = 1",) if not reader.table.key else (), after)
        names = [f"k{i}" for i in range(len(reader.table.key))]
        ranges: list[str] = []
        for _ in range(reader.cores * waves):
            upto = keys.end(connection, after)
            ranges.append(reader.table.range_condition(names, after, upto))
            after = upto
            if upto == keys.last:
                break
        return Part(tuple(ranges), after)

    def _find_end(self, state: StagingState) -> bool:
        """Wait until the log has all changes that reading may have seen, and note where it ends then.

        Return False if reading was stopped.
        """
        end = BinlogEnd(state.file, state.pos, GtidSet.parse(state.gtids) if state.gtids else None)
        if not self._await_connector(end):
            return False
        found, marker = self._topic_end(), self._next_marker()
        until = found.offsets
        if (found.count or 0) > marker.partition_counts.get(self.topic, found.count or 0):
            raise _partitions_added(self.topic)
        if not self.key and _with_events(until) != self._begun_at():
            raise RowsChanged(
                f"rows of {self.request.table} changed while it was read, and it has no key to identify them"
            )
        marker = replace(marker, partition_counts=found.counts)
        self.staging.commit(self.request.table, Staged(), marker, replace(state, until=until))
        return True

    def _await_connector(self, end: BinlogEnd) -> bool:
        """Wait until the log has all changes before `end`. Return False if reading was stopped."""
        read_offset = self._offset_reader()
        while (offset := read_offset()) is None or not offset.covers(end):
            if self.stopping.wait(_POLL_S):
                return False
        return True

    def _offset_reader(self) -> Callable[[], ConnectorOffset | None]:
        """Return what reads the connector's offset; it returns None while that is not known.

        Raises:
            UsageError: Kafka Connect cannot be asked.
        """
        return partial(known_offset, required_positions(self.config))

    def _begun_at(self) -> Mapping[int, int]:
        """Return the end of the topic when reading began."""
        partitions = self._next_marker().progress.get(self.topic, {})
        return _with_events({partition: known.next_offset for partition, known in partitions.items()})


def _with_events(ends: Mapping[int, int]) -> dict[int, int]:
    """Return the ends of the partitions that have, or had, events."""
    return {partition: end for partition, end in ends.items() if end}


def _await_commits(connection: Connection) -> None:
    """Wait until all transactions in the binlog are visible to readers."""
    if not rotate_binlog(connection, _SETTLE_S):
        _LOG.warning(
            "waited for commits under way, because the account may not rotate the binlog",
            seconds=_SETTLE_S,
            next="GRANT RELOAD to the account of source.url",
        )


def _completed(connection: Connection, state: StagingState) -> StagingState:
    """Return the state after the last row was read: with the end of the binlog."""
    end = read_binlog_end(connection)
    return replace(
        state,
        complete=True,
        file=end.file,
        pos=end.pos,
        gtids=None if end.gtids is None else str(end.gtids),
        watermark_ms=_time_ms(connection),
    )


def _server_id(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT @@server_id")))


def _time_ms(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")))


def _partitions_added(topic: str) -> RowsChanged:
    return RowsChanged(f"partitions were added to {topic} while its table was read")


def _changed(table: TableId) -> ColumnsDiffer:
    return ColumnsDiffer(f"the columns of {table} changed while it was read")
