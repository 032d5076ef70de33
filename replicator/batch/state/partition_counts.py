"""Remember how many partitions the topics of the log have, and since when this process knows that.

Kafka chooses the partition of a row by the number of partitions. Once some were added, later changes of the row may be
in another partition than earlier ones, and the order between partitions is unknown.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

LEARNS_S: Final = 360.0
"""After this time, the connector's producer writes with the new number. By default it learns it within 300 seconds
(`metadata.max.age.ms`); the rest is for the request."""


def number_of(partitions: Iterable[int]) -> int:
    """Return how many partitions a topic with these partitions has; Kafka numbers them from 0 on without a gap."""
    return max(partitions, default=-1) + 1


class PartitionCounts:
    """The numbers of partitions that this process has seen. Safe for several threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[str, dict[int, float]] = {}
        self._lock = threading.Lock()

    def note(self, topic: str, count: int) -> None:
        """Note that a topic has `count` partitions now."""
        with self._lock:
            self._seen.setdefault(topic, {}).setdefault(count, self._now())

    def first(self, topic: str) -> int | None:
        """Return how many partitions the topic had when it was noted first; None if it never was."""
        with self._lock:
            return next(iter(self._seen.get(topic, ())), None)

    def forget(self, topic: str) -> None:
        """Forget a topic, because it was recreated."""
        with self._lock:
            self._seen.pop(topic, None)

    def seconds_left(self, topic: str, count: int) -> float:
        """Return the seconds until the connector certainly writes with `count` partitions; 0 if it does already."""
        self.note(topic, count)
        with self._lock:
            return max(0.0, self._seen[topic][count] + LEARNS_S - self._now())
