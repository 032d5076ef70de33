"""Limit the load that reading puts on the source: the rows per second, and the lag of its replicas."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from replicator.config import Config
from replicator.errors import SourceUnavailable
from replicator.model.table import TableId
from replicator.sources.mysql.connection import connect_to
from replicator.sources.mysql.replication import (
    ReplicaLag,
    WatchedServer,
    read_replica_lag,
    watched_servers,
)
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_POLL_S: Final = 1.0
"""How often the lag is measured."""
_ANSWER_S: Final = 3.0
"""How long a server may take to connect or to answer."""
_SLICE_S: Final = 0.2
"""How often a waiting thread looks whether it must stop."""

OnWait = Callable[[str | None], None]
"""Called with the reason when reading begins to wait, and with None when it continues."""


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


class ReplicaWatch:
    """Lets reading wait while a replica is too far behind, or its lag is unknown."""

    def __init__(
        self, servers: Sequence[WatchedServer], limit_s: float, table: TableId, on_wait: OnWait
    ) -> None:
        self._servers = servers
        self._limit_s = limit_s
        self._table = table
        self._on_wait = on_wait
        self._next = time.monotonic()

    @property
    def is_limited(self) -> bool:
        """Whether the lag of any server is limited."""
        return bool(self._servers)

    def wait(self, stopping: StopSignal) -> bool:
        """Wait until no replica is too far behind, or `stopping` is set. Return whether it is set.

        Raises:
            PrivilegeError: a user may not read the lag.
        """
        known: str | None = None
        while (reason := self._reason(stopping)) is not None:
            if reason != known:
                _LOG.info("reading waits for replicas", table=str(self._table), reason=reason)
                self._on_wait(reason)
                known = reason
            stopping.wait(_POLL_S)
        if known is not None and not stopping.is_set():
            _LOG.info("reading continues", table=str(self._table))
        if known is not None:
            self._on_wait(None)
        return stopping.is_set()

    def _reason(self, stopping: StopSignal) -> str | None:
        """Return why reading must wait; None if it need not, or must stop."""
        if time.monotonic() < self._next:
            return None
        reasons = [
            reason
            for watched in self._servers
            if not stopping.is_set() and (reason := self._reason_of(watched)) is not None
        ]
        if stopping.is_set() or not reasons:
            self._next = time.monotonic() + _POLL_S
            return None
        return "; ".join(reasons)

    def _reason_of(self, watched: WatchedServer) -> str | None:
        try:
            with connect_to(watched.server, connect_timeout=_ANSWER_S, read_timeout=_ANSWER_S) as connection:
                lag = read_replica_lag(connection)
        except SourceUnavailable as error:
            return error.message
        return lag_reason(watched.server.name, lag, self._limit_s, is_replica=watched.is_replica)


class Throttle:
    """Decides when the next part of a table may be read."""

    def __init__(self, rows_per_second: int | None, replicas: ReplicaWatch) -> None:
        self._limit = rows_per_second
        self._replicas = replicas
        self._began = time.monotonic()
        self._rows: int | None = None

    @classmethod
    def of(
        cls, config: Config, table: TableId, on_wait: OnWait, *, rows_per_second: int | None
    ) -> "Throttle":
        """Return the throttle for reading one table from now on."""
        limit = config.bootstrap.max_replica_lag or 0.0
        replicas = ReplicaWatch(watched_servers(config), limit, table, on_wait)
        return cls(rows_per_second, replicas)

    @property
    def is_limited(self) -> bool:
        """Whether reading may have to wait between two parts."""
        return self._limit is not None or self._replicas.is_limited

    def wait(self, rows: int, stopping: StopSignal) -> bool:
        """Wait until more than `rows` rows may be read, or `stopping` is set. Return whether it is set.

        Raises:
            PrivilegeError: a user may not read the lag.
        """
        if self._limit is not None:
            # Rows of an earlier process do not count.
            self._rows = rows if self._rows is None else self._rows
            due = self._began + (rows - self._rows) / self._limit
            stopping.wait(max(0.0, due - time.monotonic()))
        return self._replicas.wait(stopping)


def lag_reason(name: str, lag: ReplicaLag | None, limit_s: float, *, is_replica: bool) -> str | None:
    """Return why reading must wait for a server; None if it need not.

    `lag` is None if the server is no replica; `is_replica` says that it must be one. The text does not change while the
    lag grows, because each text is recorded in the lake.
    """
    if lag is None:
        return f"{name} is no replica" if is_replica else None
    if lag.seconds is None:
        return f"the replication of {name} does not run"
    return f"{name} is more than {limit_s:g} s behind" if lag.seconds > limit_s else None
