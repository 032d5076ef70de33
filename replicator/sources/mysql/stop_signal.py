"""Tell a reading thread to stop, for either of two reasons."""

import threading
import time
from dataclasses import dataclass
from typing import Final

_SLICE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class StopSignal:
    """Set if the mirror stops or the re-read was cancelled."""

    stopping: threading.Event
    cancelled: threading.Event

    def is_set(self) -> bool:
        """Return whether the thread must stop."""
        return self.stopping.is_set() or self.cancelled.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the signal, `seconds` at most. Return whether it is set."""
        until = time.monotonic() + seconds
        while not self.is_set() and (left := until - time.monotonic()) > 0:
            self.stopping.wait(min(left, _SLICE_S))
        return self.is_set()
