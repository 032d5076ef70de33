"""Keep the record of a running mirror up to date; see `run_record`."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from replicator.config import Config
from replicator.errors import ReplicatorError
from replicator.model.common import now_ms
from replicator.runner.run_record import ReloadOutcome, RunRecord, write_record
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")
_WRITE_S: Final = 2.0
_KEPT: Final = 10
"""Number of reloads in the record."""
_LONGEST: Final = 500
"""Maximum length of the reason why a run ended."""


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
