"""Moments of the source: those that a mirror is rebuilt as of, and the range of an archive that a replay applies."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from replicator.model.position import (
    FILE_SHIFT,
    PackedPosition,
    SourcePosition,
    binlog_number,
)

_POSITION: Final = re.compile(r"(?P<file>[^:/\s]*\.\d+):(?P<pos>\d+)(?:/(?P<row>\d+))?")
_GTID: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?::[a-z_]\w*)?:\d+")


@dataclass(frozen=True, slots=True)
class Bound:
    """A position in the binlog; changes at it are still before it.

    Attributes:
        position_key: file number and offset, packed as in decoded frames.
        row: the last row of the event at the position that counts; None if all count.
    """

    position_key: int
    row: int | None = None

    def is_before(self, position: SourcePosition) -> bool:
        """Return whether a change at `position`, or at a later one, is the last one that counts, or a later one."""
        packed = PackedPosition.pack(position)
        if packed.position_key != self.position_key:
            return packed.position_key > self.position_key
        return self.row is None or packed.row >= self.row

    def excludes(self, position_key: int, row: int) -> bool:
        """Return whether a change at a position is from after the last one that counts."""
        if position_key != self.position_key:
            return position_key > self.position_key
        return self.row is not None and row > self.row

    @property
    def text(self) -> str:
        """The position; of the file's name only the number is known, which is all that orders files."""
        at = PackedPosition(self.position_key, (self.row or 0) << 1).unpack()
        return f"{at.file}:{at.pos}" if self.row is None else f"{at.file}:{at.pos}/{self.row}"


@dataclass(frozen=True, slots=True)
class AsOf:
    """What the operator asked for; one of the three is set.

    Attributes:
        bound: a position.
        gtid: a transaction, which counts completely.
        time_ms: a source time, milliseconds since the epoch.
    """

    text: str
    bound: Bound | None = None
    gtid: str | None = None
    time_ms: int | None = None


def parse_as_of(text: str) -> AsOf:
    """Read ``FILE:OFFSET``, ``FILE:OFFSET/ROW``, ``UUID:NUMBER``, or a time in ISO 8601, in UTC without an offset.

    Raises:
        ValueError: the text is none of them.
    """
    words = text.strip()
    if _GTID.fullmatch(words):
        return AsOf(words, gtid=words)
    if match := _POSITION.fullmatch(words):
        try:
            key = (binlog_number(match["file"]) << FILE_SHIFT) + int(match["pos"])
        except ValueError:
            pass
        else:
            return AsOf(words, bound=Bound(key, None if match["row"] is None else int(match["row"])))
    try:
        time = datetime.fromisoformat(words)
    except ValueError:
        raise ValueError(
            f"{words[:100]!r} is no position (binlog.000123:4567), GTID (UUID:NUMBER) or time (2026-07-25T10:00:00Z)"
        ) from None
    at = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return AsOf(words, time_ms=round(at.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """The part of an archive to replay.

    Attributes:
        tables: patterns of source tables; empty for all tables of the mirror.
        after: events up to this moment must be in the lake already; None for no such condition.
        until: events after this moment are not applied; None for the end of the archive.
        allow_gap: begin tables that the lake does not have at `after`.
    """

    tables: Sequence[str] = ()
    after: AsOf | None = None
    until: AsOf | None = None
    allow_gap: bool = False
