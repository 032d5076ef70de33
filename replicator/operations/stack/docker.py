"""Run the stack as containers, for machines with a Docker engine and without Java or MySQL.

The containers are those of `compose/compose.yaml`. They share one network, whose ports are published
under the same numbers: an address is the same inside and outside.
"""

import hashlib
import secrets
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from replicator.config.paths import resource
from replicator.errors import StackError
from replicator.jvm.jars import converter_plugin_dir, debezium_plugin_dir
from replicator.operations.stack.process import free_port
from replicator.operations.stack.programs import responds
from replicator.operations.stack.state import (
    PARTS,
    USUAL_PARTS,
    Endpoints,
    Part,
    PartStatus,
    StackState,
    load_state,
    save_state,
)

COMPOSE = "compose/compose.yaml"
_KEPT = "kept for the registry"


def docker_answers() -> bool:
    """Return whether a Docker engine with the compose plugin is available."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    probes = ([docker, "info"], [docker, "compose", "version"])
    return all(subprocess.run(probe, capture_output=True, check=False).returncode == 0 for probe in probes)


class DockerStack:
    """The same parts as `LocalStack`, as containers; the folder contains only ports and passwords.

    Methods raise StackError.
    """

    def __init__(
        self, folder: Path, report: Callable[[str], None] | None = None, cache: Path | None = None
    ) -> None:
        self.folder = folder.absolute()
        self._report = report or (lambda _line: None)
        self._cache = cache

    def up(self, *, registry: bool = False) -> Endpoints:
        """Start the containers, optionally with a schema registry, and wait until all parts respond."""
        if not docker_answers():
            raise StackError("no Docker engine responds", "start it, or omit --docker")
        state = self._state(registry=registry)
        self.folder.mkdir(parents=True, exist_ok=True)
        save_state(self.folder, state)
        self._report("starting the containers")
        self._run(lambda compose: compose.start(), state)
        return state.endpoints()

    def down(self) -> list[Part]:
        """Stop and remove the containers, including their data."""
        state = load_state(self.folder)
        if state is None:
            return []
        self._run(lambda compose: compose.stop(), state)
        (self.folder / "stack.json").unlink()
        return [part for part in PARTS if part in state.ports]

    def status(self) -> list[PartStatus]:
        """Return the current state of every part, as far as it is visible from outside its container."""
        state = load_state(self.folder) or StackState("docker")
        found = []
        for part in PARTS:
            up = part in state.ports and responds(part, state)
            address = f"127.0.0.1:{state.ports[part]}" if part in state.ports else ""
            found.append(PartStatus(part, up, up, None, address, f"docker compose logs {part}"))
        return found

    def _state(self, *, registry: bool) -> StackState:
        state = load_state(self.folder)
        if state is not None:
            if state.provider != "docker":
                raise StackError(
                    f"{self.folder} contains a local stack",
                    "run `replicator stack down`, then remove the folder",
                )
        else:
            taken: set[int] = set()
            # All ports belong to Kafka's container, which must not be recreated when a registry is added later.
            ports: dict[str, int] = {use: free_port(taken) for use in (*USUAL_PARTS, _KEPT)}
            state = StackState("docker", secrets.token_hex(16), secrets.token_hex(16), ports=ports)
        if registry:
            kept = state.ports.get(_KEPT) or free_port(set(state.ports.values()))
            state = replace(state, ports=state.ports | {_KEPT: kept, "registry": kept})
        return state

    def _run(self, action: Callable[[Any], None], state: StackState) -> None:
        try:
            from testcontainers.compose import DockerCompose  # noqa: PLC0415 -- an optional dependency
        except ImportError as error:
            raise StackError("testcontainers is not installed", "pip install 'replicator[docker]'") from error
        settings = self.folder / "compose.env"
        settings.touch(mode=0o600)
        settings.write_text("".join(f"{name}={value}\n" for name, value in self.environment(state).items()))
        file = resource(COMPOSE)
        compose = DockerCompose(file.parent, file.name, wait=True, env_file=str(settings))
        try:
            action(compose)
        except subprocess.CalledProcessError as error:
            reason = (error.stderr or b"").decode(errors="replace").strip().splitlines()
            raise StackError(
                f"docker compose failed: {reason[-1] if reason else f'code {error.returncode}'}",
                f"see: docker compose -f {file} --env-file {settings} logs",
            ) from error

    def environment(self, state: StackState) -> dict[str, str]:
        """Return the variables of compose.yaml."""
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        return {
            "COMPOSE_PROJECT_NAME": f"replicator-{digest}",
            "MYSQL_PORT": str(state.ports["mysql"]),
            "KAFKA_PORT": str(state.ports["kafka"]),
            "CONNECT_PORT": str(state.ports["connect"]),
            "MYSQL_ROOT_PASSWORD": state.root_password,
            "MYSQL_PASSWORD": state.user_password,
            "DEBEZIUM_PLUGINS": str(debezium_plugin_dir(self._cache)),
            "CONVERTER_PLUGINS": str(converter_plugin_dir(self._cache)),
            # A stack created before it had a registry has no port for one, and does not start one.
            "REGISTRY_PORT": str(state.ports.get(_KEPT, 0)),
            # The registry is a service that compose starts only with its profile.
            "COMPOSE_PROFILES": "registry" if "registry" in state.ports else "",
        }
