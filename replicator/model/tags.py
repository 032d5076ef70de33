"""Consistent points: tags of all lake tables at one position of the source.

A tag is recorded as a property of the `_ops` namespace, from the request to the deletion; the JSON is described in
schemas/tag-v1.json. The tagged snapshots themselves are Iceberg tags of the lake tables.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet
from replicator.model.position import FILE_SHIFT, binlog_number
from replicator.model.recorded import Record, versioned

TAG_KEY: Final = "replicator.tag."
"""Prefix of the properties of the `_ops` namespace that each describe a tag; the rest is the tag's name."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_RESERVED: Final = frozenset({"main"})
_SCHEDULED: Final = "auto-%Y%m%dT%H%M%SZ"
_LONGEST_GTIDS: Final = 300
_LONGEST_REASON: Final = 200
_LONGEST_LIST: Final = 200
"""Lengths of texts: catalogs in a database store at most 1,000 characters in a property."""


class TagState(StrEnum):
    """The state of a tag."""

    REQUESTED = "requested"
    """The mirror has not chosen the position yet."""
    STARTED = "started"
    """The position is chosen; some tables are tagged."""
    COMPLETE = "complete"
    """All tables are tagged."""
    FAILED = "failed"
    """No table is tagged; `TagRecord.reason` says why."""
    DELETING = "deleting"
    """The tags of the tables are being removed; then the record is removed too."""


@dataclass(frozen=True, slots=True)
class TagPoint:
    """The source position of a tag: the end of the binlog at some moment, which is always the end of a transaction.

    Attributes:
        file, pos: the position; changes at or after it are not in the tagged snapshots.
        gtids: all transactions before it; None if the source has no GTIDs, or if the set is too long to be recorded.
        read_ms: when the source was at this position, milliseconds since the epoch.
    """

    file: str
    pos: int
    gtids: str | None
    read_ms: int

    @classmethod
    def of(cls, end: BinlogEnd, read_ms: int) -> "TagPoint":
        """Return the end of a binlog as a position for a tag."""
        gtids = None if end.gtids is None else str(end.gtids)
        return cls(end.file, end.pos, gtids if gtids and len(gtids) <= _LONGEST_GTIDS else None, read_ms)

    @property
    def position_key(self) -> int:
        """The position as in decoded frames: a change is before it if its position key is smaller."""
        return (binlog_number(self.file) << FILE_SHIFT) + self.pos

    @property
    def end(self) -> BinlogEnd:
        """The position as the end of a binlog, to compare it with the connector's."""
        return BinlogEnd(self.file, self.pos, None if self.gtids is None else GtidSet.parse(self.gtids))

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def _possible(point: TagPoint | None) -> TagPoint | None:
    if point is not None:
        _ = point.position_key, point.end  # what is no position must fail here and not later
    return point


@dataclass(frozen=True, slots=True)
class TagRecord(Record):
    """A tag as it is recorded in the lake; its name is that of the property.

    Attributes:
        name: the name of the tag in every lake table.
        state: see `TagState`.
        requested_ms: when it was requested, milliseconds since the epoch.
        scheduled: whether `[tags] every` requested it; such tags are deleted after `[tags] keep` newer ones.
        skip_paused: whether paused tables are left out; otherwise they make the tag fail.
        point: the position; None until it is chosen.
        completed_ms: when it was complete; None before.
        left_out: source tables that were paused, and have no tag; possibly shortened.
        reason: why the tag failed.
    """

    WHAT = "the record of a tag"
    SEPARATORS = (",", ":")
    name: Annotated[str, Field(exclude=True)]
    state: TagState
    requested_ms: int
    scheduled: bool = False
    skip_paused: bool = False
    point: Annotated[TagPoint | None, AfterValidator(_possible)] = None
    completed_ms: int | None = None
    left_out: tuple[str, ...] = field(default=())
    reason: str | None = None

    @property
    def key(self) -> str:
        """The name of its property."""
        return TAG_KEY + self.name

    @property
    def is_open(self) -> bool:
        """Whether the mirror must still make it."""
        return self.state in (TagState.REQUESTED, TagState.STARTED)

    def failed(self, reason: str) -> "TagRecord":
        """Return the record of the tag after a failure."""
        return replace(self, state=TagState.FAILED, reason=reason[:_LONGEST_REASON])

    def completed(self, now_ms: int, left_out: Iterable[str]) -> "TagRecord":
        """Return the record of the complete tag."""
        names = tuple(sorted(left_out))
        return replace(self, state=TagState.COMPLETE, completed_ms=now_ms, left_out=_shortened(names))


def recorded_tags(properties: Mapping[str, str]) -> list[TagRecord]:
    """Return the tags that properties of the `_ops` namespace describe, oldest first.

    Raises:
        ValueError: a newer version of the engine wrote one.
    """
    names = {key.removeprefix(TAG_KEY): text for key, text in properties.items() if key.startswith(TAG_KEY)}
    found = [
        TagRecord.of_values({**versioned(text, f"tag {name}"), "name": name}) for name, text in names.items()
    ]
    return sorted(found, key=lambda tag: (tag.requested_ms, tag.name))


def name_problem(name: str) -> str | None:
    """Return why a text cannot be the name of a tag; None if it can."""
    if name in _RESERVED or name.startswith("replicator"):
        return f"{name!r} is the name of a branch that Iceberg or this engine uses"
    if _NAME.fullmatch(name) is None:
        return f"{name!r} is no name of a tag: it may have letters, digits, dots, dashes and underscores"
    return None


def due_tag(tags: Iterable[TagRecord], every: float | None, now_ms: int) -> TagRecord | None:
    """Return the request of the next scheduled tag if it is due; `every` is in seconds, None means never."""
    scheduled = [tag for tag in tags if tag.scheduled]
    if every is None or any(tag.is_open for tag in scheduled):
        return None
    last = max((tag.requested_ms for tag in scheduled), default=None)
    if last is not None and now_ms - last < every * 1000:
        return None
    name = datetime.fromtimestamp(now_ms / 1000, UTC).strftime(_SCHEDULED)
    return TagRecord(name, TagState.REQUESTED, now_ms, scheduled=True)


def expired_tags(tags: Iterable[TagRecord], keep: int) -> list[TagRecord]:
    """Return the scheduled tags to delete: all but the newest `keep` complete ones, and failures before a newer tag."""
    scheduled = sorted((tag for tag in tags if tag.scheduled), key=lambda tag: tag.requested_ms)
    complete = [tag for tag in scheduled if tag.state is TagState.COMPLETE]
    newest = complete[-1].requested_ms if complete else None
    failed = [
        tag
        for tag in scheduled
        if tag.state is TagState.FAILED and newest is not None and tag.requested_ms < newest
    ]
    return complete[:-keep] + failed


def _shortened(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names, or the first of them and the number of the others."""
    kept: list[str] = []
    for number, name in enumerate(names):
        if sum(map(len, kept)) + len(name) > _LONGEST_LIST:
            return (*kept, f"and {len(names) - number} more")
        kept.append(name)
    return tuple(kept)
