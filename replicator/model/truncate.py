"""TRUNCATE TABLE, and which changes it undoes.

The event has no key, so it stands on one partition of the table's topic only. There, offsets tell what came before
it; everywhere else only the source can. Where the table is in several partitions, changes from before a truncate may
thus arrive after it, and later ones before it.
"""

from dataclasses import dataclass
from typing import Any, Final

from replicator.model.position import FILE_SHIFT, SourcePosition

RESET_MS: Final = 3_600_000
"""A change that stands before a truncate in the binlog, but came so much later, is of a binlog that was reset."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """A TRUNCATE TABLE at this place of the log and of the source; `ts_ms` is the source's time."""

    partition: int
    offset: int
    position: SourcePosition
    ts_ms: int

    @property
    def hi(self) -> int:
        """File number and position, as decoded frames have them."""
        number, pos, _ = self.position.order
        return (number << FILE_SHIFT) + pos

    @property
    def lo(self) -> int:
        """The row, as decoded frames have it."""
        return self.position.row << 1

    def undoes(self, position: SourcePosition, kind: int, ts_ms: int) -> bool:
        """Whether a change of another partition (`kind` as in `HighWater`) came before it.

        Positions of two servers cannot be compared, so time has to do; snapshots name no server (0).
        """
        if self.position.server_id and position.server_id not in (0, self.position.server_id):
            return ts_ms <= self.ts_ms
        before = (*position.order, kind) < (*self.position.order, 0)
        return before and ts_ms <= self.ts_ms + RESET_MS

    def to_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "position": self.position.to_json(),
            "ts_ms": self.ts_ms,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Truncate":
        position = SourcePosition.from_json(value["position"])
        return cls(value["partition"], value["offset"], position, value["ts_ms"])


def newest(truncates: "list[Truncate]") -> Truncate | None:
    """The one that undoes all the others, of truncates of one table; None of none."""
    found: Truncate | None = None
    for truncate in truncates:
        if found is None or not found.undoes(truncate.position, 0, truncate.ts_ms):
            found = truncate
    return found
