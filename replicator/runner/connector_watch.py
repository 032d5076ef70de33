"""Watches the servers around a running mirror: restarts a failed connector, and logs which servers stop answering.

All of it happens in threads of its own, at an interval of seconds: nothing here is on the way of an event.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from replicator.config import Config, KafkaLog
from replicator.errors import ConfigError, ConnectError, NotCaughtUp, ReplicatorError
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.sources.connector_policy import MISSING, UNREACHABLE, Observation, Patience, RestartPolicy
from replicator.sources.connector_settings import connect_client
from replicator.sources.kafka_connect import KafkaConnect, failure_hint
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.watch")
_INTERVAL_S: Final = 2.0
_READ_TIMEOUT_S: Final = 10
_LONGEST_PAUSE_S: Final = 30.0
_SOURCE_LIMIT_S: Final = 30.0


class SourceGoal:
    """The end of the source's binlog when a run began: what a run until it has caught up is to reach.

    The watching threads tell what they see; the run waits.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._patience = Patience(self._began)
        self._reached = threading.Event()
        self._seen = Observation("UNASSIGNED")
        self._end: BinlogEnd | None = None
        self._offset: ConnectorOffset | None = None
        self._problem = "MySQL did not answer yet"

    @property
    def reached(self) -> bool:
        """Whether everything up to the goal is in Kafka."""
        return self._reached.is_set()

    @property
    def needs_end(self) -> bool:
        """Whether the source did not tell yet where its binlog ends."""
        return self._end is None

    def source_ends(self, end: BinlogEnd) -> None:
        """Set the goal."""
        self._end = end

    def source_fails(self, reason: str) -> None:
        """Note why the goal is not known yet."""
        self._problem = reason

    def connector_is(self, seen: Observation, offset: ConnectorOffset | None) -> None:
        """Note the connector's state and its newest offset."""
        self._seen, self._offset = seen, offset or self._offset
        if self._end is not None and offset is not None and offset.covers(self._end):
            self._reached.set()

    def wait(self, stopping: threading.Event, events: int, seconds: float) -> None:
        """Wait until the goal is reached, the mirror is to stop, or some seconds have passed.

        `events` is how many the mirror has taken in: as long as they become more, there is progress.

        Raises:
            NotCaughtUp: the goal is out of reach, or it cannot be told whether it is reached.
        """
        deadline = time.monotonic() + seconds
        while not self.reached and not stopping.is_set() and (now := time.monotonic()) < deadline:
            self._check(events, now)
            self._reached.wait(0.2)

    def _check(self, events: int, now: float) -> None:
        if self._end is None:
            if now - self._began >= _SOURCE_LIMIT_S:
                raise NotCaughtUp(
                    f"caught up with the topics; whether with the source is unknown: {self._problem}",
                    "run: replicator check, which looks at the source",
                )
            return
        given_up = self._patience.judge(self._seen, (self._offset, events), now)
        if given_up is not None:
            at = f", which has read up to {self._offset}" if self._offset else ""
            raise NotCaughtUp(
                f"caught up with the topics, not with the source at {self._end}: {given_up.reason}{at}",
                given_up.next_step,
            )


@contextlib.contextmanager
def watching(config: Config, *, until_caught_up: bool) -> Iterator[SourceGoal | None]:
    """Watch the servers that are configured while the block runs. Gives the goal of a run `until_caught_up`.

    There is none without Kafka Connect's address, because nobody else tells what the connector has read: such a run
    ends with the topics.
    """
    stop = threading.Event()
    client = connect_client(config)
    goal = SourceGoal() if until_caught_up and client is not None else None
    if until_caught_up and client is None:
        _LOG.warning("caught up means the end of the topics: log.connect_url is not set")
    tasks: list[Callable[[], None]] = [_Servers(config, stop).run]
    if client is not None and isinstance(config.log, KafkaLog):
        tasks.append(_ConnectorWatch(client, config.log.topic_prefix, stop, goal).run)
        tasks.append(_SourceWatch(config, stop, goal).run)
    for task in tasks:
        threading.Thread(target=task, name="watch", daemon=True).start()
    try:
        yield goal
    finally:
        # The threads are not waited for: one may be in a request.
        stop.set()


