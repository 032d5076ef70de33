"""Snapshots of whole tables, and TRUNCATE TABLE: both replace all rows of a table.

The event of a TRUNCATE has no key, so it is in only one partition of the table's topic. In that partition, offsets
order it against changes; in the others, only GTIDs, positions and times of the source do. With several partitions,
changes from before a truncate may thus arrive after it, and later ones before it.

All rows of one snapshot (op r) carry the binlog position at which it read the database, so the position identifies the
snapshot. If another one has the same position, because nothing was written in between or because it is of another
server, the marks of the first and last rows and the times tell them apart: Debezium gives all rows of a table one time.

A connector makes a new snapshot if its initial one was interrupted or if it lost its offsets. Rows that the table had
before and that the new snapshot does not contain were deleted from the source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.recorded import Long, recorded

RESET_MS: Final = 3_600_000
"""If a change lies before a truncate in the binlog, but is this much later (ms), the binlog was reset in between."""
SKEW_MS: Final = 60_000
"""The same for a snapshot, which has no server id: the change may be in the binlog of another server. Clocks differ."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """A TRUNCATE TABLE: its partition and offset, its position, and the source time in milliseconds since the epoch."""

    partition: Long
    offset: Long
    position: SourcePosition
    ts_ms: Long

    @property
    def last_ms(self) -> int:
        """The latest source time of a change that lies before it in the binlog."""
        return self.ts_ms + (RESET_MS if self.position.server_id else SKEW_MS)

    @property
    def position_key(self) -> int:
        """File number and offset, packed as in decoded frames."""
        return PackedPosition.pack(self.position).position_key

    @property
    def row_key(self) -> int:
        """The row number, packed as in decoded frames."""
        return PackedPosition.pack(self.position).row_key

    def undoes(self, position: SourcePosition, kind: int, ts_ms: int) -> bool:
        """Return whether a change in another partition (`kind` as in `HighWater`) happened before it.

        Transactions of one origin are compared by their numbers: after a fail-over, their positions may be those of two
        servers. Positions of two servers cannot be compared, so times are; snapshot rows have server id 0.
        """
        own, other = Transaction.parse(self.position.gtid), Transaction.parse(position.gtid)
        if own is not None and other is not None and own.line == other.line and own != other:
            return other.number < own.number and ts_ms <= self.last_ms
        if self.position.server_id and position.server_id not in (0, self.position.server_id):
            return ts_ms <= self.ts_ms
        before = (*position.order, kind) < (*self.position.order, 0)
        return before and ts_ms <= self.last_ms

    def to_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "position": self.position.to_json(),
            "ts_ms": self.ts_ms,
        }

    @classmethod
    @recorded("a commit marker")
    def from_json(cls, value: dict[str, Any]) -> "Truncate":
        position = SourcePosition.from_json(value["position"])
        return cls(value["partition"], value["offset"], position, value["ts_ms"])


def newest(truncates: "list[Truncate]") -> Truncate | None:
    """Return the truncate that undoes all others of the same table; None if `truncates` is empty."""
    found: Truncate | None = None
    for truncate in truncates:
        if found is None or not found.undoes(truncate.position, 0, truncate.ts_ms):
            found = truncate
    return found


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """One snapshot of a table.

    Attributes:
        position: the binlog position of its rows.
        ts_ms: the source time of its rows, milliseconds since the epoch.
        starts: partition → offset of its first row.
        end: partition and offset of its last row; None until that was observed.
        replaces_rows: of earlier versions: whether rows from before the snapshot must still be deleted.
        has_first: whether this part of it has the row that is marked as the first one; not kept in markers.
    """

    position: SourcePosition
    ts_ms: int
    starts: Mapping[int, int]
    end: tuple[int, int] | None = None
    replaces_rows: bool = False
    has_first: bool = field(default=False, compare=False)

    @property
    def is_initial(self) -> bool:
        """Whether it read all rows. An ad-hoc snapshot may read a part; its rows have the server's id."""
        return self.position.server_id == 0

    def is_of(self, other: "SnapshotRead | None") -> bool:
        """Return whether this is a later part of the snapshot `other`."""
        if other is None or self.position != other.position:
            return False
        ended_twice = self.end is not None and other.end is not None and self.end != other.end
        return not (self.ts_ms > other.ts_ms and (self.has_first or ended_twice))

    def begins(self) -> Truncate:
        """Return its beginning as a truncate of the table."""
        partition, offset = min(self.starts.items())
        # The source time of a snapshot has whole seconds only.
        return Truncate(partition, offset - 1, self.position, self.ts_ms + 999)

    def continued_by(self, other: "SnapshotRead") -> "SnapshotRead":
        """Merge `other`, which has later rows of the same snapshot."""
        starts = {**other.starts, **self.starts}
        return replace(self, starts=starts, end=self.end or other.end)

    def to_json(self) -> dict[str, Any]:
        return {
            "position": self.position.to_json(),
            "ts_ms": self.ts_ms,
            "starts": {str(partition): offset for partition, offset in self.starts.items()},
            "end": None if self.end is None else list(self.end),
            "anew": self.replaces_rows,
        }

    @classmethod
    @recorded("a commit marker")
    def from_json(cls, value: dict[str, Any]) -> "SnapshotRead":
        return cls(
            SourcePosition.from_json(value["position"]),
            value["ts_ms"],
            {int(partition): offset for partition, offset in value["starts"].items()},
            None if value["end"] is None else (value["end"][0], value["end"][1]),
            value["anew"],
        )
