"""Child processes and ports."""

import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from replicator.errors import StackError
from replicator.operations.stack import process
from replicator.operations.stack.process import Child, healthy_before_end, spawn, tail, wait_until_healthy


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


def test_child_ends_on_stop_when_it_is_suspended(tmp_path: Path) -> None:
    child = python(SLEEP, tmp_path / "log")
    child.signal(signal.SIGSTOP)
    assert child.alive()
    child.stop(10)
    assert not child.alive()


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


def test_spawn_fails_when_the_program_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot start /nowhere/mysqld: No such file"):
        spawn(["/nowhere/mysqld"], tmp_path / "log")


def test_wait_until_healthy_shows_the_end_of_the_log_when_the_part_ends(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    child = python("import sys; sys.exit('the port is taken')", log)
    with pytest.raises(StackError, match="MySQL stopped during its start") as caught:
        wait_until_healthy("MySQL", child, log, lambda: False, seconds=20)
    assert "the port is taken" in (caught.value.hint or "")
    assert str(log) in (caught.value.hint or "")


def test_wait_until_healthy_fails_when_the_part_never_responds(tmp_path: Path) -> None:
    child = python(SLEEP, tmp_path / "log")
    try:
        with pytest.raises(StackError, match="did not respond within 0 s"):
            wait_until_healthy("Kafka", child, tmp_path / "log", lambda: False, seconds=0.1)
    finally:
        child.kill()


def test_a_server_that_responds_once_while_it_stops_is_not_healthy(tmp_path: Path) -> None:
    child = python(SLEEP, tmp_path / "log")
    looks: list[bool] = []

    def healthy() -> bool:
        looks.append(len(looks) == 1)
        if len(looks) == 3:
            child.kill()
        return looks[-1]

    assert not healthy_before_end(child, healthy, seconds=20, settle_seconds=2)
    assert looks[:3] == [False, True, False]


def test_tail_returns_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == "(no log was written)"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert tail(log, 2) == "  line 98\n  line 99"


def test_free_port_returns_distinct_unused_ports() -> None:
    taken: set[int] = set()
    first, second = process.free_port(taken), process.free_port(taken)
    assert taken == {first, second}
    assert all(20_000 <= port < 31_000 for port in taken)
    with socket.socket() as server:
        server.bind(("127.0.0.1", first))
        server.listen()
        assert not process.port_is_free(first)
        assert process.accepts(first)
        assert f"(process {os.getpid()})" in process.holder_of(first)
    assert not process.accepts(first)
    assert process.port_is_free(first)
    assert process.holder_of(first) == "another process"