class _ConnectorWatch:
    """Looks at the connector, restarts what failed, and logs each change."""

    def __init__(
        self, client: KafkaConnect, topic_prefix: str, stop: threading.Event, goal: SourceGoal | None
    ) -> None:
        self._client = client
        self._topic_prefix = topic_prefix
        self._stop = stop
        self._goal = goal
        self._name: str | None = None
        self._last: tuple[str, str | None] = ("RUNNING", None)
        self._restarts = RestartPolicy()

    def run(self) -> None:
        while not self._stop.is_set():
            seen, offset = self._look()
            self._log(seen)
            self._restart(seen)
            if self._goal is not None:
                self._goal.connector_is(seen, offset)
            self._stop.wait(_INTERVAL_S)

    def _look(self) -> tuple[Observation, ConnectorOffset | None]:
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

    def _log(self, seen: Observation) -> None:
        before, self._last = self._last, (seen.state, seen.reason)
        if before == self._last:
            return
        match seen.state:
            case "RUNNING":
                _LOG.info("the connector runs again", connector=seen.name)
            case "FAILED":
                _LOG.error(
                    "the connector failed",
                    connector=seen.name,
                    reason=seen.reason,
                    next=failure_hint(seen.reason or ""),
                )
            case "RESTARTING" | "UNASSIGNED":
                pass
            case _:
                _LOG.warning("the connector does not run", reason=seen.told(), next=seen.next_step())

    def _restart(self, seen: Observation) -> None:
        pause = self._restarts.pause_after_restart(seen, time.monotonic())
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
    """Keeps one connection to MySQL, and so notices at once that it is gone."""

    def __init__(self, config: Config, stop: threading.Event, goal: SourceGoal | None) -> None:
        self._config = config
        self._stop = stop
        self._goal = goal
        self._told = _Told("MySQL", str(config.source.url))

    def run(self) -> None:
        pause = _INTERVAL_S
        while not self._stop.is_set():
            try:
                self._hold()
            except ConfigError as error:
                _LOG.warning("MySQL is not watched", reason=error.message, next=error.hint)
                self._fail(error)
                return
            except (ReplicatorError, ValueError) as error:
                pause = _INTERVAL_S if self._told.answers else min(2 * pause, _LONGEST_PAUSE_S)
                self._fail(error)
            self._stop.wait(pause)

    def _fail(self, error: Exception) -> None:
        reason = error.message if isinstance(error, ReplicatorError) else str(error)
        self._told.gone(reason)
        if self._goal is not None:
            self._goal.source_fails(reason)

    def _hold(self) -> None:
        # SQLAlchemy takes a second to import, in which Java can start.
        from sqlalchemy import text  # noqa: PLC0415

        from replicator.sources.mysql.connection import connect, read_binlog_end  # noqa: PLC0415

        with connect(self._config.source, read_timeout=_READ_TIMEOUT_S) as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            if self._goal is not None and self._goal.needs_end:
                self._goal.source_ends(read_binlog_end(connection))
            self._told.back()
            while not self._stop.wait(_INTERVAL_S):
                connection.execute(text("DO 1"))


class _Servers:
    """Knocks at the servers that need no login for it: Kafka and the schema registry."""

    def __init__(self, config: Config, stop: threading.Event) -> None:
        self._stop = stop
        self._servers: list[tuple[_Told, list[tuple[str, int]]]] = []
        if isinstance(log := config.log, KafkaLog):
            names = (name.rpartition("://")[2] for name in log.bootstrap_servers.split(","))
            brokers = [_address(f"//{name.strip()}", 9092) for name in names]
            self._servers.append((_Told("Kafka", log.bootstrap_servers), brokers))
            if log.registry_url is not None:
                told = _Told("the schema registry", log.registry_url)
                self._servers.append((told, [_address(log.registry_url, 80)]))

    def run(self) -> None:
        while not self._stop.is_set():
            for told, addresses in self._servers:
                reasons = [_knock(address) for address in addresses]
                if all(reasons):
                    told.gone(str(reasons[0]))
                else:
                    told.back()
            self._stop.wait(_INTERVAL_S)


class _Told:
    """Whether a server answered when it was last asked; logs when that changes."""

    def __init__(self, server: str, address: str) -> None:
        self._server = server
        self._address = address
        self.answers = True

    def gone(self, reason: str) -> None:
        if self.answers:
            _LOG.warning(
                "a server does not answer", server=self._server, address=self._address, reason=reason
            )
        self.answers = False

    def back(self) -> None:
        if not self.answers:
            _LOG.info("a server answers again", server=self._server, address=self._address)
        self.answers = True


def _address(url: str, port: int) -> tuple[str, int]:
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else port
    return parts.hostname or "", parts.port or default


def _knock(address: tuple[str, int]) -> str | None:
    """Why a server takes no connection; None if it does."""
    try:
        with socket.create_connection(address, timeout=_INTERVAL_S):
            return None
    except OSError as error:
        return error.strerror or str(error)
