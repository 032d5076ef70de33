"""Order events and schema changes of one table, also if they were written to the binlogs of several servers.

Positions order the events of one binlog only. After a fail-over, the connector reads the binlog of another server,
whose files may have lower numbers. So an event is compared with the beginning of a schema version as follows:

1. If both transactions were first committed on the same server, their numbers in their GTIDs decide. The members of a
   replication group share the origin of their GTIDs, so both numbers must be in one block of it.
2. If they were committed on different servers, source times decide, unless they are at most `CLOCK_MS` apart: then both
   are probably in one binlog, as in circular replication, and positions decide.
3. Without GTIDs, positions decide, unless the event is more than `RESET_MS` later: then the binlog was reset, or a
   snapshot read another server in between.

Rows of an initial snapshot have no GTID. They belong to the version that its definition shows, even if their position
is before that of the version's statement, because another server executed it.

Events keep the GTID and time of their first commit when they are replicated. Expressions of the same rules for Spark
are in `decode.version_ranges`.
"""

from dataclasses import dataclass
from typing import Final

from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.truncate import RESET_MS

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
        read_at: the `binlog_key` of each initial snapshot that has this version's rows at a position before `key`.
    """

    key: int
    gtid: str | None = None
    ts_ms: int = 0
    read_at: frozenset[int] = frozenset()

    @property
    def transaction(self) -> Transaction | None:
        """The parts of `gtid`."""
        return Transaction.parse(self.gtid)

    def is_before(self, position: SourcePosition, ts_ms: int) -> bool:
        """Return whether an event at `position`, with source time `ts_ms` (0 if unknown), belongs to this version."""
        if self.read_at and not position.server_id and binlog_key(position) in self.read_at:
            return True
        own, other = self.transaction, Transaction.parse(position.gtid)
        if own is not None and other is not None and own.line == other.line:
            return other.number >= own.number
        here = binlog_key(position) >= self.key
        if not self.ts_ms or not ts_ms:
            return here
        if own is None or other is None:
            return here or ts_ms > self.ts_ms + RESET_MS
        return here if abs(ts_ms - self.ts_ms) <= CLOCK_MS else ts_ms > self.ts_ms


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
