"""The record of a running mirror in its state folder: which process it is, and how its last reloads ended.

`replicator reload` reads it; it needs neither Spark nor the lake.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from replicator.config import Config

_NAME: Final = "run.json"
_STATE: Final = 0
_STARTED: Final = 19
"""Places of fields in /proc/PID/stat after the name of the process."""


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
class RunRecord:
    """A process that runs a mirror.

    Attributes:
        pid, started: its process id, and when it started, in ticks since the machine did. Unlike a time, that stays the
            same if the clock is set.
        file: its configuration file.
        reloads: its last reloads, oldest first.
    """

    pid: int
    started: int
    file: str
    reloads: tuple[ReloadOutcome, ...] = ()

    @classmethod
    def of_this_process(cls, file: Path) -> "RunRecord":
        """Return the record of this process, whose configuration is `file`."""
        return cls(os.getpid(), _start_ticks(os.getpid()) or 0, str(file))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs. Another process may have its id, also that of another container."""
        return _start_ticks(self.pid) == self.started


def write_record(config: Config, record: RunRecord) -> None:
    """Replace the mirror's record. A reader sees the earlier or the new one."""
    path = config.mirror.state_dir / _NAME
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"version": 1, **asdict(record)}), encoding="utf-8")
    new.replace(path)


def remove_record(config: Config) -> None:
    """Remove the mirror's record."""
    (config.mirror.state_dir / _NAME).unlink(missing_ok=True)


def read_record(config: Config) -> RunRecord | None:
    """Return the mirror's record; None if there is none, or if it cannot be understood."""
    try:
        found = json.loads((config.mirror.state_dir / _NAME).read_text(encoding="utf-8"))
        return _from_json(found)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def _from_json(found: Mapping[str, Any]) -> RunRecord:
    if found["version"] != 1:
        raise ValueError(found["version"])
    reloads = tuple(
        ReloadOutcome(
            float(entry["began"]), tuple(map(str, entry["changed"])), entry["refused"], entry["hint"]
        )
        for entry in found["reloads"]
    )
    return RunRecord(int(found["pid"]), int(found["started"]), str(found["file"]), reloads)


def _start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since the machine did; None if it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may contain spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in ("Z", "X") else int(fields[_STARTED])
