"""The calls of `docker compose`; the engine is a script that records its arguments."""

import json
import re
import stat
from pathlib import Path

import pytest

from replicator.config.paths import resource
from replicator.jvm.jars import CONVERTER, DEBEZIUM, MARKER
from replicator.operations.stack.docker import COMPOSE, DockerStack


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `docker` on PATH, and return the file that gets one line for each call."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return calls


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a cache that contains the plugins of Connect as empty jars."""
    folder = tmp_path / "cache"
    for plugin in (DEBEZIUM, CONVERTER):
        jar = plugin.directory(folder) / "lib" / "plugin.jar"
        jar.parent.mkdir(parents=True)
        jar.touch()
        (plugin.directory(folder) / MARKER).write_text(json.dumps({jar.name: 0}))
    return folder


def test_docker_stack_up_and_down_run_the_compose_file(engine: Path, cache: Path, tmp_path: Path) -> None:
    stack = DockerStack(tmp_path / "stack", cache=cache)
    found = stack.up()
    assert found.mysql_root_password
    assert (
        found.connect_url
        == f"http://127.0.0.1:{json.loads((stack.folder / 'stack.json').read_text())['ports']['connect']}"
    )
    assert stack.up() == found
    settings = stack.folder / "compose.env"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    given = dict(line.split("=", 1) for line in settings.read_text().splitlines())
    wanted = set(re.findall(r"(?<!\$)\$\{(\w+)", resource(COMPOSE).read_text()))
    assert wanted <= set(given)

    assert (found.registry_url, given["COMPOSE_PROFILES"]) == ("", "")

    assert (
        stack.up(registry=True).registry_url == f"http://127.0.0.1:{given['REGISTRY_PORT']}/apis/ccompat/v7"
    )
    assert "COMPOSE_PROFILES=registry" in settings.read_text().splitlines()
    assert stack.down() == ["mysql", "kafka", "connect", "registry"]
    assert stack.down() == []
    calls = engine.read_text()
    assert f"--env-file {settings} up" in calls
    assert f"--env-file {settings} down" in calls
    assert found.mysql_root_password not in calls
