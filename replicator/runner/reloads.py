"""Reload the configuration file of a running mirror on SIGHUP.

A thread reads and checks the file while the batches continue, so a file with errors changes nothing. A configuration
that it accepts ends the current session of the run, and the next session begins with it. The sessions of a run share
the process, its lock and Java; everything else is new, as after a restart. So the markers in the lake make the change
exact.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from replicator.config import ColumnRuleBook, Config
from replicator.config.changes import changed_keys, refuse_fixed
from replicator.errors import ReplicatorError
from replicator.runner.kafka_log import FollowedLog, open_kafka_log
from replicator.runner.run_record import ReloadOutcome
from replicator.runner.run_recorder import RunRecorder
from replicator.sources.connector.settings import kafka_log
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The configuration file of a running mirror.

    Attributes:
        path: its absolute path.
        read: reads it, with all checks of a start; raises ReplicatorError.
    """

    path: Path
    read: Callable[[], Config]


@dataclass(frozen=True, slots=True)
class NextSession:
    """What a session needs: its configuration, and the log that this names.

    Attributes:
        reload: the reload that led to it; None for the first session of a run.
    """

    config: Config
    log: FollowedLog
    reload: ReloadOutcome | None = None


class SessionControl:
    """Tells a session to end: because the run must end (`set`), or because another session shall follow (`offer`).

    `set` is called by signal handlers, so nothing here waits for another thread.
    """

    def __init__(self) -> None:
        self._run_ends = False
        self._next: NextSession | None = None
        self._stopping = threading.Event()

    def begin(self, stopping: threading.Event) -> None:
        """Let `stopping` end the session that begins."""
        self._stopping = stopping
        if self._run_ends or self._next is not None:
            stopping.set()

    def set(self) -> None:
        """Let the run end after the current session."""
        self._run_ends = True
        self._stopping.set()

    def offer(self, following: NextSession) -> None:
        """Let another session follow the current one. The next call must come after `take`."""
        self._next = following
        self._stopping.set()

    def take(self) -> NextSession | None:
        """Return the session that follows; None if the run must end."""
        following, self._next = self._next, None
        return None if self._run_ends else following


class Reloads:
    """Reads the configuration file of a run again on request, and tells `replicator reload` how that ended."""

    def __init__(
        self, config: Config, file: ConfigFile, control: SessionControl, record: RunRecorder
    ) -> None:
        """Offer accepted configurations to `control`; the run begins with `config`. Write outcomes to `record`."""
        self._config = config
        self._file = file
        self._control = control
        # Unlike an event, a simple queue may be used in a signal handler. False ends the thread.
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._applied = threading.Event()
        self._record = record

    def request(self) -> None:
        """Request that the file is read again. Safe in a signal handler."""
        self._requests.put(True)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer requests, also earlier ones, while the block runs."""
        thread = threading.Thread(target=self._answer, name="reload", daemon=True)
        thread.start()
        try:
            yield
        finally:
            # Do not wait for the thread: it may be in a request to a server.
            self._requests.put(False)
            self._applied.set()

    def applied(self, outcome: ReloadOutcome) -> None:
        """Note that a session with an accepted configuration has begun."""
        _LOG.info("configuration reloaded", changed=list(outcome.changed))
        self._record.reloaded(outcome)
        self._applied.set()

    def _answer(self) -> None:
        while self._wanted():
            self._applied.clear()
            if self._accept():
                self._applied.wait()

    def _wanted(self) -> bool:
        """Wait for a request; those that came meanwhile are answered together. Return False if the run ends."""
        wanted = self._requests.get()
        while not self._requests.empty():
            wanted = self._requests.get() and wanted
        return wanted

    def _accept(self) -> bool:
        """Read the file, and offer its configuration. Return False if it was refused."""
        began = time.monotonic()
        try:
            config = self._file.read()
            changed = changed_keys(self._config, config)
            refuse_fixed(changed)
            log = _checked_log(config, changed)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the file, the mirror continues
            self._refuse(began, error)
            return False
        self._config = config
        self._control.offer(NextSession(config, log, ReloadOutcome(began, changed)))
        return True

    def _refuse(self, began: float, error: Exception) -> None:
        reason, hint = str(error) or type(error).__name__, None
        if isinstance(error, ReplicatorError):
            reason, hint = error.message, error.hint
        _LOG.error("configuration not reloaded", reason=reason, next=hint)
        self._record.reloaded(ReloadOutcome(began, refused=reason, hint=hint))


def _checked_log(config: Config, changed: tuple[str, ...]) -> FollowedLog:
    """Return the log of a new configuration, after the checks of a start.

    Raises:
        ConfigError: a secret is missing; the environment of a running process never changes.
        LogUnavailable: the log cannot be reached.
    """
    ColumnRuleBook(config)
    if "source.password" in changed and config.source.password is not None:
        config.source.password.reveal()
    log = open_kafka_log(config, kafka_log(config))
    log.offsets()
    return log
