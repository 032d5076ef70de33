"""Settings, command lines and the state file of the stack; its parts are replaced by sleeping programs."""

import os
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from replicator.errors import StackError
from replicator.operations.stack import LocalStack, Options, mysql
from replicator.operations.stack.docker import DockerStack
from replicator.operations.stack.mysql_program import MySqlProgram
from replicator.operations.stack.process import Child
from replicator.operations.stack.programs import Programs
from replicator.operations.stack.state import PartState, StackState, load_state, save_state
from tests.support.mirror import until

SLEEPING_SERVER = r"""#!/bin/sh
for word; do case "$word" in --datadir=*) data="${word#--datadir=}";; --initialize*) make=1;; esac; done
if [ "$make" ]; then mkdir "$data"; else exec sleep 60; fi
"""


class SleepingPrograms(Programs):
    """Programs that sleep and count as responding. `asked` has the requests for MySQL: (choice, last version)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: list[tuple[str, str]] = []
        self._server = folder / "mysqld"

    def fetch(self, *_: Any, **__: Any) -> None:
        pass

    def find_mysql(self, choice: str, last: str, *_: Any, **__: Any) -> MySqlProgram:
        self.asked.append((choice, last))
        self._server.write_text(SLEEPING_SERVER)
        self._server.chmod(0o755)
        return MySqlProgram((str(self._server),), version="8.0.33")

    def java_command(self, *_: Any, **__: Any) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(60)"]

    def responds(self, *_: Any, **__: Any) -> bool:
        return True


class NoMySql(SleepingPrograms):
    """Programs without MySQL, whose search fails after the broker was started, and a broker that never responds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.broker = 0

    def find_mysql(self, *_: Any, **__: Any) -> MySqlProgram:
        self.broker = until(self._started_broker, seconds=20, doing="start the broker")
        raise StackError("no mysqld on this machine")

    def _started_broker(self) -> int | None:
        state = load_state(self._folder)
        return state.parts["kafka"].child.pid if state and "kafka" in state.parts else None

    def responds(self, *_: Any, **__: Any) -> bool:
        return False


def test_mysqld_command_enables_what_change_capture_requires(tmp_path: Path) -> None:
    command = mysql.server_command(MySqlProgram(("/usr/sbin/mysqld",)), tmp_path / "data", 3307)
    assert command[:2] == ["/usr/sbin/mysqld", "--no-defaults"]
    assert {
        "--port=3307",
        "--bind-address=127.0.0.1",
        "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
    } <= set(command)
    assert ("--user=root" in command) == (os.geteuid() == 0)


def test_stack_state_is_restored_and_private(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    state = StackState("local", "secret-a", "secret-b").with_part(
        PartState("kafka", Child(42, 1.5), {"kafka": 9092, "kafka_controller": 9093})
    )
    save_state(tmp_path, state)
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state
    assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600
    assert "secret" not in repr(state)
    assert "secret" not in repr(state.endpoints())


@pytest.mark.parametrize("text", ["{", "{}", '{"version": 1}', '{"version": 9, "parts": {}}', "[]"])
def test_load_state_fails_with_the_name_of_a_damaged_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    with pytest.raises(StackError, match=r"stack\.json"):
        load_state(tmp_path)


def test_stack_up_starts_no_part_when_a_port_is_in_use(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        stack = LocalStack(tmp_path, Options(ports={"mysql": port}))
        with pytest.raises(StackError, match=f"port {port} for MySQL is in use by .*process {os.getpid()}"):
            stack.up({"mysql"})
    assert not (tmp_path / "stack.json").exists()
    assert not any(part.running for part in stack.status())
    assert stack.down() == []


def test_stack_up_stops_all_parts_when_one_fails(tmp_path: Path) -> None:
    programs = NoMySql(tmp_path)
    stack = LocalStack(tmp_path, programs=programs)
    before = time.monotonic()
    with pytest.raises(StackError, match="no mysqld"):
        stack.up({"mysql", "kafka"})
    assert time.monotonic() - before < 30
    assert not psutil.pid_exists(programs.broker)
    assert not any(part.running for part in stack.status())


def test_stack_kill_and_endpoints_fail_when_no_stack_was_started(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path)
    with pytest.raises(StackError, match="no stack was started"):
        stack.kill("kafka")
    with pytest.raises(StackError, match="no stack was started"):
        _ = stack.endpoints


def test_stack_up_fails_when_the_folder_contains_another_kind_of_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path, StackState("docker", "a", "b", ports={"mysql": 1, "kafka": 2, "connect": 3}))
    with pytest.raises(StackError, match="contains a Docker stack"):
        LocalStack(tmp_path).up()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    save_state(tmp_path, StackState("local", "a", "b"))
    with pytest.raises(StackError, match="contains a local stack"):
        DockerStack(tmp_path).up()
