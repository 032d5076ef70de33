"""What a stack is, and the file `stack.json` in which a later process finds it again."""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from replicator.errors import StackError
from replicator.stack import registry
from replicator.stack.process import Child

Part = Literal["mysql", "kafka", "connect", "registry"]
PARTS: tuple[Part, ...] = ("mysql", "kafka", "connect", "registry")
USUAL_PARTS: tuple[Part, ...] = ("mysql", "kafka", "connect")
"""What is started where nothing else is asked for; only events in Avro need a registry."""
STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the parts of a running stack are. A part that was not started has port 0 or an empty address."""

    mysql_host: str = "127.0.0.1"
    mysql_port: int = 0
    mysql_root_password: str = field(default="", repr=False)
    mysql_user: str = "replicator"
    """A user with just the privileges that Debezium and this engine need."""
    mysql_password: str = field(default="", repr=False)
    bootstrap_servers: str = ""
    connect_url: str = ""
    registry_url: str = ""
    """The schema registry's Confluent-compatible API."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One part as it is now: its process, its address, its log; `healthy` once it answers requests."""

    part: Part
    running: bool
    healthy: bool
    pid: int | None
    address: str
    log: str


@dataclass(frozen=True, slots=True)
class PartState:
    """One part as it was started; `ports` by use."""

    part: Part
    child: Child
    ports: dict[str, int]


@dataclass(frozen=True, slots=True)
class StackState:
    """All that a later process needs: the parts that were started and MySQL's passwords."""

    provider: Literal["local", "docker"] = "local"
    root_password: str = field(default="", repr=False)
    user_password: str = field(default="", repr=False)
    parts: dict[Part, PartState] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """The ports of the last start, by use; the next one takes them again where they are free."""

    def with_part(self, part: PartState) -> "StackState":
        """A copy in which this part is the one running."""
        return replace(self, parts={**self.parts, part.part: part}, ports={**self.ports, **part.ports})

    def endpoints(self) -> Endpoints:
        """The addresses of the parts that were started."""
        # Docker knows its containers itself, so only a local stack notes its parts.
        ports = dict(self.ports) if self.provider == "docker" else {}
        for part in self.parts.values():
            ports |= part.ports
        return Endpoints(
            mysql_port=ports.get("mysql", 0),
            mysql_root_password=self.root_password,
            mysql_password=self.user_password,
            bootstrap_servers=f"127.0.0.1:{ports['kafka']}" if "kafka" in ports else "",
            connect_url=f"http://127.0.0.1:{ports['connect']}" if "connect" in ports else "",
            registry_url=registry.api(ports["registry"]) if "registry" in ports else "",
        )


def load_state(folder: Path) -> StackState | None:
    """The stack of a folder; None where there never was one. Raises StackError where the file is damaged."""
    path = folder / "stack.json"
    try:
        raw = json.loads(path.read_text())
        if raw.pop("version") != STATE_VERSION:
            raise StackError(
                f"{path} was written by another version", "stop its processes and remove the folder"
            )
        parts = {name: _part(value) for name, value in raw.pop("parts").items()}
        return StackState(**raw, parts=parts)
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise StackError(f"{path} is damaged: {error}", "stop its processes and remove the folder") from error


def _part(raw: dict[str, Any]) -> PartState:
    return PartState(raw["part"], Child(**raw["child"]), raw["ports"])


def save_state(folder: Path, state: StackState) -> None:
    """Write the file in one step, readable by its owner alone, since it holds passwords."""
    path, fresh = folder / "stack.json", folder / "stack.json.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        json.dump({"version": STATE_VERSION, **asdict(state)}, handle, indent=1)
    fresh.replace(path)
