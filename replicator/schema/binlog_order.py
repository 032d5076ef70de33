"""Orders events and schema changes of one table, also if they were written to the binlogs of several servers.

Positions order the events of one binlog only. After a fail-over, the connector reads the binlog of another server,
whose files may have lower numbers. So an event is compared with the beginning of a schema version as follows:

1. If both have GTIDs of one origin and block of numbers, the numbers decide. The members of a replication group share
   an origin, and each has its own blocks.
2. If both have GTIDs, but of another origin or block, source times decide, unless they are at most `CLOCK_MS` apart:
   then both are probably in one binlog, as in circular replication, and positions decide.
3. If one of them has no GTID, positions decide, unless the event is more than `RESET_MS` later: then the binlog was
   reset, or a snapshot read another server in between.

If a source time is unknown, rules 2 and 3 compare positions.

Rows of an initial snapshot have no GTID. They belong to the version that its definition shows, wherever another server
executed other statements. Later changes without GTIDs in the same server's binlog belong to that version or a later
one.

Replicated events keep their GTID and the time of their statement. Expressions of the same rules for Spark are in
`decode.version_ranges`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.truncate import RESET_MS, SKEW_MS

CLOCK_MS: Final = 1_000
"""Maximum difference of the clocks of two servers; source times may be rounded to seconds."""


def binlog_key(position: SourcePosition) -> int:
    """Pack file number and offset of a position into one number, which orders events of one server."""
    return PackedPosition.pack(position).position_key


class SnapshotPlace(NamedTuple):
    """The `binlog_key` of an initial snapshot, and its time (ms since the epoch) by the clock of Kafka Connect."""

    key: int
    ts_ms: int

    def first_row_ms(self, earlier: "SnapshotPlace") -> int:
        """Return after which source time rows are of this snapshot, and not of an `earlier` one at the same position.

        The times of rows are those of MySQL's clock, in whole seconds.
        """
        return self.ts_ms - min(SKEW_MS, (self.ts_ms - earlier.ts_ms) // 2)


def first_rows_at(places: Iterable[SnapshotPlace], key: int) -> list[tuple[SnapshotPlace, int]]:
    """Return the snapshots at one position, oldest first, each with the source time after which rows are of it."""
    found = sorted(place for place in places if place.key == key)
    later = [(place, place.first_row_ms(earlier)) for earlier, place in pairwise(found)]
    return [*((place, 0) for place in found[:1]), *later]


def snapshot_of(places: Iterable[SnapshotPlace], key: int, ts_ms: int) -> SnapshotPlace | None:
    """Return the snapshot of a row with a `binlog_key` and a source time (0 if unknown); None if it is of none."""
    rows = first_rows_at(places, key)
    return next((place for place, first_ms in reversed(rows) if not ts_ms or ts_ms > first_ms), None)


@dataclass(frozen=True, slots=True)
class VersionStart:
    """The beginning of a schema version.

    Attributes:
        key: its `binlog_key`.
        gtid: the transaction of the statement; None if there was none, or for a snapshot.
        ts_ms: the source time, milliseconds since the epoch; 0 if unknown.
        reads: the initial snapshots that showed this version.
        read_before: the initial snapshots from before this version.
    """

    key: int
    gtid: str | None = None
    ts_ms: int = 0
    reads: frozenset[SnapshotPlace] = frozenset()
    read_before: frozenset[SnapshotPlace] = frozenset()

    @property
    def transaction(self) -> Transaction | None:
        """The parts of `gtid`."""
        return Transaction.parse(self.gtid)

    def is_before(self, position: SourcePosition, ts_ms: int) -> bool:
        """Return whether this version begins before an event, which belongs to it or to a later one.

        `position` is that of the event, and `ts_ms` its source time, 0 if unknown.
        """
        key = binlog_key(position)
        if not position.server_id:
            snapshot = snapshot_of(self.reads | self.read_before, key, ts_ms)
            if snapshot is not None:
                return snapshot in self.reads
        own, other = self.transaction, Transaction.parse(position.gtid)
        if own is not None and other is not None and own.line == other.line:
            return other.number >= own.number
        here = key >= self.key
        if not self.ts_ms or not ts_ms:
            return here
        if own is None or other is None:
            return here or ts_ms > self.ts_ms + RESET_MS or self._follows_snapshot(key, ts_ms)
        return here if abs(ts_ms - self.ts_ms) <= CLOCK_MS else ts_ms > self.ts_ms

    def _follows_snapshot(self, key: int, ts_ms: int) -> bool:
        return any(key >= read.key and ts_ms > self.first_ms_after(read) for read in self.earliest_reads)

    @property
    def earliest_reads(self) -> list[SnapshotPlace]:
        """Those of `reads` than which no other one is earlier, or equal, both by position and by time."""
        found: list[SnapshotPlace] = []
        for read in sorted(self.reads):
            if not found or read.ts_ms < found[-1].ts_ms:
                found.append(read)
        return found

    def first_ms_after(self, read: SnapshotPlace) -> int:
        """Return the source time after which changes without GTIDs follow a snapshot in its server's binlog.

        The clocks of MySQL and Kafka Connect differ. The time of this version's statement is that when it began. The
        other server may have written changes until it ended.
        """
        return max(self.ts_ms, read.ts_ms - SKEW_MS)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a range of schema versions begins or ends in the log.

    Attributes:
        at: the `SchemaVersion.at` of the version that begins there.
        starts: the beginning of that version and of all later ones. An event is past the boundary if it is past any of
            them, so that each event belongs to exactly one version.
    """

    at: int
    starts: tuple[VersionStart, ...]
