"""When tables whose work failed are tried again."""

import time
from dataclasses import dataclass
from typing import Final

from replicator.model.table import TableId

RETRY_S: Final = (2.0, 30.0)
"""Seconds after which a table that failed is tried again; when that was in vain too, it is paused."""


@dataclass(frozen=True, slots=True)
class _Failing:
    """A table whose last `times` tries failed; the next is at `retry_at` of the monotonic clock."""

    times: int
    retry_at: float


class Retries:
    """The tables that failed and are to be tried again; true while there are any."""

    def __init__(self) -> None:
        self._failing: dict[TableId, _Failing] = {}

    def __bool__(self) -> bool:
        return bool(self._failing)

    def must_wait(self, table: TableId) -> bool:
        """Whether it is too early to try a table again."""
        return table in self._failing and self._failing[table].retry_at > time.monotonic()

    def due(self) -> bool:
        """Whether it is time to try some table again."""
        return any(failing.retry_at <= time.monotonic() for failing in self._failing.values())

    def seconds_left(self) -> float:
        """Until it is."""
        due = min((failing.retry_at for failing in self._failing.values()), default=0.0)
        return max(0.0, due - time.monotonic())

    def failed(self, table: TableId) -> float | None:
        """Count a failure. Seconds until the next try; None after the last one, and the table is forgotten."""
        times = self._failing[table].times + 1 if table in self._failing else 1
        if times > len(RETRY_S):
            del self._failing[table]
            return None
        delay = RETRY_S[times - 1]
        self._failing[table] = _Failing(times, time.monotonic() + delay)
        return delay

    def at_once(self, table: TableId) -> None:
        """Try a table once more without waiting; another failure is its last."""
        self._failing[table] = _Failing(len(RETRY_S), time.monotonic())

    def succeeded(self, table: TableId) -> None:
        """Forget a table's failures."""
        self._failing.pop(table, None)
