"""The stack as child processes of this machine, supervised from a state folder."""

import fcntl
import secrets
import shutil
import signal
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from replicator.errors import StackError
from replicator.jars import converter_plugin_dir, debezium_plugin_dir, find_java, kafka_jars, registry_jar
from replicator.stack import kafka, mysql, registry
from replicator.stack.process import (
    Child,
    accepts,
    free_port,
    holder_of,
    port_is_free,
    spawn,
    wait_until_healthy,
)
from replicator.stack.state import (
    PARTS,
    USUAL_PARTS,
    Endpoints,
    Part,
    PartState,
    PartStatus,
    StackState,
    load_state,
    save_state,
)

NAMES: dict[Part, str] = {
    "mysql": "MySQL",
    "kafka": "the Kafka broker",
    "connect": "the Kafka Connect worker",
    "registry": "the schema registry",
}
PORT_USES: dict[Part, tuple[str, ...]] = {
    "mysql": ("mysql",),
    "kafka": ("kafka", "kafka_controller"),
    "connect": ("connect",),
    "registry": ("registry",),
}
PATIENCE: dict[Part, float] = {"mysql": 30, "kafka": 20, "connect": 20, "registry": 20}
"""Seconds that a part has for a clean end before it is killed."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of a start. `ports` holds wanted ports by use (mysql, kafka, connect, registry); others are free ones."""

    cache: Path | None = None
    ports: dict[str, int] = field(default_factory=dict)
    start_seconds: float = 120
    report: Report | None = None


