"""Notices that a mirror ends again and again before its first batch, and delays its starts.

Whatever restarts it, such as systemd, would otherwise start Java and read the lake every few seconds, and the reason
would be lost in the log. The starts without a batch are kept in a file, so a killed process counts too.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from replicator.errors import ConfigError, UsageError
from replicator.jvm.spark import first_line
from replicator.model.common import now_ms
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")
_FILE: Final = "starts.json"
_FEWEST: Final = 4
"""Number of such ends from which on starts are delayed."""
_WITHIN_MS: Final = 30 * 60 * 1000
"""Earlier ends do not count."""
_FIRST_DELAY_S: Final = 10.0
_LONGEST_DELAY_S: Final = 60.0
_KILLED: Final = "the process was killed"


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A process that ended before its first batch, or has not made one yet.

    Attributes:
        at_ms: when it started, milliseconds since the epoch.
        reason: why it ended.
    """

    at_ms: int
    reason: str = _KILLED


def delay_s(failures: int) -> float:
    """Return how long to wait before the start that follows `failures` failed ones, in seconds."""
    if failures < _FEWEST:
        return 0.0
    return float(min(_FIRST_DELAY_S * 2 ** (failures - _FEWEST), _LONGEST_DELAY_S))


class CrashLoop:
    """The failed starts of a mirror, kept in its folder for state."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._failures: list[FailedStart] = []

    @contextmanager
    def watching(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
        """Count the process while the block runs, until `progressed` is called. Wait before the block if it is due."""
        self._failures = self._recent()
        if wait := delay_s(len(self._failures)):
            _LOG.error(
                "the mirror ends again and again before its first batch",
                times=len(self._failures),
                reason=self._failures[-1].reason,
                in_seconds=wait,
                next="remove the cause; the start is only delayed",
            )
            sleep(wait)
        before = self._failures
        self._write([*before, FailedStart(now_ms())])
        try:
            yield
        except (UsageError, ConfigError):
            # Nothing was tried.
            if self._failures:
                self._write(before)
            raise
        except Exception as error:
            if self._failures:
                self._write([*before, FailedStart(self._failures[-1].at_ms, first_line(error)[:300])])
            raise
        self.progressed()

    def progressed(self) -> None:
        """Forget the failed starts: the mirror works."""
        if self._failures:
            self._write([])

    def _recent(self) -> list[FailedStart]:
        try:
            found = [FailedStart(**entry) for entry in json.loads(self._path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):
            # Mostly there is none. Without a record, starts are not delayed.
            return []
        return [start for start in found if start.at_ms >= now_ms() - _WITHIN_MS]

    def _write(self, starts: list[FailedStart]) -> None:
        self._failures = starts
        try:
            self._replace(starts)
        except OSError as error:
            # A full disk must neither end the mirror nor hide why it ends.
            _LOG.warning("the start of the mirror could not be recorded", reason=str(error))

    def _replace(self, starts: list[FailedStart]) -> None:
        if not starts:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._path.with_suffix(".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump([asdict(start) for start in starts], file)
        draft.replace(self._path)
