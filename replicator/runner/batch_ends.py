"""The ends of the mirror's batches, for a thread that begins its rounds right after one.

What a batch commits is newest then. At another moment, a round would bring changes that are older by up to an interval
of batches, and would compete with a batch.
"""

import threading
import time
from typing import Final

_POLL_S: Final = 0.1


class BatchEnds:
    """Tells one thread when another one ended a batch."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._last = float("-inf")

    def note(self) -> None:
        """Note that a batch ended."""
        self._last = time.monotonic()
        self._ended.set()

    def any_since(self, since: float) -> bool:
        """Return whether a batch has ended after a time."""
        return self._last >= since

    def await_one(self, since: float, seconds: float, stopping: threading.Event) -> None:
        """Wait until a batch has ended after the time `since`, for `seconds` at most, or until `stopping` is set."""
        deadline = time.monotonic() + seconds
        while not stopping.is_set() and (left := deadline - time.monotonic()) > 0:
            self._ended.clear()
            if self.any_since(since) or self._ended.wait(min(left, _POLL_S)):
                return
