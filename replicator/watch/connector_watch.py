"""Monitor the servers around a running mirror: restart a failed connector, and log which servers become unavailable.

All of it happens in separate threads, at intervals of seconds, and never delays an event.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from replicator.config import Config, KafkaLog
from replicator.errors import ConfigError, ConnectError, NotCaughtUp, ReplicatorError
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.recovery.noted_failure import NotedFailure
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.policy import (
    LIMITS,
    MISSING,
    UNREACHABLE,
    Observation,
    Patience,
    RestartPolicy,
    WaitLimits,
)
from replicator.sources.connector.settings import connect_client
from replicator.sources.connector.state import failure_hint
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.watch")
_INTERVAL_S: Final = 2.0
_READ_TIMEOUT_S: Final = 10
_LONGEST_PAUSE_S: Final = 30.0


class SourceGoal:
    """The end of the source's binlog when a run began, which a run until it has caught up must reach.

    The monitoring threads report their observations; the run waits.
    """

    def __init__(self, limits: WaitLimits = LIMITS) -> None:
        self._limits = limits
        self._began = time.monotonic()
        self._patience = Patience(self._began, limits)
        self._reached = threading.Event()
        self._observed = Observation("UNASSIGNED")
        self._end: BinlogEnd | None = None
        self._offset: ConnectorOffset | None = None
        self._problem = "MySQL has not answered yet"

    @property
    def reached(self) -> bool:
        """Whether Kafka has everything up to the goal."""
        return self._reached.is_set()

    @property
    def needs_end(self) -> bool:
        """Whether the end of the source's binlog is still unknown."""
        return self._end is None

    def set_end(self, end: BinlogEnd) -> None:
        """Set the end of the source's binlog."""
        self._end = end

    def source_failed(self, reason: str) -> None:
        """Note why the end of the binlog is still unknown."""
        self._problem = reason

    def connector_observed(self, observed: Observation, offset: ConnectorOffset | None) -> None:
        """Note the connector's state and its newest offset."""
        self._observed, self._offset = observed, offset or self._offset
        if self._end is not None and offset is not None and offset.covers(self._end):
            self._reached.set()

    def wait(self, stopping: threading.Event, events: int, seconds: float) -> None:
        """Wait until the goal is reached, the mirror must stop, or `seconds` have passed.

        `events` is the number of events that the mirror has applied: while it grows, there is progress.

        Raises:
            NotCaughtUp: the goal cannot be reached, or it is unknown whether it is reached.
        """
        deadline = time.monotonic() + seconds
        while not self.reached and not stopping.is_set() and (now := time.monotonic()) < deadline:
            self._check(events, now)
            self._reached.wait(0.2)

    def _check(self, events: int, now: float) -> None:
        if self._end is None:
            if now - self._began >= self._limits.source:
                raise NotCaughtUp(
                    f"caught up with the topics; whether also with the source is unknown: {self._problem}",
                    "run: replicator check, which inspects the source",
                )
            return
        given_up = self._patience.judge(self._observed, (self._offset, events), now)
        if given_up is not None:
            at = f", which has read up to {self._offset}" if self._offset else ""
            raise NotCaughtUp(
                f"caught up with the topics, not with the source at {self._end}: {given_up.reason}{at}",
                given_up.next_step,
            )


@contextlib.contextmanager
def watching(
    config: Config,
    *,
    until_caught_up: bool,
    noted: NotedFailure | None = None,
    interval: float = _INTERVAL_S,
    limits: WaitLimits = LIMITS,
) -> Iterator[SourceGoal | None]:
    """Monitor the configured servers every `interval` seconds while the block runs.

    Provides the goal of a run `until_caught_up`, which waits no longer than `limits` say. `noted` is told why the
    connector failed.

    The goal is None without Kafka Connect's address, because only Kafka Connect knows what the connector has read:
    such a run ends at the end of the topics.
    """
    rounds = _Rounds(interval)
    client = connect_client(config)
    goal = SourceGoal(limits) if until_caught_up and client is not None else None
    if until_caught_up and client is None:
        _LOG.warning("caught up means up to the end of the topics: log.connect_url is not set")
    tasks: list[Callable[[], None]] = [partial(_watch_servers, config, rounds)]
    if client is not None and isinstance(config.log, KafkaLog):
        tasks.append(_ConnectorWatch(client, config.log.topic_prefix, rounds, goal, noted).run)
        tasks.append(_SourceWatch(config, rounds, goal).run)
    for task in tasks:
        threading.Thread(target=_kept_up, args=(task, rounds), name="watch", daemon=True).start()
    try:
        yield goal
    finally:
        # Do not wait for the threads: one may be in a request.
        rounds.stop.set()


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The rounds of the threads: one every `interval` seconds until `stop` is set."""

    interval: float
    stop: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next round, or `seconds`. Return whether the thread must stop."""
        return self.stop.wait(self.interval if seconds is None else seconds)


def _kept_up(task: Callable[[], None], rounds: _Rounds) -> None:
    """Carry out a task until it ends, and again after an error that nobody expected."""
    while not rounds.stop.is_set():
        try:
            task()
        except Exception as error:  # noqa: BLE001 - nothing may end the watch
            _LOG.error("unexpected error of the watch, it goes on", exc_info=error)
            rounds.wait(_LONGEST_PAUSE_S)
        else:
            return


