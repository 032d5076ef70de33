"""TRUNCATE TABLE, and the changes that it undoes.

The event has no key, so it is in only one partition of the table's topic. In that partition, offsets order it against
changes; in the others, only GTIDs, positions and times of the source do. With several partitions, changes from before a
truncate may thus arrive after it, and later ones before it.
"""

from dataclasses import dataclass
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
