"""Decide when to restart a failed connector, and how long a run waits for it. Pure: the time is an argument."""

from dataclasses import dataclass
from typing import Final

from replicator.sources.connector.state import ConnectorState, failure_hint, lost_connection, resume_hint

MISSING: Final = "MISSING"
"""No connector has the mirror's topic prefix."""
UNREACHABLE: Final = "UNREACHABLE"
"""Kafka Connect does not answer."""

_LOST_S: Final = (1.0, 2.0, 5.0)
"""Seconds between restarts of a connector that lost its database connection; the last one repeats."""
_FAILED_S: Final = (5.0, 10.0, 30.0, 60.0, 300.0)
"""The same after other failures: each attempt at a snapshot that fails at its end puts full load on the source."""
_STABLE_S: Final = 60.0
"""A connector that runs this long without a failure has recovered."""


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """How many seconds a run waits until it gives up.

    Attributes:
        source: for the first answer of MySQL.
        settled: for a connector that is missing, paused or stopped; states during a restart or a rebalance are shorter.
        failed: for progress after a failure of the connector.
        unreachable: for an answer of Kafka Connect.
        silent: for any progress. The default is twice the default interval at which Connect commits offsets, plus
            some seconds for the next heartbeat.
    """

    source: float = 30.0
    settled: float = 5.0
    failed: float = 60.0
    unreachable: float = 30.0
    silent: float = 150.0


LIMITS: Final = WaitLimits()


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a connector at one moment.

    Attributes:
        state: as `ConnectorState.summary`, or `MISSING` or `UNREACHABLE`.
        reason: the cause, if it failed or cannot be reached.
        name: the connector's name; None if it is not known.
        address: the URL of the connector in Kafka Connect; None if it is not known.
    """

    state: str
    reason: str | None = None
    name: str | None = None
    address: str | None = None

    @classmethod
    def of(cls, state: ConnectorState) -> "Observation":
        """Return the worst state of a connector and its tasks."""
        return cls(state.summary, "; ".join(state.failures) or None, state.name, state.address)

    @classmethod
    def of_connector(cls, state: ConnectorState) -> "Observation":
        """Return the state of a connector itself, whatever those of its tasks are."""
        return cls(state.state, name=state.name, address=state.address)

    def describe(self) -> str:
        """Describe the state as a clause for a message."""
        match self.state:
            case "MISSING":
                return "no connector has this topic prefix"
            case "UNREACHABLE":
                return self.reason or "Kafka Connect cannot be reached"
        found = f"the connector {self.name} is {self.state}"
        return f"{found}: {self.reason}" if self.reason else found

    def next_step(self) -> str | None:
        """Return the operator's next step; None if there is nothing to do."""
        match self.state:
            case "MISSING":
                return "run: replicator connect"
            case "UNREACHABLE":
                return "start the Kafka Connect worker, or correct log.connect_url"
            case "PAUSED" | "STOPPED":
                return resume_hint(self.address or f"/connectors/{self.name}")
            case "FAILED":
                return failure_hint(self.reason or "")
        return None


class RestartPolicy:
    """Decide when a failed connector is restarted: immediately, then with increasing pauses."""

    def __init__(self) -> None:
        self.attempts = 0
        self._due = 0.0
        self._well_since: float | None = None

    def pause_after_restart(self, seen: Observation, now: float) -> float | None:
        """Count a restart that is due now, and return the seconds until the next one; None if none is due."""
        if seen.state != "FAILED":
            self._note_well(seen, now)
            return None
        self._well_since = None
        if now < self._due:
            return None
        pauses = _LOST_S if lost_connection(seen.reason or "") else _FAILED_S
        pause = pauses[min(self.attempts, len(pauses) - 1)]
        self.attempts += 1
        self._due = now + pause
        return pause

    def _note_well(self, seen: Observation, now: float) -> None:
        if seen.state != "RUNNING":
            self._well_since = None
            return
        if self._well_since is None:
            self._well_since = now
        if now - self._well_since >= _STABLE_S:
            self.attempts, self._due = 0, 0.0


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The reason why a run stops waiting for the connector, and the next step."""

    reason: str
    next_step: str | None


class Patience:
    """Decide how long a run waits for the connector to reach a position: as long as progress is made or likely."""

    def __init__(self, now: float, limits: WaitLimits = LIMITS) -> None:
        self._limits = limits
        self._state: str | None = None
        self._state_since = now
        self._progress: object = None
        self._progress_at = now
        self._trouble_since: float | None = None
        self._last_failure: Observation | None = None

    def judge(self, seen: Observation, progress: object, now: float) -> GivenUp | None:
        """Record an observation and decide whether to give up. `progress` is any value that changes with progress."""
        if seen.state != self._state:
            self._state, self._state_since = seen.state, now
        if progress != self._progress:
            self._progress, self._progress_at, self._trouble_since = progress, now, None
        if seen.state == "FAILED":
            self._last_failure = seen
            if self._trouble_since is None:
                self._trouble_since = now
        return self._given_up(seen, now)

    def _given_up(self, seen: Observation, now: float) -> GivenUp | None:
        since, limits = now - self._state_since, self._limits
        match seen.state:
            case "MISSING" | "PAUSED" | "STOPPED" if since >= limits.settled:
                return GivenUp(seen.describe(), seen.next_step())
            case "UNREACHABLE" if since >= limits.unreachable:
                return GivenUp(seen.describe(), seen.next_step())
        failed = self._last_failure
        if failed and self._trouble_since is not None and now - self._trouble_since >= limits.failed:
            return GivenUp(failed.describe(), failed.next_step())
        if now - self._progress_at >= limits.silent:
            return GivenUp(
                f"{seen.describe()}, and its offset has not changed for {now - self._progress_at:.0f} s",
                "run: replicator connect, which enables heartbeats; otherwise see the log of the Kafka Connect worker",
            )
        return None
