"""Schedule the retries of failed tables."""

import time
from collections.abc import Sequence
from typing import Final

from replicator.model.table import TableId

RETRY_S: Final = (2.0, 30.0)
"""The delays of `Retries`, if no others are given."""


class Retries:
    """The failed tables that will be retried. True if there are any.

    Attributes:
        delays: seconds before each retry of a failed table. If the last one fails, the table is paused.
    """

    def __init__(self, delays: Sequence[float] | None = None) -> None:
        self.delays = RETRY_S if delays is None else tuple(delays)
        # How often each failed in a row, and when it is due by the monotonic clock.
        self._failing: dict[TableId, tuple[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._failing)

    def must_wait(self, table: TableId) -> bool:
        """Whether a table failed and its retry is not due yet."""
        return table in self._failing and self._failing[table][1] > time.monotonic()

    def due(self) -> bool:
        """Whether the retry of any table is due."""
        return any(at <= time.monotonic() for _, at in self._failing.values())

    def seconds_left(self) -> float:
        """Return the seconds until the next retry is due."""
        due = min((at for _, at in self._failing.values()), default=0.0)
        return max(0.0, due - time.monotonic())

    def failed(self, table: TableId, *, gives_up: bool = True) -> float | None:
        """Count a failure, and return the seconds until the retry; None after the last one, which resets the count.

        If the mirror never `gives_up`, the last delay is repeated.
        """
        times = self._failing.get(table, (0, 0.0))[0] + 1
        if times > len(self.delays):
            if gives_up:
                del self._failing[table]
                return None
            times = len(self.delays)
        delay = self.delays[times - 1]
        self._failing[table] = (times, time.monotonic() + delay)
        return delay

    def retry_now(self, table: TableId) -> None:
        """Make one last retry of a table due immediately."""
        self._failing[table] = (len(self.delays), time.monotonic())

    def forget(self, table: TableId) -> None:
        """Forget a table's failures."""
        self._failing.pop(table, None)
