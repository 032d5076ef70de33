"""The log of a connector that goes on at a replica, whose binlog has the same transactions at other positions."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replicator.model.position import SourcePosition
from tests.oracle.model import Record


@dataclass(frozen=True)
class BinlogPlace:
    """Where a binlog has a change, and what it is."""

    file: str
    pos: int
    row: int
    gtid: str
    op: str

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.file, self.pos, self.row)


def binlog_place(record: Record) -> BinlogPlace:
    """Return where the record's change is; `op` is empty for a definition."""
    event = _payload(json.loads(record.value or b""))
    found = event["source"]
    return BinlogPlace(found["file"], found["pos"], found["row"], found["gtid"], event.get("op", ""))


@dataclass(frozen=True)
class Replicated:
    """Records with the positions of another server, and file number and offset of the end of its binlog."""

    records: list[Record]
    end: tuple[int, int]


def replicate(
    records: Sequence[Record], end: tuple[int, int], higher: int, chance: random.Random
) -> Replicated:
    """Return the records as another server has them, all in one file.

    `end` is the end of the first server's binlog. In a file with the same number, the new one ends near there.
    """
    places: dict[str, int] = {}
    pos = 4
    for record in records:
        if record.value is not None and (gtid := binlog_place(record).gtid) not in places:
            pos += chance.randint(1, 500)
            places[gtid] = pos
    file = max(1, end[0] + higher)
    used = {binlog_place(r).pos for r in records if r.value is not None}
    shift = max(0, end[1] + chance.randint(-300, 300) - pos) if higher == 0 else 0
    while used & {pos + shift for pos in places.values()}:
        shift += 1
    moved = [_moved(r, file, {gtid: pos + shift for gtid, pos in places.items()}) for r in records]
    return Replicated(moved, (file, pos + shift))


def _moved(record: Record, file: int, places: dict[str, int]) -> Record:
    if record.value is None:
        return record
    event = json.loads(record.value)
    found = _payload(event)["source"]
    found["file"], found["pos"] = f"mysql-bin.{file:06d}", places[found["gtid"]]
    return replace(record, value=json.dumps(event, separators=(",", ":")).encode())


def _payload(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = event.get("payload", event)
    return found


@dataclass(frozen=True)
class ReplicaBinlog:
    """The binlog of a server: the transaction at each position."""

    transactions: dict[tuple[str, int], str]

    @classmethod
    def of(cls, records: Iterable[Record]) -> "ReplicaBinlog":
        """Return the binlog that has these records."""
        places = [binlog_place(record) for record in records if record.value is not None]
        return cls({(place.file, place.pos): place.gtid for place in places})

    def is_compressed(self, position: SourcePosition) -> bool | None:
        return False if (position.file, position.pos) in self.transactions else None

    def has_both(self, event: SourcePosition, later: SourcePosition) -> bool | None:
        own = self.transactions.get((event.file, event.pos))
        return None if own is None else self.transactions.get((later.file, later.pos)) == own
