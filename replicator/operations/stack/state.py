"""Define the state of a stack, and the file `stack.json` by which a later process finds it."""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from replicator.errors import StackError
from replicator.operations.stack.process import Child

Part = Literal["mysql", "kafka", "connect", "registry"]
PARTS: tuple[Part, ...] = ("mysql", "kafka", "connect", "registry")
USUAL_PARTS: tuple[Part, ...] = ("mysql", "kafka", "connect")
"""The parts that are started by default; only events in Avro need a registry."""
STATE_VERSION = 1
_REGISTRY_API: Final = "/apis/ccompat/v7"
"""Path of the Confluent-compatible API of the schema registry (Apicurio)."""


def registry_api(port: int) -> str:
    """Return the URL of the registry's Confluent-compatible API."""
    return f"http://127.0.0.1:{port}{_REGISTRY_API}"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the parts of a running stack. A part that was not started has port 0 or an empty address."""

    mysql_host: str = "127.0.0.1"
    mysql_port: int = 0
    mysql_version: str = ""
    """Such as 8.0.33; empty if unknown, as for a container."""
    mysql_root_password: str = field(default="", repr=False)
    mysql_user: str = "replicator"
    """A user with only the privileges that Debezium and this engine need."""
    mysql_password: str = field(default="", repr=False)
    bootstrap_servers: str = ""
    connect_url: str = ""
    registry_url: str = ""
    """The schema registry's Confluent-compatible API."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """The current state of one part: its process, address and log; `healthy` once it responds to requests."""

    part: Part
    running: bool
    healthy: bool
    pid: int | None
    address: str
    log: str


@dataclass(frozen=True, slots=True)
class PartState:
    """One part as it was started; `ports` by use. `stopping` is set before it is asked to stop."""

    part: Part
    child: Child
    ports: dict[str, int]
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class StackState:
    """The state that a later process needs: the started parts and MySQL's passwords."""

    provider: Literal["local", "docker"] = "local"
    root_password: str = field(default="", repr=False)
    user_password: str = field(default="", repr=False)
    parts: dict[Part, PartState] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """The ports of the last start, by use; the next start reuses them if they are free."""
    mysql_version: str = ""
    """Version of the MySQL server that was started last; empty for a container."""

    def with_part(self, part: PartState) -> "StackState":
        """Return a copy in which this part is the running one."""
        return replace(self, parts={**self.parts, part.part: part}, ports={**self.ports, **part.ports})

    def endpoints(self) -> Endpoints:
        """Return the addresses of the started parts."""
        # Docker knows its containers itself, so only a local stack records its parts.
        ports = dict(self.ports) if self.provider == "docker" else {}
        for part in self.parts.values():
            ports |= part.ports
        return Endpoints(
            mysql_port=ports.get("mysql", 0),
            mysql_version=self.mysql_version if "mysql" in ports else "",
            mysql_root_password=self.root_password,
            mysql_password=self.user_password,
            bootstrap_servers=f"127.0.0.1:{ports['kafka']}" if "kafka" in ports else "",
            connect_url=f"http://127.0.0.1:{ports['connect']}" if "connect" in ports else "",
            registry_url=registry_api(ports["registry"]) if "registry" in ports else "",
        )


_STATES: Final = TypeAdapter(StackState)


def load_state(folder: Path) -> StackState | None:
    """Load the stack of a folder; None if there never was one. Raises StackError if the file is damaged."""
    path = folder / "stack.json"
    try:
        raw = json.loads(path.read_text())
        if raw.pop("version") != STATE_VERSION:
            raise StackError(
                f"{path} was written by another version", "stop its processes and remove the folder"
            )
        return _STATES.validate_python({**raw, "parts": raw["parts"]})
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StackError(f"{path} is damaged: {error}", "stop its processes and remove the folder") from error


def save_state(folder: Path, state: StackState) -> None:
    """Write the file atomically, readable only by its owner, since it contains passwords."""
    path, fresh = folder / "stack.json", folder / "stack.json.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        json.dump({"version": STATE_VERSION, **asdict(state)}, handle, indent=1)
    fresh.replace(path)
