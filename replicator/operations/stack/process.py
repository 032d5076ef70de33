"""Manage child processes that outlive their parent, identified by process id and start time; facts of the machine."""

import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from replicator.errors import StackError


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about a machine and its user.

    Attributes:
        is_root: whether the user is root.
        architecture: such as x86_64.
        find_program: returns the path of a program; None if it is not installed.
    """

    is_root: bool
    architecture: str
    find_program: Callable[[str], str | None]


THIS_MACHINE: Final = Machine(os.geteuid() == 0, platform.machine(), shutil.which)


Report = Callable[[str], None]
"""Called with what is done now."""
START_TIME_TOLERANCE = 2.0
"""Tolerance in seconds. Start times are boot time plus ticks, and shift slightly when the clock is adjusted."""
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Child:
    """A started process: its id, which is also its process group's id, and its start time (Unix seconds)."""

    pid: int
    started: float

    def process(self) -> psutil.Process | None:
        """Return the running process; None if it has ended, also if another process has its id by now."""
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.started) > START_TIME_TOLERANCE:
                return None
            return None if found.status() == psutil.STATUS_ZOMBIE else found
        except psutil.NoSuchProcess:
            return None

    def alive(self) -> bool:
        """Whether the process is still running."""
        return self.process() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its whole group; do nothing if it has ended."""
        if self.process() is not None:
            os.killpg(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Return whether the process ended within `seconds`. Reaps it if it is a child of this process."""
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
        """Ask the process to end, and kill it after `patience` seconds. Raises StackError if that fails."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a frozen process would not handle the signal
        if not self.wait(patience):
            self.kill()

    def kill(self) -> None:
        """Kill the process at once, as a power failure would. Raises StackError if it does not end."""
        self.signal(signal.SIGKILL)
        if not self.wait(10):
            raise StackError(f"process {self.pid} does not end", "inspect it with ps, or restart the machine")


def spawn(command: Sequence[str], log: Path) -> Child:
    """Start a program in its own session, so that Ctrl-C does not reach it; its output is written to `log`.

    Raises StackError if the program cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            # It inherits no locks or pipes that this process itself inherited.
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise StackError(f"cannot start {command[0]}: {error.strerror}") from error
    # `Child` waits for it, or a later process does: Python must not warn that it still runs.
    started.returncode = 0
    return Child(started.pid, psutil.Process(started.pid).create_time())


def wait_until_healthy(
    what: str, child: Child, log: Path, healthy: Callable[[], bool], *, seconds: float
) -> None:
    """Wait until `healthy` returns true. Raises StackError with the end of the log on exit or timeout."""
    try:
        if healthy_before_end(child, healthy, seconds=seconds):
            return
    except TimeoutError:
        raise StackError(f"{what} did not respond within {seconds:.0f} s", _log_hint(log)) from None
    child.wait(0)
    raise StackError(f"{what} stopped during its start", _log_hint(log))


def healthy_before_end(
    child: Child, healthy: Callable[[], bool], *, seconds: float, settle_seconds: float = 0
) -> bool:
    """Wait until `healthy` returns true, or the process has ended; return whether it is healthy.

    Args:
        settle_seconds: seconds that it must then remain healthy. A server that was told to stop may still respond once.

    Raises:
        TimeoutError: neither happened within `seconds`.
    """
    deadline = time.monotonic() + seconds
    since: float | None = None
    while True:
        if healthy():
            since = since or time.monotonic()
            if time.monotonic() - since >= settle_seconds:
                return True
        else:
            since = None
            if not child.alive():
                return False
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(_PAUSE_S)


def _log_hint(log: Path) -> str:
    return f"its log {log} ends with:\n{tail(log)}"


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log file, each truncated to 300 characters; a remark if there is no log."""
    try:
        with log.open(errors="replace") as text:
            last = deque(text, lines)
    except OSError:
        return "(no log was written)"
    return "".join(f"  {line.rstrip()[:300]}\n" for line in last).rstrip() or "  (nothing)"


def free_port(taken: set[int]) -> int:
    """Return a free TCP port of 127.0.0.1 that is not in `taken`, and add it to `taken`.

    It is outside the range that the system uses for outgoing connections, so that a part finds its port free
    when it is restarted. Raises StackError if no port is free.
    """
    first = int.from_bytes(os.urandom(2)) % 11_000
    for offset in range(11_000):
        port = 20_000 + (first + offset) % 11_000
        if port not in taken and port_is_free(port):
            taken.add(port)
            return port
    raise StackError("no free TCP port on this machine")


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As for the servers, a port with connections in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Return whether something accepts connections on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def holder_of(port: int) -> str:
    """Describe the process that listens on a port, as far as this user may see it."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                name = psutil.Process(connection.pid).name() if connection.pid else "another process"
                return f"{name} (process {connection.pid})" if connection.pid else name
    except psutil.Error:
        pass
    return "another process"
