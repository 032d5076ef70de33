"""Child processes that outlive their parent, found again by process id and start time."""

import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from replicator.errors import StackError

START_TIME_TOLERANCE = 2.0
"""Seconds. The system reports start times from boot time plus ticks, which shifts a little with the clock."""


@dataclass(frozen=True, slots=True)
class Child:
    """A started process: its id, which is also its process group's, and when it started (Unix seconds)."""

    pid: int
    started: float

    def process(self) -> psutil.Process | None:
        """The running process; None where it ended, also where its id belongs to another one by now."""
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.started) > START_TIME_TOLERANCE:
                return None
            return None if found.status() == psutil.STATUS_ZOMBIE else found
        except psutil.NoSuchProcess:
            return None

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all of its group; nothing happens where it ended already."""
        if self.process() is not None:
            os.killpg(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Whether the process ended within so many seconds. Reaps it where it is this process's child."""
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.started) <= START_TIME_TOLERANCE:
                found.wait(seconds)
        except psutil.NoSuchProcess:
            return True
        except psutil.TimeoutExpired:
            return False
        return True

    def stop(self, patience: float) -> None:
        """Ask the process to end; after `patience` seconds make it. Raises StackError where that fails."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a frozen process would not hear it
        if not self.wait(patience):
            self.kill()

    def kill(self) -> None:
        """End the process at once, as a power cut would. Raises StackError where it stays."""
        self.signal(signal.SIGKILL)
        if not self.wait(10):
            raise StackError(
                f"process {self.pid} cannot be ended", "look at it with ps, or restart the machine"
            )


def spawn(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Child:
    """Start a program in a session of its own, so that no Ctrl-C reaches it; its output goes to `log`.

    Raises StackError where the program cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            command[0],
            list(command),
            {**os.environ, **(env or {})},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                # A lock or pipe that this process was itself handed must not live as long as the child.
                *((os.POSIX_SPAWN_CLOSE, number) for number in _inheritable()),
            ],
            setsid=True,
        )
    except OSError as error:
        raise StackError(f"cannot start {command[0]}: {error.strerror}") from error
    return Child(pid, psutil.Process(pid).create_time())


def _inheritable() -> list[int]:
    """This process's file descriptors, above the standard three, that a child would get too."""
    found = []
    for entry in os.listdir("/dev/fd"):  # noqa: PTH208 -- names alone are wanted, and they are numbers
        number = int(entry)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:
            continue  # the descriptor of this very listing
    return found


def wait_until_healthy(
    what: str, child: Child, log: Path, healthy: Callable[[], bool], *, seconds: float, pause: float = 0.1
) -> None:
    """Wait until `healthy` says yes. Raises StackError with the log's end where the child ends or is late."""
    deadline = time.monotonic() + seconds
    while not healthy():
        if not child.alive():
            child.wait(0)
            raise StackError(f"{what} stopped while it was starting", _log_hint(log))
        if time.monotonic() > deadline:
            raise StackError(f"{what} did not answer within {seconds:.0f} s", _log_hint(log))
        time.sleep(pause)


def _log_hint(log: Path) -> str:
    return f"its log {log} ends with:\n{tail(log)}"


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log file, each cut to 300 characters; a word instead where there is none."""
    try:
        with log.open(errors="replace") as text:
            last = deque(text, lines)
    except OSError:
        return "(no log was written)"
    return "".join(f"  {line.rstrip()[:300]}\n" for line in last).rstrip() or "  (nothing)"


def free_port(taken: set[int]) -> int:
    """A free TCP port of 127.0.0.1 that is not in `taken`, to which it is added.

    Outside the range that the system hands to outgoing connections, so that a part finds its port free when
    it is started again. Raises StackError where none is free.
    """
    first = int.from_bytes(os.urandom(2)) % 11_000
    for offset in range(11_000):
        port = 20_000 + (first + offset) % 11_000
        if port not in taken and port_is_free(port):
            taken.add(port)
            return port
    raise StackError("no free TCP port on this machine")


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As the servers do: a port whose last connections are still fading is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Whether something accepts connections on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def holder_of(port: int) -> str:
    """Who listens on a port, in words, as far as this user may see."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                name = psutil.Process(connection.pid).name() if connection.pid else "another process"
                return f"{name} (process {connection.pid})" if connection.pid else name
    except psutil.Error:
        pass
    return "another process"
