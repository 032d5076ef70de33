"""Run the stack as child processes on this machine, supervised from a state folder."""

import secrets
import shutil
import signal
from collections.abc import Collection
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from replicator.errors import StackError
from replicator.locks import FileLock
from replicator.operations.stack import mysql
from replicator.operations.stack.process import (
    Child,
    Report,
    free_port,
    healthy_before_end,
    holder_of,
    port_is_free,
    spawn,
    wait_until_healthy,
)
from replicator.operations.stack.programs import Programs
from replicator.operations.stack.state import (
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
"""Seconds that a part has to stop cleanly before it is killed."""
SETTLE_S = 2.0
"""Seconds that a part which did not respond must respond before it counts as running."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a start. `ports` has wanted ports by use (mysql, kafka, connect, registry); others are free ones."""

    cache: Path | None = None
    ports: dict[str, int] = field(default_factory=dict)
    mysql: str = ""
    """The MySQL server to run: a version or a path, see `find_mysqld`. If empty, any available one."""
    mysql_arguments: tuple[str, ...] = ()
    """More arguments of the MySQL server; they override those of the stack."""
    start_seconds: float = 120
    report: Report | None = None


class LocalStack:
    """A MySQL server, a Kafka broker, a Connect worker and a registry with data, logs and state in one folder.

    As a context manager it starts the usual parts and stops them at the end. Otherwise they outlive this process:
    `up` returns when all parts respond, and a later process finds them again by the folder. Data remain
    in the folder between `down` and the next `up`. All methods raise StackError.
    """

    def __init__(
        self, folder: Path, options: Options | None = None, programs: Programs | None = None
    ) -> None:
        self.folder = folder.absolute()
        self.options = options or Options()
        self._programs = programs or Programs(self.folder, self.options.cache)
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
        """Return the addresses and passwords of the running stack. Raises StackError if none is running."""
        return self._running_state().endpoints()

    def up(self, parts: Collection[Part] = USUAL_PARTS) -> Endpoints:
        """Start those of `parts` that are not running, in parallel, and wait until all of them respond.

        Connect needs Kafka, which is then started too. If one part fails, the parts that this call started
        are stopped again. A part that is just stopping is started again once it has stopped.
        """
        wanted = [part for part in PARTS if part in parts or (part == "kafka" and "connect" in parts)]
        with self._locked():
            state = self._prepare(load_state(self.folder) or StackState())
            missing = [part for part in wanted if not self._answers_or_ends(part, state)]
            if not missing:
                return state.endpoints()
            state = self._with_ports(state, missing)
            save_state(self.folder, state)
            self._start_all(missing)
            return self._running_state().endpoints()

    def down(self) -> list[Part]:
        """Stop all parts, Connect first; return those that were running. Data and logs remain in the folder."""
        with self._locked():
            return self._stop(PARTS)

    def status(self) -> list[PartStatus]:
        """Return the current state of every part."""
        state = load_state(self.folder) or StackState()
        return [self._status(part, state) for part in PARTS]

    def kill(self, part: Part) -> None:
        """Kill one part with SIGKILL, as a crash would; its data and port remain for `restart`."""
        self._part(part).child.kill()

    def pause(self, part: Part) -> None:
        """Freeze one part: it keeps its connections and does not respond until `resume`."""
        self._part(part).child.signal(signal.SIGSTOP)

    def resume(self, part: Part) -> None:
        """Continue a frozen part."""
        self._part(part).child.signal(signal.SIGCONT)

    def restart(self, part: Part) -> None:
        """Restart one part on the same port and data. A running part is stopped cleanly first."""
        with self._locked():
            self._part(part).child.stop(PATIENCE[part])
            self._cancelled = False
            self._launch(part)

    def log(self, part: Part) -> Path:
        """Return the file with a part's output."""
        return self.folder / part / f"{part}.log"

    # Starting

    def _answers_or_ends(self, part: Part, state: StackState) -> bool:
        """Wait until a running part either responds (true) or has ended (false).

        Raises:
            StackError: neither happens within the time limit of a start.
        """
        known = state.parts.get(part)
        if known is None or not known.child.alive():
            return False
        if known.stopping:
            # A `down` was interrupted after it told the part to stop. It may still respond for a moment.
            known.child.stop(PATIENCE[part])
            return False
        if self._programs.responds(part, state):
            return True
        self._report(f"waiting for {NAMES[part]}, which is running but does not respond")
        try:
            return healthy_before_end(
                known.child,
                lambda: self._programs.responds(part, state),
                seconds=self.options.start_seconds,
                settle_seconds=SETTLE_S,
            )
        except TimeoutError:
            raise StackError(
                f"{NAMES[part]} is running (process {known.child.pid}) but does not respond",
                "stop it with `replicator stack down`, then start it again",
            ) from None

    def _prepare(self, state: StackState) -> StackState:
        if state.provider != "local":
            raise StackError(
                f"{self.folder} contains a Docker stack", "run `replicator stack down` for it first"
            )
        if state.root_password:
            return state
        return replace(state, root_password=secrets.token_hex(16), user_password=secrets.token_hex(16))

    def _with_ports(self, state: StackState, missing: Collection[Part]) -> StackState:
        """Return the state with a port for every use: the requested one, else the last one, else a free one."""
        taken = set(state.ports.values()) | set(self.options.ports.values())
        ports = dict(state.ports)
        for part in missing:
            for use in PORT_USES[part]:
                asked = self.options.ports.get(use)
                if asked and not port_is_free(asked):
                    raise StackError(
                        f"port {asked} for {NAMES[part]} is in use by {holder_of(asked)}",
                        "choose another port",
                    )
                last = ports.get(use)
                ports[use] = asked or (last if last and port_is_free(last) else free_port(taken))
        return replace(state, ports=ports)

    def _start_all(self, parts: Collection[Part]) -> None:
        """Start the parts in parallel. Connect starts together with Kafka and waits for it by itself."""
        self._programs.fetch(parts, self._report)
        self._cancelled = False
        with ThreadPoolExecutor(len(parts)) as pool:
            tasks = [pool.submit(self._launch, part) for part in parts]
            try:
                for task in wait(tasks, return_when=FIRST_EXCEPTION).done:
                    task.result()
            except BaseException:
                # The first failure, or Ctrl-C, stops the other parts at once, which ends the threads waiting for them.
                with self._saving:
                    self._cancelled = True
                self._stop(parts)
                raise

    def _launch(self, part: Part) -> None:
        """Start one part, record it in the state, and wait until it responds."""
        state = self._running_state()
        self._report(f"starting {NAMES[part]}")
        command = self._command(part, state)
        ports = {use: state.ports[use] for use in PORT_USES[part]}
        with self._saving:
            self._check_cancelled(part)
            child = spawn(command, self.log(part))
            save_state(self.folder, self._running_state().with_part(PartState(part, child, ports)))
        wait_until_healthy(
            NAMES[part],
            child,
            self.log(part),
            lambda: self._programs.responds(part, self._running_state()),
            seconds=self.options.start_seconds,
        )
        self._report(f"{NAMES[part]} is up")

    def _check_cancelled(self, part: Part) -> None:
        if self._cancelled:
            raise StackError(f"{NAMES[part]} was not started, because another part failed")

    def _command(self, part: Part, state: StackState) -> list[str]:
        if part == "mysql":
            return self._mysql(state)
        return self._programs.java_command(part, state, self.log(part))

    def _mysql(self, state: StackState) -> list[str]:
        data = self.folder / "mysql" / "data"
        last = state.mysql_version if data.exists() else ""
        program = self._programs.find_mysql(self.options.mysql, last, self._report)
        self._report(f"starting MySQL {program.version}")
        with self._saving:
            self._check_cancelled("mysql")
            save_state(self.folder, replace(self._running_state(), mysql_version=program.version))
        if not data.exists():
            passwords = state.root_password, state.user_password
            mysql.initialize(program, data, self.log("mysql"), *passwords, self.options.mysql_arguments)
        return [
            *mysql.server_command(program, data, state.ports["mysql"]),
            *self.options.mysql_arguments,
        ]

    # Looking and stopping

    def _status(self, part: Part, state: StackState) -> PartStatus:
        known = state.parts.get(part)
        running = known is not None and known.child.alive()
        return PartStatus(
            part,
            running=running,
            healthy=running and self._programs.responds(part, state),
            pid=known.child.pid if known and running else None,
            address=f"127.0.0.1:{known.ports[part]}" if known else "",
            log=str(self.log(part)),
        )

    def _stop(self, parts: Collection[Part], *, at_once: bool = False) -> list[Part]:
        state = load_state(self.folder)
        if state is None:
            return []
        stopped: list[Part] = []
        # Connect first: without its broker it would not stop cleanly.
        for part in reversed([part for part in PARTS if part in parts and part in state.parts]):
            child: Child = state.parts[part].child
            if child.alive():
                self._report(f"stopping {NAMES[part]}")
                stopped.append(part)
                with self._saving:
                    save_state(self.folder, state.with_part(replace(state.parts[part], stopping=True)))
            if at_once:
                child.kill()
            else:
                child.stop(PATIENCE[part])
            state = replace(state, parts={name: kept for name, kept in state.parts.items() if name != part})
            save_state(self.folder, state)
        return stopped

    def remove(self) -> None:
        """Kill all parts and delete the folder with all data."""
        with self._locked():
            self._stop(PARTS, at_once=True)
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

    def _locked(self) -> FileLock:
        """Let one process at a time change a stack."""
        return FileLock(self.folder / "lock", wait=True)
