"""The record of a running mirror in its state folder: which process it is, what it did last, and how reloads ended.

`replicator status` and `replicator reload` read it; it needs neither Spark nor the lake. The process writes it again
every few seconds. So it tells when a process that was killed was last alive, and a state folder that somebody deletes
is there again.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from replicator.config import Config
from replicator.model.common import now_ms
from replicator.model.recorded import Record

_NAME: Final = "run.json"
_STATE: Final = 0
_STARTED: Final = 19
"""Places of fields in /proc/PID/stat after the name of the process."""
_SILENT_MS: Final = 30_000
"""A process of another machine or container that has not written its record for so long does not run any more."""

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
