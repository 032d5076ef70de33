"""Places in the source's binlog."""

from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

FILE_SHIFT: Final = 40
"""Where a file's number and a position in it share one long: bits for the position, 1 TiB, more than MySQL writes."""


def binlog_number(file: str) -> int:
    """The number of a binlog file: ``mysql-bin.1000000`` is 1000000 and follows ``.999999``.

    Names never compare as strings, because the number outgrows its padding.

    Raises:
        ValueError: the name does not end in a number.
    """
    return int(file.rsplit(".", 1)[-1])


@total_ordering
@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where in the source's log a change stands.

    Positions of one server order by file number, position in the file and row; the GTID and
    the server are carried along for people and for failover, and do not take part in the order.

    Attributes:
        file: binlog file name, as the server has it.
        pos: offset of the event in that file, bytes.
        row: index of the row inside the event.
        server_id: the server that wrote the event; 0 during a snapshot.
        gtid: the transaction's GTID, where the source has them.
    """

    file: str
    pos: int
    row: int = 0
    server_id: int = 0
    gtid: str | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        return (binlog_number(self.file) if self.file else 0, self.pos, self.row)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, SourcePosition):
            return NotImplemented
        return self.order < other.order

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourcePosition) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)

    def __str__(self) -> str:
        at = f"{self.file}:{self.pos}" + (f"/{self.row}" if self.row else "")
        return f"{at} ({self.gtid})" if self.gtid else at

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "pos": self.pos,
            "row": self.row,
            "server_id": self.server_id,
            "gtid": self.gtid,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SourcePosition":
        return cls(value["file"], value["pos"], value["row"], value["server_id"], value["gtid"])
