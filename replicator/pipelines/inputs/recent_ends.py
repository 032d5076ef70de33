"""Keep the ends of the log as they were in the last seconds, so that a refresh need not wait for the mirrors.

A mirror lacks the changes of its current batch, so it has not reached the newest ends. If the source changes all the
time, it never does: but it has reached earlier ones.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from replicator.errors import ReplicatorError, Unsettled
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds, ReadEnds
from replicator.pipelines.inputs.tables import InputTable

_Input = TypeVar("_Input")
KEPT: Final = 80
"""How many ends are kept. A mirror that has not reached the first of them is waited for by its own pipelines only."""


class RecentEnds:
    """The ends of the log as they were read again and again; for two threads: one reads, and one asks."""

    def __init__(self, read: ReadEnds) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._ends: deque[LogEnds] = deque(maxlen=KEPT)
        self._error: ReplicatorError = Unsettled("the end of the log is not known yet", "it is read soon")

    def update(self) -> None:
        """Read the ends as they are now.

        Raises:
            Unsettled, LogError, ConnectError, UsageError: as `ReadEnds`.
        """
        try:
            ends = self._read()
        except ReplicatorError as error:
            with self._lock:
                self._error = error
            raise
        with self._lock:
            self._ends.append(ends)

    def reached(self, inputs: Collection[InputTable], results: Collection[Boundary]) -> LogEnds:
        """Return the newest ends that `inputs` have reached; see `newest_reached`.

        Raises:
            Unsettled, LogError, ConnectError, UsageError: none are known, because of this.
        """
        with self._lock:
            if not self._ends:
                raise self._error
            known = tuple(self._ends)
        return newest_reached(known, inputs, results, LogEnds.is_reached)


def newest_reached(
    known: Sequence[LogEnds],
    inputs: Collection[_Input],
    results: Collection[Boundary],
    is_reached: Callable[[LogEnds, _Input], bool],
) -> LogEnds:
    """Return the newest of ends that inputs have reached; the first is the oldest, and there is at least one.

    An input that has not even reached the oldest does not count. Ends with a boundary before one of `results` count
    neither, as another process refreshed these results further; but if all `KEPT` are, the source is another server.
    """
    at = [result for result in results if not result.is_end]
    later = [ends for ends in known if all(ends.boundary.covers(result) for result in at)]
    later = later or list(known if len(known) == KEPT else known[-1:])
    counted = [each for each in inputs if is_reached(later[0], each)]
    found = (ends for ends in reversed(later) if all(is_reached(ends, each) for each in counted))
    return next(found)
