"""Register a mirror's Debezium connector with Kafka Connect."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from replicator.config import Config
from replicator.errors import ConfigError, ConnectError
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.failure import is_unreadable
from replicator.sources.connector.policy import Observation
from replicator.sources.connector.settings import ONLY_CAPTURED, connector_config, kafka_log, secrets_in
from replicator.sources.connector.state import ConnectorState, failure_hint

_WAITING = ("driver.autoReconnect",)
"""Options that make the connector wait for a MySQL server that does not respond."""

_HALTED = ("PAUSED", "STOPPED")
_HALTED_S = 30.0
"""How long a connector may be shown as stopped after it was resumed: a busy worker takes seconds to start it."""

_FIRST_EVENTS_S = 10.0
"""How long a new connector may send nothing: it reads all definitions before it sends the first."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A running connector.

    Attributes:
        existed: whether it existed before.
        tasks: its tasks' states by id.
        resumed: whether it was stopped before.
    """

    name: str
    existed: bool
    tasks: Mapping[int, str]
    resumed: bool = False


def register(config: Config, *, seconds: float = 90) -> Registered:
    """Create or update the connector and wait until its task runs; safe to repeat.

    A new connector runs if it has sent its first event, since what it cannot read fails it before, or if it has sent
    none for ten seconds.

    Raises ConfigError if settings are missing, and ConnectError if Kafka Connect cannot be reached or refuses the
    settings, or if the connector is paused, or its task fails. A connector that was stopped is resumed, since an
    interrupted call leaves it stopped.
    """
    log = kafka_log(config)
    if log.connect_url is None:
        raise ConfigError("log.connect_url is not set", 'add connect_url = "http://host:8083" to [log]')
    settings = connector_config(config)
    worker = KafkaConnect(log.connect_url, secrets_in(settings))
    name = config.mirror.name
    before = worker.state(name)
    if before is not None and before.state == "PAUSED":
        # Its settings could be changed only by ending the pause, which somebody wanted.
        raise _not_running(before, "; nothing was changed")
    # With the options to wait for MySQL, a wrong address or password would be reported only after half a minute.
    worker.check(name, {option: value for option, value in settings.items() if option not in _WAITING})
    if before is None:
        worker.put(name, settings)
    else:
        _update(worker, before, settings)
    if before and before.failures:
        # New settings alone do not restart a failed task, and its cause may have been fixed elsewhere.
        worker.restart(name)
    resumed = before is not None and before.state == "STOPPED"
    try:
        tasks = _wait(worker, name, seconds, is_new=before is None)
    except ConnectError as error:
        if not is_unreadable(error.message):
            raise
        # The table may be of any database.
        _update(worker, before or ConnectorState(name, "RUNNING", {}), settings | ONLY_CAPTURED)
        tasks = _wait(worker, name, seconds, is_new=before is None)
    return Registered(name, before is not None, tasks, resumed)


def _not_running(state: ConnectorState, more: str = "") -> ConnectError:
    """Return the error for a connector that somebody paused or stopped."""
    # Not the worst state, which is that of a task that failed before.
    seen = Observation.of_connector(state)
    return ConnectError(seen.describe() + more, seen.next_step())


def _update(worker: KafkaConnect, before: ConnectorState, settings: Mapping[str, str]) -> None:
    """Give a connector other settings. Afterwards, no task works with the earlier ones any more.

    Otherwise, changes of a table that is added could still be left out after the mirror has begun to read it.
    """
    name = before.name
    known = worker.options(name)
    changes = known is not None and {**known, "name": name} != {**settings, "name": name}
    if changes:
        worker.stop(name)
        worker.await_stopped(name)
    try:
        worker.put(name, settings)
    finally:
        # It may also have been stopped by an earlier call that was interrupted.
        if changes or before.state == "STOPPED":
            worker.resume(name)


def _wait(worker: KafkaConnect, name: str, seconds: float, *, is_new: bool) -> Mapping[int, str]:
    """Wait until all tasks run in two consecutive polls, since a failing task fails just after its start."""
    began = time.monotonic()
    deadline = began + seconds
    seen_running = 0
    failed_since: float | None = None
    halted_since: float | None = None
    while True:
        state = worker.state(name)
        failures = state.failures if state else ()
        tasks = state.tasks if state else {}
        now = time.monotonic()
        failed_since = (failed_since or now) if failures else None
        # A failure from before a restart is reported for a moment.
        if failures and failed_since is not None and now - failed_since > 2:
            raise ConnectError(f"the connector {name} failed: {failures[0]}", failure_hint(failures[0]))
        # It is still stopped for a moment after it was resumed.
        is_halted = state is not None and state.state in _HALTED
        halted_since = (halted_since or now) if is_halted else None
        if state is not None and halted_since is not None and now - halted_since > _HALTED_S:
            raise _not_running(state)
        seen_running = seen_running + 1 if tasks and set(tasks.values()) == {"RUNNING"} else 0
        if seen_running >= 2 and (not is_new or worker.has_sent(name) or now - began > _FIRST_EVENTS_S):
            return tasks
        if now > deadline:
            raise ConnectError(
                f"the connector {name} is not running after {seconds:.0f} s (tasks: {dict(tasks) or 'none'})",
                "see the log of the Kafka Connect worker",
            )
        time.sleep(0.5)
