"""Snapshots that read a whole table, as far as the log has told of them.

All rows of one snapshot (op r) carry the binlog position at which it read the database, so the position tells one
snapshot from another. A connector whose initial snapshot was broken off makes a new one, and one that lost its
offsets too. What the table held before, and the new snapshot does not send, is gone from the source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replicator.model.position import SourcePosition
from replicator.model.truncate import Truncate


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """One snapshot of a table.

    Attributes:
        position: the binlog position that its rows carry.
        ts_ms: the source's time in them, milliseconds since the epoch.
        starts: partition → offset of its first row there.
        end: partition and offset of its last row; None while that was not seen.
        anew: whether the table held something before, of which the rows that the snapshot does not send have yet to go.
    """

    position: SourcePosition
    ts_ms: int
    starts: Mapping[int, int]
    end: tuple[int, int] | None = None
    anew: bool = False

    @property
    def is_initial(self) -> bool:
        """Whether it read every row there was. An ad-hoc one may read some only; it knows the server's id."""
        return self.position.server_id == 0

    def is_of(self, other: "SnapshotRead | None") -> bool:
        """Whether both are parts of one snapshot."""
        return other is not None and self.position == other.position

    def begins(self) -> Truncate:
        """Its beginning as something that empties the table."""
        partition, offset = min(self.starts.items())
        # Its time has whole seconds.
        return Truncate(partition, offset - 1, self.position, self.ts_ms + 999)

    def continued_by(self, other: "SnapshotRead") -> "SnapshotRead":
        """What is known of the snapshot when `other` (later rows of the same one) was seen too."""
        starts = {**other.starts, **self.starts}
        return replace(self, starts=starts, end=self.end or other.end)

    def to_json(self) -> dict[str, Any]:
        return {
            "position": self.position.to_json(),
            "ts_ms": self.ts_ms,
            "starts": {str(partition): offset for partition, offset in self.starts.items()},
            "end": None if self.end is None else list(self.end),
            "anew": self.anew,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SnapshotRead":
        return cls(
            SourcePosition.from_json(value["position"]),
            value["ts_ms"],
            {int(partition): offset for partition, offset in value["starts"].items()},
            None if value["end"] is None else (value["end"][0], value["end"][1]),
            value["anew"],
        )


def follow(
    known: SnapshotRead | None,
    read: Sequence[SnapshotRead],
    *,
    filled: bool,
    furthest: SourcePosition | None,
    at_once: bool,
) -> tuple[SnapshotRead | None, list[SnapshotRead]]:
    """The snapshot that a table follows after a batch, and those that replace in it what was there before.

    Args:
        known: the one that it followed before the batch.
        read: the snapshots that the batch has rows of, in order.
        filled: whether the table may hold something that is not of `known`.
        furthest: the furthest position of the batch; behind a snapshot's, it tells that it has ended.
        at_once: what was there goes when a snapshot begins, not when it ends.
    """
    replacing: list[SnapshotRead] = []

    def settled(snapshot: SnapshotRead) -> SnapshotRead:
        over = furthest is not None and furthest > snapshot.position
        if not snapshot.anew or not (at_once or over or snapshot.end is not None):
            return snapshot
        replacing.append(snapshot)
        return replace(snapshot, anew=False)

    for snapshot in read:
        if snapshot.is_initial:
            newer = replace(snapshot, anew=filled or known is not None)
            known = known.continued_by(snapshot) if known is not None and snapshot.is_of(known) else newer
            known = settled(known)
    return None if known is None else settled(known), replacing
