"""A thread that works beside the batches of the mirror, in rounds, and retries what fails."""

import threading
from collections.abc import Callable
from typing import Final

from replicator.errors import JavaGone, ReplicatorError
from replicator.jvm.spark import first_line

RETRY_S: Final = 10.0
"""How long it waits after a round that failed."""
_CLOSE_S: Final = 60.0


class SideThread:
    """Runs rounds until it is closed; each returns the seconds until the next one.

    A round that fails is reported, by its reason and the next step, each reason once until a round succeeds. `end` is
    called in the thread, at its end.

    Attributes:
        stopping: set once it is being closed, for rounds that wait.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], float],
        report: Callable[[str, str | None], None],
        *,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.stopping = threading.Event()
        self._round, self._report, self._end = run, report, end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._reported: str | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the round that runs now. If it takes long, it is left: it would be as if it was killed."""
        self.stopping.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.stopping.wait(self._next())
        except JavaGone:
            # The mirror notices it too, and ends.
            self.stopping.set()
        finally:
            self._end()

    def _next(self) -> float:
        try:
            pause = self._round()
        except JavaGone:
            raise
        except ReplicatorError as error:
            return self._failed(error.message, error.hint)
        except Exception as error:  # noqa: BLE001 - the thread must not end silently
            return self._failed(first_line(error), None)
        self._reported = None
        return pause

    def _failed(self, reason: str, hint: str | None) -> float:
        if self._reported != reason:
            self._reported = reason
            self._report(reason, hint)
        return RETRY_S
