"""Quarantined events, filters that select them, and results of a replay."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

RESOLVED_FIELDS: Final = (("state", "string"), ("resolved_at", "timestamptz"))
"""Columns of the quarantine table with an event's resolution; null while it is unresolved."""


class Resolution(StrEnum):
    """The resolution of a quarantined event. Its payload is then deleted; log coordinate and reason are kept."""

    REPLAYED = "replayed"
    """The event was applied to the lake."""
    DROPPED = "dropped"
    """The operator dropped the event: a table that pauses for bad events skips it."""
    REREAD = "reread"
    """The rows of the table were read from the source after the event, so they contain its change."""


@dataclass(frozen=True, slots=True, order=True)
class LogCoordinate:
    """The log coordinate of an event, which identifies it."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "LogCoordinate":
        """Parse ``TOPIC:PARTITION:OFFSET``.

        Raises:
            ValueError: the text has another form.
        """
        topic, *numbers = text.rsplit(":", 2)
        if not topic or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(
                f"{text!r} does not identify an event; write TOPIC:PARTITION:OFFSET, as the list shows it"
            )
        return cls(topic, int(numbers[0]), int(numbers[1]))


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """One quarantined event. All times are milliseconds since the epoch.

    Attributes:
        place: its log coordinate.
        table: the source table as `database.table`; None for a record of the schema-change topic.
        timestamp_ms: when it was written to the log; None if unknown.
        quarantined_ms: when it was quarantined.
        reason: why it could not be applied.
        key, value: the record; None if it is resolved, or if the table has masked or excluded columns.
        resolution: its resolution; None while it is unresolved.
        resolved_ms: when it was resolved.
    """

    place: LogCoordinate
    table: str | None
    timestamp_ms: int | None
    quarantined_ms: int
    reason: str
    key: bytes | None
    value: bytes | None
    resolution: Resolution | None = None
    resolved_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Which events of a table are in the rows that a re-read has read from the source.

    Attributes:
        topic: the topic of the table.
        since: partition → offset: the rows contain the changes of all earlier events; those of later events may be in
            some rows.
        requested_ms: when the re-read was requested, milliseconds since the epoch. An event that was in quarantine by
            then was in the log before the rows were read, whatever its offset: the topic may have been recreated.
    """

    topic: str
    since: Mapping[int, int]
    requested_ms: int

    def contain(self, place: LogCoordinate, quarantined_ms: int) -> bool:
        """Return whether the rows contain the change of an event that was quarantined at `quarantined_ms`."""
        return quarantined_ms < self.requested_ms or place.offset < self.since.get(place.partition, 0)

    def may_lack(self, place: LogCoordinate, quarantined_ms: int, until: Mapping[int, int]) -> bool:
        """Return whether rows to which all good events before `until` were applied may lack the change of this one."""
        ended = place.offset >= until.get(place.partition, 0)
        return not ended and not self.contain(place, quarantined_ms)


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """A filter that selects quarantined events; a field that is empty or None does not restrict it.

    Attributes:
        tables: source tables, `database.table`.
        reason: a substring of the reason; letter case is ignored.
        since_ms: quarantined at this time or later, milliseconds since the epoch.
        places: log coordinates of single events.
        resolved: whether to include resolved events.
    """

    tables: tuple[str, ...] = ()
    reason: str | None = None
    since_ms: int | None = None
    places: tuple[LogCoordinate, ...] = ()
    resolved: bool = False

    def fits(self, event: QuarantinedEvent) -> bool:
        """Return whether the filter selects an event."""
        return (
            (self.resolved or event.resolution is None)
            and (not self.tables or event.table in self.tables)
            and (self.reason is None or self.reason.casefold() in event.reason.casefold())
            and (self.since_ms is None or event.quarantined_ms >= self.since_ms)
            and (not self.places or event.place in self.places)
        )

    def of(self, events: Iterable[QuarantinedEvent]) -> list[QuarantinedEvent]:
        """Return the selected events, oldest first."""
        return sorted(filter(self.fits, events), key=lambda e: (e.quarantined_ms, e.place))


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay of quarantined events.

    Attributes:
        taken: events that were applied.
        bad: events that still cannot be applied, with the reason.
        ahead: events that their table has not reached yet; it will apply them itself.
        gone: events that the quarantine has without payload and the log no longer has.
        refused: events of tables that cannot apply them, with the reason.
    """

    taken: Sequence[LogCoordinate] = ()
    bad: Sequence[tuple[LogCoordinate, str]] = ()
    ahead: Sequence[LogCoordinate] = ()
    gone: Sequence[LogCoordinate] = ()
    refused: Sequence[tuple[LogCoordinate, str]] = ()

    @property
    def complete(self) -> bool:
        """Whether no event needs the operator's attention."""
        return not (self.bad or self.gone or self.refused)

    def __add__(self, other: "ReplayResult") -> "ReplayResult":
        return ReplayResult(
            [*self.taken, *other.taken],
            [*self.bad, *other.bad],
            [*self.ahead, *other.ahead],
            [*self.gone, *other.gone],
            [*self.refused, *other.refused],
        )
