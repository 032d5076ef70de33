"""When rounds of work are due that each name wants at its interval, best right after a batch of the mirror."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

_PART: Final = 0.25
_MOST_S: Final = 1.0


@dataclass(slots=True)
class Cadence:
    """The times at which names are due, in seconds of a clock.

    Attributes:
        slack: how much earlier or later than due a round may begin; 0 until `follow`.
        last: when the last round began.
    """

    slack: float = 0.0
    last: float = float("-inf")
    _at: dict[str, float] = field(default_factory=dict)

    def follow(self, every: float | None) -> None:
        """Let rounds begin right after batches, if they are due at this interval about then; None ends that."""
        self.slack = 0.0 if every is None else min(every * _PART, _MOST_S)

    def due(self, names: Collection[str], now: float) -> list[str]:
        """Return which names a round may bring up to date now: those that are new, and those that are due soon."""
        return [name for name in names if self._at.get(name, now) <= now + self.slack]

    def patience(self, names: Collection[str], now: float) -> float:
        """Return how long their round may wait for the end of a batch; negative if it is late already."""
        return min((self._at.get(name, now - self.slack) for name in names), default=now) + self.slack - now

    def fresh_since(self, now: float) -> float:
        """Return since when a batch must have ended so that a round begins right away.

        No two batches take the same time: the one to follow may have ended a little before the round may begin.
        """
        return max(self.last, now - self.slack)

    def began(self, intervals: Mapping[str, float], now: float, *, idle: bool = False) -> None:
        """Note a round of names, each with the seconds until it is due again.

        One that began early is due again at its interval after it was due, as it would else begin ever earlier. One
        that began late moves the next ones, towards the batches, unless there were none: the mirror is `idle`.
        """
        self.last = now
        now -= self.slack if idle else 0.0
        for name, every in intervals.items():
            self._at[name] = max(now, self._at.get(name, now)) + every

    def pause(self, names: Collection[str], now: float) -> float:
        """Return the seconds until the next round may begin; not negative."""
        return max(min((self._at.get(name, now) for name in names), default=now) - self.slack - now, 0.0)