class LocalStack:
    """A MySQL server, a Kafka broker, a Connect worker and a registry whose data, logs and state lie in one folder.

    As a context manager it starts the usual parts and stops them at the end. Without, they outlive this process:
    `up` returns when all parts answer, and a later process finds them again by the same folder. Data stay
    in the folder between `down` and the next `up`. All methods raise StackError.
    """

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder = folder.absolute()
        self.options = options or Options()
        self._saving = Lock()
        self._cancelled = False

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def endpoints(self) -> Endpoints:
        """The addresses and passwords of the stack that runs. Raises StackError where none does."""
        return self._running_state().endpoints()

    def up(self, parts: Collection[Part] = USUAL_PARTS) -> Endpoints:
        """Start what is not running of `parts`, side by side, and wait until all of it answers.

        Connect needs Kafka, which is then started too. Where one part fails, those that this call started
        are stopped again.
        """
        wanted = [part for part in PARTS if part in parts or (part == "kafka" and "connect" in parts)]
        with self._locked():
            state = self._prepare(load_state(self.folder) or StackState())
            missing = [
                part for part in wanted if part not in state.parts or not state.parts[part].child.alive()
            ]
            if not missing:
                return state.endpoints()
            state = self._with_ports(state, missing)
            save_state(self.folder, state)
            self._start_all(missing)
            return self._running_state().endpoints()

    def down(self) -> list[Part]:
        """Stop all parts, Connect first; returns those that ran. Data and logs stay in the folder."""
        with self._locked():
            return self._stop(PARTS)

    def status(self) -> list[PartStatus]:
        """Every part as it is now."""
        state = load_state(self.folder) or StackState()
        return [self._status(part, state) for part in PARTS]

    def kill(self, part: Part) -> None:
        """End one part at once with SIGKILL, as a crash would; its data and port stay for `restart`."""
        self._part(part).child.kill()

    def pause(self, part: Part) -> None:
        """Freeze one part: it keeps its connections and answers nothing until `resume`."""
        self._part(part).child.signal(signal.SIGSTOP)

    def resume(self, part: Part) -> None:
        """Let a frozen part go on."""
        self._part(part).child.signal(signal.SIGCONT)

    def restart(self, part: Part) -> None:
        """Start one part again, on the same port and data. A part that runs is stopped cleanly first."""
        with self._locked():
            self._part(part).child.stop(PATIENCE[part])
            self._cancelled = False
            self._launch(part)

    def log(self, part: Part) -> Path:
        """The file with a part's output."""
        return self.folder / part / f"{part}.log"

    # Starting

    def _prepare(self, state: StackState) -> StackState:
        if state.provider != "local":
            raise StackError(
                f"{self.folder} holds a Docker stack", "run `replicator stack down` for it first"
            )
        if state.root_password:
            return state
        return replace(state, root_password=secrets.token_hex(16), user_password=secrets.token_hex(16))

    def _with_ports(self, state: StackState, missing: Collection[Part]) -> StackState:
        """The state with a port for every use: the one asked for, else the last one, else a free one."""
        taken = set(state.ports.values()) | set(self.options.ports.values())
        ports = dict(state.ports)
        for part in missing:
            for use in PORT_USES[part]:
                asked = self.options.ports.get(use)
                if asked and not port_is_free(asked):
                    raise StackError(
                        f"port {asked} for {NAMES[part]} is taken by {holder_of(asked)}",
                        "choose another port",
                    )
                last = ports.get(use)
                ports[use] = asked or (last if last and port_is_free(last) else free_port(taken))
        return replace(state, ports=ports)

    def _start_all(self, parts: Collection[Part]) -> None:
        """Start the parts side by side. Connect starts along with Kafka, for which it waits by itself."""
        if set(parts) != {"mysql"}:
            find_java()
            self._report("fetching what is not yet in the cache")
        if {"kafka", "connect"} & set(parts):
            kafka_jars(self.options.cache)
            self._plugins()
        if "registry" in parts:
            registry_jar(self.options.cache)
        self._cancelled = False
        with ThreadPoolExecutor(len(parts)) as pool:
            tasks = [pool.submit(self._launch, part) for part in parts]
            try:
                for task in wait(tasks, return_when=FIRST_EXCEPTION).done:
                    task.result()
            except BaseException:
                # The first failure, or Ctrl-C, ends the others at once: what waits for them sees them end.
                with self._saving:
                    self._cancelled = True
                self._stop(parts)
                raise

    def _launch(self, part: Part) -> None:
        """Start one part, note it in the state, and wait until it answers."""
        state = self._running_state()
        self._report(f"starting {NAMES[part]}")
        commands = {
            "mysql": self._mysql,
            "kafka": self._kafka,
            "connect": self._connect,
            "registry": self._registry,
        }
        command = commands[part](state)
        ports = {use: state.ports[use] for use in PORT_USES[part]}
        with self._saving:
            if self._cancelled:
                raise StackError(f"{NAMES[part]} was not started, because another part failed")
            child = spawn(command, self.log(part))
            save_state(self.folder, self._running_state().with_part(PartState(part, child, ports)))
        wait_until_healthy(
            NAMES[part],
            child,
            self.log(part),
            lambda: self._healthy(part, self._running_state()),
            seconds=self.options.start_seconds,
        )
        self._report(f"{NAMES[part]} is up")

    def _mysql(self, state: StackState) -> list[str]:
        program = mysql.find_mysqld(self.options.cache)
        data = self.folder / "mysql" / "data"
        if not data.exists():
            mysql.initialize(program, data, self.log("mysql"), state.root_password, state.user_password)
        return mysql.server_command(program, data, state.ports["mysql"])

    def _kafka(self, state: StackState) -> list[str]:
        folder = self.folder / "kafka"
        properties = folder / "broker.properties"
        settings = kafka.broker_settings(folder, state.ports["kafka"], state.ports["kafka_controller"])
        kafka.write_properties(properties, settings)
        kafka.format_storage(folder, properties, self.log("kafka"), self.options.cache)
        return kafka.broker_command(folder, properties, self.options.cache)

    def _connect(self, state: StackState) -> list[str]:
        folder = self.folder / "connect"
        properties = folder / "worker.properties"
        settings = kafka.worker_settings(
            state.ports["connect"],
            f"127.0.0.1:{state.ports['kafka']}",
            self._plugins(),
        )
        kafka.write_properties(properties, settings)
        return kafka.worker_command(folder, properties, self.options.cache)

    def _plugins(self) -> list[Path]:
        return [debezium_plugin_dir(self.options.cache), converter_plugin_dir(self.options.cache)]

    def _registry(self, state: StackState) -> list[str]:
        return registry.server_command(self.folder / "registry", state.ports["registry"], self.options.cache)

    # Looking and stopping

    def _healthy(self, part: Part, state: StackState) -> bool:
        port = state.ports[part]
        if not accepts(port):
            return False
        match part:
            case "mysql":
                return mysql.answers(port, state.root_password)
            case "kafka":
                return kafka.broker_answers(f"127.0.0.1:{port}")
            case "connect":
                return kafka.worker_answers(f"http://127.0.0.1:{port}")
            case "registry":
                return registry.answers(port)

    def _status(self, part: Part, state: StackState) -> PartStatus:
        known = state.parts.get(part)
        running = known is not None and known.child.alive()
        return PartStatus(
            part,
            running=running,
            healthy=running and self._healthy(part, state),
            pid=known.child.pid if known and running else None,
            address=f"127.0.0.1:{known.ports[part]}" if known else "",
            log=str(self.log(part)),
        )

    def _stop(self, parts: Collection[Part]) -> list[Part]:
        state = load_state(self.folder)
        if state is None:
            return []
        stopped: list[Part] = []
        # Connect first: without its broker it would not end cleanly.
        for part in reversed([part for part in PARTS if part in parts and part in state.parts]):
            child: Child = state.parts[part].child
            if child.alive():
                self._report(f"stopping {NAMES[part]}")
                stopped.append(part)
            child.stop(PATIENCE[part])
            state = replace(state, parts={name: kept for name, kept in state.parts.items() if name != part})
            save_state(self.folder, state)
        return stopped

    def remove(self) -> None:
        """Stop all parts and delete the folder with all data."""
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _running_state(self) -> StackState:
        state = load_state(self.folder)
        if state is None:
            raise StackError(f"no stack was started in {self.folder}", "run `replicator stack up`")
        return state

    def _part(self, part: Part) -> PartState:
        state = self._running_state()
        if part not in state.parts:
            raise StackError(f"{NAMES[part]} was not started", "run `replicator stack up`")
        return state.parts[part]

    def _report(self, line: str) -> None:
        if self.options.report:
            self.options.report(line)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time changes a stack."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
