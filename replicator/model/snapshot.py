"""Snapshots of whole tables, and TRUNCATE TABLE: both replace all rows of a table.

The event of a TRUNCATE has no key, so it is in only one partition of the table's topic, where offsets order it against
changes. Nothing orders it against those of other partitions for certain: a table whose topic has several is read again.

All rows of one snapshot (op r) carry the binlog position at which it read the database, so the position identifies the
snapshot. If another one has the same position, because nothing was written in between or because it is of another
server, the marks of the first and last rows and the times tell them apart: Debezium gives all rows of a table one time.

A connector makes a new snapshot if its initial one was interrupted or if it lost its offsets. Rows that the table had
before and that the new snapshot does not contain were deleted from the source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.recorded import Long, Part


@dataclass(frozen=True, slots=True)
class Truncate(Part):
    """A TRUNCATE TABLE: its partition and offset, its position, and the source time in milliseconds since the epoch."""

    WHAT = "a truncate"
    partition: Long
    offset: Long
    position: SourcePosition
    ts_ms: Long

    @property
    def position_key(self) -> int:
        """File number and offset, packed as in decoded frames."""
        return PackedPosition.pack(self.position).position_key


@dataclass(frozen=True, slots=True)
class SnapshotRead(Part):
    """One snapshot of a table.

    Attributes:
        position: the binlog position of its rows.
        ts_ms: the source time of its rows, milliseconds since the epoch.
        starts: partition → offset of its first row.
        end: partition and offset of its last row; None until that was observed.
        replaces_rows: of earlier versions: whether rows from before the snapshot must still be deleted.
        has_first: whether this part of it has the row that is marked as the first one; not kept in markers.
    """

    WHAT = "a snapshot"
    position: SourcePosition
    ts_ms: int
    starts: Mapping[int, int]
    end: tuple[int, int] | None = None
    replaces_rows: Annotated[bool, Field(alias="anew")] = False
    has_first: Annotated[bool, Field(exclude=True)] = field(default=False, compare=False)

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

    def begins(self) -> list[Truncate]:
        """Return its beginning in each partition, as a truncate of the table."""
        return [
            Truncate(p, offset - 1, self.position, self.ts_ms) for p, offset in sorted(self.starts.items())
        ]

    def continued_by(self, other: "SnapshotRead") -> "SnapshotRead":
        """Merge `other`, which has later rows of the same snapshot."""
        starts = {**other.starts, **self.starts}
        return replace(self, starts=starts, end=self.end or other.end)
