"""The log of a connector that goes on at a replica, whose binlog has the same transactions at other positions."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
        higher: how much higher the file number of the new server is, if it is positive then; not 0, because nothing
            tells the files of two servers with the same number apart.
        chance: chooses the positions.
    """
    gtids = dict.fromkeys(binlog_place(record).gtid for record in records if record.value is not None)
    file = end[0] + (higher if end[0] + higher > 0 else 1 - higher)
    pos, places = 4, {}
    for gtid in gtids:
        pos += chance.randint(1, 500)
        places[gtid] = pos
    return Replicated([_moved(record, file, places) for record in records], (file, pos))


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
