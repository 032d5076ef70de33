"""Note why the connector failed, for the scheduler's thread.

If MySQL deleted binlogs before the connector had read them, the log lacks changes of all tables, and the connector
stays failed. The mirror lets it begin again at the present end of the binlog, and reads every table again.
"""

import threading
import time
from typing import Final

from replicator.config import Config
from replicator.sources.connector.failure import Failure, failure_in
from replicator.sources.connector.state import lost_binlog

_STATEMENT_S: Final = 60.0
"""A connector that cannot parse a statement for longer than this is left to the usual restarts."""
_DECLINED_S: Final = 60.0
"""How long a failure about which the mirror can do nothing is left to them, until the mirror tries again."""


class NotedFailure:
    """The failure of the connector that a monitoring thread has noted."""

    def __init__(self, config: Config) -> None:
        self._lock = threading.Lock()
        self._failure: Failure | None = None
        self._is_possible = config.can_read_source and config.source.url is not None
        self._heals = config.heal.mode == "auto"
        self._recovers = config.can_read_source and self._heals
        self._skipped_at: float | None = None
        self._declined: dict[str, float] = {}
        self._lacks_binlogs = threading.Event()

    @property
    def lacks_binlogs(self) -> bool:
        """Whether the connector must begin again, because MySQL deleted binlogs that it had not read."""
        return self._lacks_binlogs.is_set()

    def begins_again(self) -> None:
        """Note that the connector begins again."""
        self._lacks_binlogs.clear()

    def note(self, reason: str) -> bool:
        """Note why the connector failed. Return whether the mirror does something about it."""
        if lost_binlog(reason):
            if self._recovers:
                self._lacks_binlogs.set()
            return self._recovers
        failure = failure_in(reason)
        if failure is None or not self._is_possible or not (failure.is_of_statement or self._heals):
            return False
        now = time.monotonic()
        with self._lock:
            if now < self._declined.get(reason, now):
                return False
            if failure.is_of_statement:
                self._skipped_at = self._skipped_at or now
                if now > self._skipped_at + _STATEMENT_S:
                    return False
            self._failure = failure
        return True

    def decline(self, failure: Failure) -> None:
        """Leave a failure to the usual restarts for some time."""
        with self._lock:
            self._declined[failure.reason] = time.monotonic() + _DECLINED_S

    def take(self) -> Failure | None:
        """Return what was noted since the last call."""
        with self._lock:
            failure, self._failure = self._failure, None
            return failure
