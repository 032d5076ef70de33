"""The ends of the mirror's batches, for a thread that begins its rounds right after one.

What a batch commits is newest then. At another moment, a round would bring changes that are older by up to an interval
of batches, and would compete with a batch.
"""

import threading
import time
from typing import Final

_POLL_S: Final = 0.1


class BatchEnds:
    """Tells one thread that another one has ended a batch."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def note(self) -> None:
        """Note that a batch ended."""
        self._ended.set()

    def await_next(self, seconds: float, stopping: threading.Event) -> None:
        """Wait for the end of a batch, for `seconds` at most, or until `stopping` is set."""
        self._ended.clear()
        deadline = time.monotonic() + seconds
        while not stopping.is_set() and (left := deadline - time.monotonic()) > 0:
            if self._ended.wait(min(left, _POLL_S)):
                return
