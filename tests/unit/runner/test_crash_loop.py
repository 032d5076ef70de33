"""Mirrors that end again and again before their first batch."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from replicator.errors import LakeUnavailable, MirrorRuns
from replicator.runner.crash_loop import CrashLoop, delay_s

KILLED = """
import os, signal, sys
from pathlib import Path
from replicator.runner.crash_loop import CrashLoop
with CrashLoop(Path(sys.argv[1])).watching():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def start(folder: Path, error: Exception | None = None, *, batch: bool = False) -> list[float]:
    """Start a mirror, and return how long it waited before."""
    loop, waits = CrashLoop(folder), list[float]()
    with suppress(LakeUnavailable, KeyError, MirrorRuns), loop.watching(waits.append):
        if batch:
            loop.progressed()
        if error is not None:
            raise error
    return waits


def test_delays_double_up_to_a_minute() -> None:
    assert [delay_s(n) for n in (0, 3, 4, 5, 6, 20)] == [0, 0, 10, 20, 40, 60]


@pytest.mark.fault(
    "The mirror ends again and again before its first batch",
    area="Process",
    on="no servers",
    outcome="starts are delayed up to a minute, and reported",
)
def test_failed_starts_delay_the_following_ones_and_are_reported(tmp_path: Path) -> None:
    gone = LakeUnavailable("no room", "free some")
    assert [start(tmp_path, gone) for _ in range(6)] == [[], [], [], [], [10], [20]]
    with capture_logs() as logs:
        start(tmp_path, KeyError("x"))
    assert [(line["times"], line["reason"]) for line in logs] == [(6, "no room")]
    with capture_logs() as logs:
        start(tmp_path)
    assert [line["reason"] for line in logs] == ["KeyError: 'x'"]
    # It ended without an error.
    assert start(tmp_path, gone) == []


def test_process_that_is_killed_counts(tmp_path: Path) -> None:
    for _ in range(3):
        start(tmp_path, KeyError("x"))
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -9
    with capture_logs() as logs:
        assert start(tmp_path) == [10]
    assert logs[0]["reason"] == "the process was killed"


def test_mirror_runs_and_names_its_error_if_starts_cannot_be_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("not a folder")
    with (
        capture_logs() as logs,
        pytest.raises(LakeUnavailable, match="no room"),
        CrashLoop(folder).watching(),
    ):
        raise LakeUnavailable("no room")
    assert {line["event"] for line in logs} == {"the start of the mirror could not be recorded"}


def test_old_and_unreadable_records_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    path.write_text(json.dumps([{"at_ms": 1, "reason": "long ago"}] * 9))
    assert start(tmp_path, LakeUnavailable("no room")) == []
    path.write_text('[{"at_ms": 1')
    assert start(tmp_path, LakeUnavailable("no room")) == []
    assert path.stat().st_mode & 0o077 == 0
