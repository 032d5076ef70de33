"""Child processes and ports."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from replicator.errors import StackError
from replicator.operations.stack.process import Child, spawn, wait_until_healthy


def python(code: str, log: Path) -> Child:
    return spawn([sys.executable, "-c", code], log)


SLEEP = "import time; time.sleep(60)"


def test_child_has_its_own_session_and_ends_on_stop(tmp_path: Path) -> None:
    child = python(SLEEP, tmp_path / "log")
    assert child.alive()
    assert os.getpgid(child.pid) == child.pid
    assert os.getsid(child.pid) == child.pid
    child.stop(10)
    assert not child.alive()
    child.stop(0)  # nothing more to do, and no error


def test_child_is_killed_when_it_ignores_sigterm(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = "import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    child = python(f"{code}; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)", tmp_path / "log")
    wait_until_healthy("it", child, tmp_path / "log", ready.exists, seconds=20)
    child.stop(0.1)
    assert not child.alive()


def test_child_kill_ends_the_whole_process_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import pathlib, subprocess
other = subprocess.Popen(["sleep", "60"])
pathlib.Path({str(pids)!r}).write_text(str(other.pid))
other.wait()
"""
    child = python(code, tmp_path / "log")
    wait_until_healthy(
        "it", child, tmp_path / "log", lambda: pids.exists() and bool(pids.read_text()), seconds=20
    )
    grandchild = psutil.Process(int(pids.read_text()))
    child.kill()
    grandchild.wait(10)
    assert not child.alive()


def test_child_is_never_signalled_when_its_process_id_was_reused(tmp_path: Path) -> None:
    child = python(SLEEP, tmp_path / "log")
    try:
        earlier = replace(child, started=child.started - 3600)
        assert not earlier.alive()
        earlier.signal(signal.SIGKILL)
        earlier.kill()
        assert child.alive()
    finally:
        child.kill()


def test_spawn_closes_inherited_locks_and_pipes_in_the_child(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    child = python(SLEEP, tmp_path / "log")
    try:
        os.close(write)
        # The read returns only if no process has the other end of the pipe open.
        assert os.read(read, 1) == b""
    finally:
        child.kill()
        os.close(read)


def test_wait_until_healthy_shows_the_end_of_the_log_when_the_part_ends(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    child = python("import sys; sys.exit('the port is taken')", log)
    with pytest.raises(StackError, match="MySQL stopped during its start") as caught:
        wait_until_healthy("MySQL", child, log, lambda: False, seconds=20)
    assert "the port is taken" in (caught.value.hint or "")
    assert str(log) in (caught.value.hint or "")
