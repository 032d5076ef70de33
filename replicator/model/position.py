"""Positions in the source's binlog."""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Annotated, Final

from pydantic import AfterValidator

from replicator.model.recorded import Count, Part

FILE_SHIFT: Final = 40
"""Bits of a position key for the offset in the file: 1 TiB, more than MySQL writes. The file number has the others."""

MOST_POS: Final = (1 << FILE_SHIFT) - 1
"""The largest offset that fits into a position key."""
MOST_FILES: Final = (1 << 63 - FILE_SHIFT) - 1
"""The largest file number that fits into a position key."""

_MOST_DIGITS: Final = len(str(MOST_FILES))

LAST_MS: Final = 253_402_300_799_999
"""The latest valid source time: the end of the year 9999, milliseconds since the epoch."""

_IGNORED: Final = "".join(map(chr, range(33))) + "\x7f"
"""Characters that Spark ignores around a number when it casts text."""
_NUMBER: Final = re.compile("[+-]?[0-9]+")


def binlog_number(file: str) -> int:
    """Return the number of a binlog file: ``mysql-bin.1000000`` is 1000000 and follows ``.999999``.

    File names must never be compared as strings, because the number outgrows its padding. MySQL writes digits only.
    This function also accepts what Spark's cast to a number accepts (blanks around the number, a sign): both sides must
    accept the same events, and checking the text of each event takes Spark longer than the cast.

    Raises:
        ValueError: the name does not end in a number from 0 to `MOST_FILES`.
    """
    text = file.rsplit(".", 1)[-1].strip(_IGNORED)
    # Python refuses to convert thousands of digits, even if most of them are padding.
    digits = text.lstrip("+-").lstrip("0") or "0"
    valid = _NUMBER.fullmatch(text) and len(digits) <= _MOST_DIGITS
    number = int(digits) if valid else 0
    if not valid or number > MOST_FILES or (text.startswith("-") and number):
        raise ValueError(f"not a binlog file name: {file[:100]!r}")
    return number


def place_order(place: tuple[str, int]) -> tuple[int, int]:
    """Return what orders places of one server's binlog, which are the name of a file and an offset."""
    return binlog_number(place[0]), place[1]


def checked_name(file: str) -> str:
    """Return the name of a binlog file. Raises ValueError if it is none."""
    binlog_number(file)
    return file


@total_ordering
@dataclass(frozen=True, slots=True)
class SourcePosition(Part):
    """The position of a change in the source's binlog.

    Positions of one server are ordered by file number, offset in the file, and row. GTID and server id are kept for
    messages and for failover; they do not affect the order.

    Attributes:
        file: name of the binlog file.
        pos: byte offset of the event in the file.
        row: index of the row in the event.
        server_id: the server that wrote the event; 0 during a snapshot.
        gtid: the transaction's GTID, if the source has GTIDs.
    """

    WHAT = "a position"
    file: Annotated[str, AfterValidator(lambda file: file and checked_name(file))]
    pos: Count
    row: Count = 0
    server_id: Count = 0
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


@dataclass(frozen=True, slots=True, order=True)
class PackedPosition:
    """A binlog position as two integers, which order the events of one server. Both fit into a signed long.

    Spark expressions of the same layout are in `jvm.position_columns`.

    Attributes:
        position_key: number of the binlog file, then byte offset in the file (`FILE_SHIFT` bits).
        row_key: index of the row in the event, then kind (1 bit): 0 for a delete or truncate, 1 for any other change.
            A key update sends a delete and a create from one row.
    """

    position_key: int
    row_key: int

    @classmethod
    def pack(cls, position: SourcePosition, kind: int = 0) -> "PackedPosition":
        """Return the packed form of a position."""
        number, pos, row = position.order
        return cls((number << FILE_SHIFT) + pos, row << 1 | kind)

    @property
    def file_number(self) -> int:
        """Number of the binlog file."""
        return self.position_key >> FILE_SHIFT

    @property
    def row(self) -> int:
        """Index of the row in the event."""
        return self.row_key >> 1

    @property
    def kind(self) -> int:
        """0 for a delete or truncate, 1 for any other change."""
        return self.row_key & 1

    def unpack(self, file: str | None = None, server_id: int = 0, gtid: str | None = None) -> SourcePosition:
        """Return the position. If `file` is not the file of its number, `*` stands for the unknown base name."""
        known = file is not None and binlog_number(file) == self.file_number
        name = file if known and file is not None else f"*.{self.file_number:06d}"
        return SourcePosition(name, self.position_key & MOST_POS, self.row, server_id, gtid)
