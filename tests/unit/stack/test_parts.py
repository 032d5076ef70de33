"""Settings, command lines and the state file; no part is started."""

import os
import socket
import stat
import sys
import time
from pathlib import Path

import psutil
import pytest

from replicator.errors import StackError
from replicator.stack import LocalStack, Options, kafka, mysql, registry
from replicator.stack.docker import DockerStack
from replicator.stack.mysql import MySqlProgram
from replicator.stack.process import Child
from replicator.stack.state import PartState, StackState, load_state, save_state


def test_mysqld_writes_what_change_capture_needs(tmp_path: Path) -> None:
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


def debian_root(root: Path) -> Path:
    for name in ("lib64/ld-linux-x86-64.so.2", "usr/sbin/mysqld", "usr/lib/x86_64-linux-gnu/libz.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_mysqld_of_another_system_runs_by_its_own_loader(tmp_path: Path) -> None:
    root = debian_root(tmp_path / "root")
    program = mysql.program_in(root)
    assert program.command[0] == str(root / "lib64/ld-linux-x86-64.so.2")
    assert program.command[-1] == str(root / "usr/sbin/mysqld")
    assert str(root / "usr/lib/x86_64-linux-gnu") in program.command[2].split(":")
    assert f"--basedir={root / 'usr'}" in program.files
    with pytest.raises(StackError, match="incomplete"):
        mysql.program_in(tmp_path)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_mariadb_is_not_taken_for_mysql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = debian_root(tmp_path / "root")
    maria = script(tmp_path / "mariadbd", "echo 'mysqld  Ver 10.11.6-MariaDB for debian-linux-gnu'")
    real = script(tmp_path / "mysqld", "echo 'mysqld  Ver 9.7.4 for Linux on x86_64'")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("REPLICATOR_MYSQL_ROOT", str(root))
    monkeypatch.setenv("REPLICATOR_MYSQLD", str(maria))
    monkeypatch.setattr(mysql, "NAMES", ())
    assert mysql.find_mysqld().root == root
    monkeypatch.setenv("REPLICATOR_MYSQLD", str(real))
    assert mysql.find_mysqld() == MySqlProgram((str(real),))


def test_where_mysql_cannot_be_had_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StackError, match="no mysqld on this machine") as caught:
        mysql.make_root(tmp_path / "root")
    assert "install MySQL" in (caught.value.hint or "")
    assert "\n" not in (caught.value.hint or "")


def test_the_broker_keeps_events_and_runs_transactions_alone() -> None:
    settings = kafka.broker_settings(Path("/state/kafka"), 9092, 9093)
    assert settings["log.retention.ms"] == "-1"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert {value for name, value in settings.items() if name.endswith("replication.factor")} == {"1"}


def test_the_registry_keeps_its_schemas_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find_java", lambda: Path("/java"))
    monkeypatch.setattr(registry, "registry_jar", lambda _cache: Path("/app-runner.jar"))
    command = registry.server_command(tmp_path, 8080, None)
    assert command[-2:] == ["-jar", "/app-runner.jar"]
    assert f"-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{tmp_path}/data/registry" in command
    assert registry.api(8080) == "http://127.0.0.1:8080/apis/ccompat/v7"


def test_properties_are_written_for_java(tmp_path: Path) -> None:
    kafka.write_properties(tmp_path / "a" / "p", {"plugin.path": "/x", "odd": "a\\b"})
    assert (tmp_path / "a" / "p").read_text() == "plugin.path=/x\nodd=a\\\\b\n"


def test_state_comes_back_as_it_was_and_is_private(tmp_path: Path) -> None:
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


def test_endpoints_name_only_what_was_started() -> None:
    state = StackState(ports={"mysql": 1, "kafka": 2}).with_part(
        PartState("kafka", Child(1, 0), {"kafka": 9092})
    )
    found = state.endpoints()
    assert (found.bootstrap_servers, found.mysql_port, found.connect_url) == ("127.0.0.1:9092", 0, "")


@pytest.mark.parametrize("text", ["{", "{}", '{"version": 1}', '{"version": 9, "parts": {}}', "[]"])
def test_a_damaged_state_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    with pytest.raises(StackError, match=r"stack\.json"):
        load_state(tmp_path)


def test_a_taken_port_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        stack = LocalStack(tmp_path, Options(ports={"mysql": port}))
        with pytest.raises(StackError, match=f"port {port} for MySQL is taken by .*process {os.getpid()}"):
            stack.up({"mysql"})
    assert not (tmp_path / "stack.json").exists()
    assert not any(part.running for part in stack.status())
    assert stack.down() == []


def test_where_one_part_fails_the_others_are_stopped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def no_mysqld(stack: LocalStack, state: StackState) -> list[str]:
        deadline = time.monotonic() + 20
        while not (found := load_state(stack.folder)) or "kafka" not in found.parts:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        started.append(found.parts["kafka"].child.pid)
        raise StackError("no mysqld on this machine")

    monkeypatch.setattr("replicator.stack.local.find_java", lambda: Path("/java"))
    monkeypatch.setattr("replicator.stack.local.kafka_jars", lambda _cache: [])
    monkeypatch.setattr(LocalStack, "_plugins", lambda _stack: [])
    monkeypatch.setattr(LocalStack, "_mysql", no_mysqld)
    monkeypatch.setattr(
        LocalStack, "_kafka", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    stack = LocalStack(tmp_path)
    before = time.monotonic()
    with pytest.raises(StackError, match="no mysqld"):
        stack.up({"mysql", "kafka"})
    assert time.monotonic() - before < 30
    assert not psutil.pid_exists(started[0])
    assert not any(part.running for part in stack.status())


def test_parts_that_were_never_started(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path)
    with pytest.raises(StackError, match="no stack was started"):
        stack.kill("kafka")
    with pytest.raises(StackError, match="no stack was started"):
        _ = stack.endpoints


def test_a_folder_belongs_to_one_kind_of_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_state(tmp_path, StackState("docker", "a", "b", ports={"mysql": 1, "kafka": 2, "connect": 3}))
    with pytest.raises(StackError, match="holds a Docker stack"):
        LocalStack(tmp_path).up()
    monkeypatch.setattr("replicator.stack.docker.docker_answers", lambda: True)
    save_state(tmp_path, StackState("local", "a", "b"))
    with pytest.raises(StackError, match="holds a local stack"):
        DockerStack(tmp_path).up()


def test_no_docker_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="no Docker engine answers"):
        DockerStack(tmp_path / "stack").up()
    assert not (tmp_path / "stack").exists()
