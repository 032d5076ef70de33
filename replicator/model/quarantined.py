"""Events in quarantine, and which of them are meant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

RESOLVED_FIELDS: Final = (("state", "string"), ("resolved_at", "timestamptz"))
"""Columns of the quarantine table that say what became of an event; null while nothing did."""


class Resolution(StrEnum):
    """What became of an event in quarantine. Its payload goes then; place and reason stay."""

    REPLAYED = "replayed"
    """The lake has it."""
    DROPPED = "dropped"
    """It is not wanted: a table that is to pause for bad events passes over it."""


@dataclass(frozen=True, slots=True, order=True)
class EventPlace:
    """Where the log has an event, and so what identifies it."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "EventPlace":
        """Read ``topic:partition:offset``. Raises ValueError."""
        topic, *numbers = text.rsplit(":", 2)
        if not topic or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(
                f"{text!r} is no event; one is written TOPIC:PARTITION:OFFSET, as the list shows it"
            )
        return cls(topic, int(numbers[0]), int(numbers[1]))


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """One event in quarantine.

    Attributes:
        place: where the log has it.
        table: the source table as `database.table`; None for a record of the schema-change topic.
        timestamp_ms: when it was written to the log; None where that is not known.
        quarantined_ms: when it was set aside.
        reason: why it could not be applied.
        key, value: the record; None once it is resolved, and for a table whose columns are masked or left out.
        resolution: what became of it; None while it waits.
        resolved_ms: when.
    """

    place: EventPlace
    table: str | None
    timestamp_ms: int | None
    quarantined_ms: int
    reason: str
    key: bytes | None
    value: bytes | None
    resolution: Resolution | None = None
    resolved_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events of the quarantine are meant; what is empty or None restricts nothing.

    Attributes:
        tables: source tables, `database.table`.
        reason: a part of the reason, in any letter case.
        since_ms: set aside then or later.
        places: the events themselves.
        resolved: also those that something became of.
    """

    tables: tuple[str, ...] = ()
    reason: str | None = None
    since_ms: int | None = None
    places: tuple[EventPlace, ...] = ()
    resolved: bool = False

    def fits(self, event: QuarantinedEvent) -> bool:
        """Whether an event is meant."""
        return (
            (self.resolved or event.resolution is None)
            and (not self.tables or event.table in self.tables)
            and (self.reason is None or self.reason.casefold() in event.reason.casefold())
            and (self.since_ms is None or event.quarantined_ms >= self.since_ms)
            and (not self.places or event.place in self.places)
        )

    def of(self, events: Iterable[QuarantinedEvent]) -> list[QuarantinedEvent]:
        """Those of `events` that are meant, oldest first."""
        return sorted(filter(self.fits, events), key=lambda e: (e.quarantined_ms, e.place))


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay came to.

    Attributes:
        taken: events that the lake has now.
        bad: events that still cannot be applied, with the reason.
        ahead: events that their table has not come to yet; it takes them in by itself.
        gone: events that quarantine keeps without payload and the log no longer has.
        refused: events of tables that cannot take them, with the reason.
    """

    taken: Sequence[EventPlace] = ()
    bad: Sequence[tuple[EventPlace, str]] = ()
    ahead: Sequence[EventPlace] = ()
    gone: Sequence[EventPlace] = ()
    refused: Sequence[tuple[EventPlace, str]] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is left to mend."""
        return not (self.bad or self.gone or self.refused)

    def __add__(self, other: "Replayed") -> "Replayed":
        return Replayed(
            [*self.taken, *other.taken],
            [*self.bad, *other.bad],
            [*self.ahead, *other.ahead],
            [*self.gone, *other.gone],
            [*self.refused, *other.refused],
        )
