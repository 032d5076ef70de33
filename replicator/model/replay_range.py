"""The part of an archive that a replay applies. It begins and ends at moments: those of a rebuild, or offsets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from replicator.model.as_of import AsOf, parse_as_of

_OFFSETS: Final = re.compile(r"offset:(?:(?P<all>\d+)|(?P<each>\d+/\d+(?:,\d+/\d+)*))")


@dataclass(frozen=True, slots=True)
class OffsetMoment:
    """Offsets in one topic; the events at them are still before the moment.

    Attributes:
        offset: the offset in the only partition of the topic; None if partitions are named.
        offsets: partition → offset.
    """

    text: str
    offset: int | None
    offsets: Mapping[int, int]


Moment = AsOf | OffsetMoment


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
    after: Moment | None = None
    until: Moment | None = None
    allow_gap: bool = False


def parse_moment(text: str) -> Moment:
    """Read a moment as `parse_as_of` does, or ``offset:N``; for several partitions, ``offset:PARTITION/N,PARTITION/N``.

    Raises:
        ValueError: the text is none of them.
    """
    words = text.strip()
    if match := _OFFSETS.fullmatch(words):
        if match["all"] is not None:
            return OffsetMoment(words, int(match["all"]), {})
        pairs = [part.split("/") for part in match["each"].split(",")]
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        if len(offsets) < len(pairs):
            raise ValueError(f"{words[:100]!r} names a partition twice")
        return OffsetMoment(words, None, offsets)
    try:
        return parse_as_of(words)
    except ValueError as error:
        raise ValueError(f"{error}, and no offset (offset:4567)") from None