@dataclass(slots=True)
class _ConnectorWatch:
    """Monitors the connector: restarts failed tasks, and logs each change of its state."""

    _client: KafkaConnect
    _topic_prefix: str
    _rounds: _Rounds
    _goal: SourceGoal | None
    _noted: NotedFailure | None
    _name: str | None = field(default=None, init=False)
    _last: tuple[str, str | None] = field(default=("RUNNING", None), init=False)
    _restarts: RestartPolicy = field(default_factory=RestartPolicy, init=False)

    def run(self) -> None:
        while not self._rounds.stop.is_set():
            observed, offset = self._observe()
            self._log(observed)
            fails = observed.state == "FAILED" and observed.reason is not None
            # The mirror may do something about the failure itself.
            if not (fails and self._noted is not None and self._noted.note(observed.reason or "")):
                self._restart(observed)
            if self._goal is not None:
                self._goal.connector_observed(observed, offset)
            self._rounds.wait()

    def _observe(self) -> tuple[Observation, ConnectorOffset | None]:
        try:
            if self._name is None:
                found = self._client.find(self._topic_prefix)
                self._name = None if found is None else found.name
            state = None if self._name is None else self._client.state(self._name)
            if state is None:
                self._name = None
                return Observation(MISSING), None
            return Observation.of(state), self._offset(state.name)
        except ConnectError as error:
            return Observation(UNREACHABLE, error.message), None

    def _offset(self, name: str) -> ConnectorOffset | None:
        if self._goal is None or self._goal.reached or self._goal.needs_end:
            return None
        offset = self._client.offset(name)
        try:
            return None if offset is None else ConnectorOffset.from_json(offset)
        except ValueError:
            return None

    def _log(self, observed: Observation) -> None:
        before, self._last = self._last, (observed.state, observed.reason)
        if before == self._last:
            return
        match observed.state:
            case "RUNNING":
                _LOG.info("the connector is running again", connector=observed.name)
            case "FAILED":
                _LOG.error(
                    "the connector failed",
                    connector=observed.name,
                    reason=observed.reason,
                    next=failure_hint(observed.reason or ""),
                )
            case "RESTARTING" | "UNASSIGNED":
                pass
            case _:
                _LOG.warning(
                    "the connector is not running", reason=observed.describe(), next=observed.next_step()
                )

    def _restart(self, observed: Observation) -> None:
        pause = self._restarts.pause_after_restart(observed, time.monotonic())
        if pause is None or self._name is None:
            return
        _LOG.warning(
            "restarting the connector",
            connector=self._name,
            attempt=self._restarts.attempts,
            next_in_seconds=pause,
        )
        try:
            self._client.restart(self._name)
        except ConnectError as error:
            _LOG.warning("the connector could not be restarted", connector=self._name, reason=error.message)


class _SourceWatch:
    """Keeps one connection to MySQL, and so notices within seconds if the server becomes unavailable."""

    def __init__(self, config: Config, rounds: _Rounds, goal: SourceGoal | None) -> None:
        self._config, self._rounds, self._goal = config, rounds, goal
        self._server = _ServerState("MySQL", str(config.source.url))

    def run(self) -> None:
        pause = self._rounds.interval
        while not self._rounds.stop.is_set():
            try:
                self._stay_connected()
            except ConfigError as error:
                _LOG.warning("MySQL is not monitored", reason=error.message, next=error.hint)
                self._fail(error)
                return
            except (ReplicatorError, ValueError) as error:
                pause = self._rounds.interval if self._server.answers else min(2 * pause, _LONGEST_PAUSE_S)
                self._fail(error)
            self._rounds.wait(pause)

    def _fail(self, error: Exception) -> None:
        reason = error.message if isinstance(error, ReplicatorError) else str(error)
        self._server.failed(reason)
        if self._goal is not None:
            self._goal.source_failed(reason)

    def _stay_connected(self) -> None:
        # SQLAlchemy takes a second to import, in which Java can start.
        from sqlalchemy import text  # noqa: PLC0415

        from replicator.sources.mysql.connection import connect, read_binlog_end  # noqa: PLC0415

        with connect(self._config.source, read_timeout=_READ_TIMEOUT_S) as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            if self._goal is not None and self._goal.needs_end:
                self._goal.set_end(read_binlog_end(connection))
            self._server.answered()
            while not self._rounds.wait():
                connection.execute(text("DO 1"))


def _watch_servers(config: Config, rounds: _Rounds) -> None:
    """Monitor the servers to which a connection needs no login: Kafka and the schema registry."""
    servers: list[tuple[_ServerState, list[tuple[str, int]]]] = []
    if isinstance(log := config.log, KafkaLog):
        names = (name.rpartition("://")[2] for name in log.bootstrap_servers.split(","))
        brokers = [_address(f"//{name.strip()}", 9092) for name in names]
        servers.append((_ServerState("Kafka", log.bootstrap_servers), brokers))
        if log.registry_url is not None:
            registry = _ServerState("the schema registry", log.registry_url)
            servers.append((registry, [_address(log.registry_url, 80)]))
    while not rounds.stop.is_set():
        for server, addresses in servers:
            reasons = [_connect_error(address, rounds.interval) for address in addresses]
            if all(reasons):
                server.failed(str(reasons[0]))
            else:
                server.answered()
        rounds.wait()


@dataclass(slots=True)
class _ServerState:
    """Whether a server answered the last time; logs when that changes."""

    server: str
    address: str
    answers: bool = True

    def failed(self, reason: str) -> None:
        if self.answers:
            _LOG.warning("a server does not answer", server=self.server, address=self.address, reason=reason)
        self.answers = False

    def answered(self) -> None:
        if not self.answers:
            _LOG.info("a server answers again", server=self.server, address=self.address)
        self.answers = True


def _address(url: str, port: int) -> tuple[str, int]:
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else port
    return parts.hostname or "", parts.port or default


def _connect_error(address: tuple[str, int], timeout: float) -> str | None:
    """Connect to a server within `timeout` seconds. Return why that fails; None if it succeeds."""
    try:
        with socket.create_connection(address, timeout=timeout):
            return None
    except OSError as error:
        return error.strerror or str(error)
