"""The record of a running mirror in its state folder: which process it is, what it did last, and how reloads ended.

`replicator status` and `replicator reload` read it; it needs neither Spark nor the lake. The process writes it again
every few seconds. So it tells when a process that was killed was last alive, and a state folder that somebody deletes
is there again.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from replicator.config import Config
from replicator.errors import ReplicatorError
from replicator.model.common import now_ms
from replicator.model.recorded import Record
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")
_NAME: Final = "run.json"
_STATE: Final = 0
_STARTED: Final = 19
"""Places of fields in /proc/PID/stat after the name of the process."""
_WRITE_S: Final = 2.0
_SILENT_MS: Final = 30_000
"""A process of another machine or container that has not written its record for so long does not run any more."""
_KEPT: Final = 10
"""Number of reloads in the record."""
_LONGEST: Final = 500
"""Maximum length of the reason why a run ended."""

RunState = Literal["starting", "running", "ended", "killed"]


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """How a reload ended.

    Attributes:
        began: when the file was read, seconds of the machine's monotonic clock.
        changed: the keys that have changed; see `changed_keys`.
        refused: why the new configuration was refused, and None if it is in use.
        hint: the next step after a refusal, if one is known.
    """

    began: float
    changed: tuple[str, ...] = ()
    refused: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class RunRecord(Record):
    """A process that runs a mirror, or the last one that did. Times are milliseconds since the epoch.

    Attributes:
        pid, started: its process id, and when it started, in ticks since the machine did. Unlike a time, that stays the
            same if the clock is set.
        file: its configuration file.
        reloads: its last reloads, oldest first.
        host: the name of its machine or container.
        began_ms: when it began.
        seen_ms: when it last wrote this record.
        follows: whether it applies changes; before that, it starts Spark and reads the lake.
        batch_ms: when its last batch ended; None if it has made none.
        ended_ms, reason: when and why it ended; None if it runs or was killed. The reason is None after a signal.
    """

    WHAT = "the record of a run"
    pid: int
    started: int
    file: str
    reloads: tuple[ReloadOutcome, ...] = ()
    host: str = ""
    began_ms: int = 0
    seen_ms: int = 0
    follows: bool = False
    batch_ms: int | None = None
    ended_ms: int | None = None
    reason: str | None = None

    @classmethod
    def of_this_process(cls, file: Path | str) -> "RunRecord":
        """Return the record of this process, whose configuration is `file`."""
        now = now_ms()
        return cls(os.getpid(), _start_ticks(os.getpid()) or 0, str(file), (), socket.gethostname(), now, now)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs here. Another process may have its id, also that of another container."""
        return self.ended_ms is None and _start_ticks(self.pid) == self.started

    @property
    def is_elsewhere(self) -> bool:
        """Whether the process belongs to another machine or container."""
        return self.host not in ("", socket.gethostname())

    @property
    def state(self) -> RunState:
        """Whether the mirror runs. Of another machine or container, only the record itself tells that."""
        if self.ended_ms is not None:
            return "ended"
        alive = now_ms() - self.seen_ms < _SILENT_MS if self.is_elsewhere else self.is_alive
        return "killed" if not alive else "running" if self.follows else "starting"


class RunRecorder:
    """Keeps the record of this process up to date. Thread-safe.

    The state folder may be full or gone: then there is no record, and the mirror does its work nevertheless.
    """

    def __init__(self, config: Config, file: Path | None) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._record = RunRecord.of_this_process(file or "")
        self._ended = threading.Event()
        self._warned = False

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Write the record while the block runs, and at last how it ended. The process must hold the mirror's lock."""
        self._change()
        thread = threading.Thread(target=self._repeat, name="run record", daemon=True)
        thread.start()
        reason: str | None = None
        try:
            yield
        except ReplicatorError as error:
            reason = error.message
            raise
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise
        finally:
            self._ended.set()
            thread.join()
            said = None if reason is None else reason.splitlines()[0][:_LONGEST]
            self._change(ended_ms=now_ms(), reason=said)

    def follows(self) -> None:
        """Note that the process begins to apply changes."""
        self._change(follows=True)

    def made_batch(self) -> None:
        """Note that a batch has ended. The next regular write contains it."""
        with self._lock:
            self._record = replace(self._record, batch_ms=now_ms())

    def reloaded(self, outcome: ReloadOutcome) -> None:
        """Add a reload."""
        self._change(reloads=(*self._record.reloads, outcome)[-_KEPT:])

    def _repeat(self) -> None:
        while not self._ended.wait(_WRITE_S):
            self._change()

    def _change(self, **changed: Any) -> None:
        with self._lock:
            self._record = replace(self._record, seen_ms=now_ms(), **changed)
            try:
                write_record(self._config, self._record)
            except OSError as error:
                if not self._warned:
                    _LOG.warning("the state folder cannot be written", reason=error.strerror)
                self._warned = True


def write_record(config: Config, record: RunRecord) -> None:
    """Replace the mirror's record. A reader sees the earlier or the new one."""
    path = config.mirror.state_dir / _NAME
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(".new")
    new.write_text(record.to_json(), encoding="utf-8")
    new.replace(path)


def read_record(config: Config) -> RunRecord | None:
    """Return the mirror's record; None if there is none, or if it cannot be read or understood."""
    try:
        return RunRecord.from_json((config.mirror.state_dir / _NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since the machine did; None if it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may contain spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in ("Z", "X") else int(fields[_STARTED])
