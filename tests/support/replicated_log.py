"""The log of a connector that goes on at a replica, whose binlog has the same transactions at other positions."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replicator.model.position import SourcePosition, binlog_number
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

    Args:
        records: as the first server has them.
        end: the end of the first server's binlog.
        higher: how much higher the file number of the new server is. If it is the same, each transaction of that file
            is at a lower position there: if it were at a higher one, nothing would tell whether it came again.
        chance: chooses the positions.
    """
    gtids = dict.fromkeys(binlog_place(record).gtid for record in records if record.value is not None)
    file = max(1, end[0] + higher)
    places = _nearby(records, list(gtids), file, chance) if higher == 0 else None
    if places is None:
        file, pos, places = file + (higher == 0), 4, {}
        for gtid in gtids:
            pos += chance.randint(1, 500)
            places[gtid] = pos
    moved = [_moved(record, file, places) for record in records]
    return Replicated(moved, (file, max(places.values(), default=4)))


def _nearby(
    records: Sequence[Record], gtids: Sequence[str], file: int, chance: random.Random
) -> dict[str, int] | None:
    """Return positions below those that transactions have in a file; None if there is no room for them."""
    name = f"mysql-bin.{file:06d}"
    known = {p.gtid: p.pos for r in records if r.value is not None if (p := binlog_place(r)).file == name}
    earlier = {gtid: 4 + i for i, gtid in enumerate(g for g in gtids if g not in known)}
    room = min(known.values(), default=0) - 4 - len(earlier)
    for less in chance.sample(range(1, room), min(20, room - 1)) if room > 1 else ():
        if not {pos - less for pos in known.values()} & set(known.values()):
            return earlier | {gtid: pos - less for gtid, pos in known.items()}
    return None


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
    """The binlog of a server: the transaction at each position, by the number of the file."""

    transactions: dict[tuple[int, int], str]

    @classmethod
    def of(cls, records: Iterable[Record]) -> "ReplicaBinlog":
        """Return the binlog that has these records."""
        places = [binlog_place(record) for record in records if record.value is not None]
        return cls({(binlog_number(place.file), place.pos): place.gtid for place in places})

    def is_compressed(self, position: SourcePosition) -> bool | None:
        return None if self._transaction(position) is None else False

    def has_both(self, event: SourcePosition, later: SourcePosition) -> bool | None:
        own = self._transaction(event)
        return None if own is None else self._transaction(later) == own

    def _transaction(self, position: SourcePosition) -> str | None:
        # The mirror does not always know the name of a file.
        return self.transactions.get((binlog_number(position.file), position.pos))
