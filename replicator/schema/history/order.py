"""Orders events and schema changes of one table within an epoch.

An epoch is the stretch of a table's events that follows one initial snapshot of the connector; see `batch.plan.epochs`.
Within it, an event is compared with the beginning of a schema version as follows:

1. If both have GTIDs of one origin and block of numbers, the numbers decide. A replica keeps the GTIDs of what it
   replicates, and the members of a replication group share an origin, and each has its own blocks.
2. If both have GTIDs, but of another origin or block, source times decide, unless they are at most `CLOCK_MS` apart:
   then both are probably in one binlog, as in circular replication, and positions decide. Nothing else tells; see
   decision 53.
3. If one of them has no GTID, positions decide.

Rows of an initial snapshot belong to no later version than its definition, whatever other servers have executed.

The same rules for arrays of events are in `decode.schemas.versions`.
"""

from dataclasses import dataclass
from typing import Final

from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition

CLOCK_MS: Final = 1_000
"""Maximum difference of the clocks of two servers; source times may be rounded to seconds."""


def binlog_key(position: SourcePosition) -> int:
    """Pack file number and offset of a position into one number, which orders events of one server."""
    return PackedPosition.pack(position).position_key


@dataclass(frozen=True, slots=True)
class VersionStart:
    """The beginning of a schema version.

    Attributes:
        key: its `binlog_key`.
        gtid: the transaction of the statement; None if there was none, or for a snapshot.
        ts_ms: the source time, milliseconds since the epoch; 0 if unknown.
        read_before: the `binlog_key` of each initial snapshot that showed an earlier version.
    """

    key: int
    gtid: str | None = None
    ts_ms: int = 0
    read_before: frozenset[int] = frozenset()

    @property
    def transaction(self) -> Transaction | None:
        """The parts of `gtid`."""
        return Transaction.parse(self.gtid)

    def is_before(self, position: SourcePosition, ts_ms: int, *, is_row: bool = False) -> bool:
        """Return whether this version begins before an event, which belongs to it or to a later one.

        `position` is that of the event, and `ts_ms` its source time, 0 if unknown; `is_row` says that it is a row of an
        initial snapshot.
        """
        key = binlog_key(position)
        here = key >= self.key
        if is_row:
            return here and key not in self.read_before
        own, other = self.transaction, Transaction.parse(position.gtid)
        if own is None or other is None:
            return here
        if own.line == other.line:
            return other.number >= own.number
        if not self.ts_ms or not ts_ms or abs(ts_ms - self.ts_ms) <= CLOCK_MS:
            return here
        return ts_ms > self.ts_ms


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
