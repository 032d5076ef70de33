"""Run child processes and measure the whole tree below them: wall time, CPU time, memory."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_SAMPLE_S = 0.1

CHECKOUT = Path(__file__).parent.parent
"""The checkout that these benchmarks belong to."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Elapsed seconds, CPU seconds of all processes, and the tree's maximum resident memory in bytes."""

    seconds: float
    cpu_seconds: float
    peak_rss: int


def typical(runs: Sequence[Usage]) -> Usage:
    """Return the median of runs by time (of two, the slower)."""
    return sorted(runs, key=lambda usage: usage.seconds)[len(runs) // 2]


class StealMeter:
    """Measures the share of this machine's CPU time that its host gave to other machines.

    On a shared host, neither seconds nor CPU seconds can be compared if this share differs much.
    """

    def __init__(self) -> None:
        self._stolen, self._all = _steal_and_all()

    def share(self) -> float:
        """Return the share since the meter was created, from 0 to 1."""
        stolen, every = _steal_and_all()
        return (stolen - self._stolen) / max(every - self._all, 1e-9)


def _steal_and_all() -> tuple[float, float]:
    times = psutil.cpu_times()
    # The time of guests is included in the time of users.
    return times.steal, sum(times) - times.guest - times.guest_nice


class TreeMeter:
    """Samples a process and all its descendants; the usage of an ended process stays included."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[int, float] = {}
        self._stopped = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak_rss = 0
        self._thread.start()

    def usage(self) -> Usage:
        """Return the usage of the tree since the meter was created (CPU: since its processes started)."""
        self._sample()
        return Usage(time.monotonic() - self._started, sum(self._cpu.values()), self.peak_rss)

    def stop(self) -> Usage:
        """End the sampling, and return the final usage."""
        seconds = time.monotonic() - self._started
        self._stopped.set()
        self._thread.join()
        return Usage(seconds, sum(self._cpu.values()), self.peak_rss)

    def _run(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        try:
            found = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        rss = 0
        for process in found:
            try:
                times = process.cpu_times()
                rss += process.memory_info().rss
            except psutil.Error:
                continue
            self._cpu[process.pid] = times.user + times.system
        self.peak_rss = max(self.peak_rss, rss)


def run_measured(
    command: Sequence[str],
    log: Path,
    on_line: Callable[[str, TreeMeter], None] | None = None,
    checkout: Path = CHECKOUT,
) -> Usage:
    """Run a command to its end and measure it.

    Standard error is written to `log`; each line of standard output is passed to `on_line`. `checkout` is the
    checkout whose packages the command imports.

    Raises:
        RuntimeError: the command failed; the message has the end of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=checkout,
            env=child_environment(checkout),
        ) as process,
    ):
        meter = TreeMeter(process.pid)
        try:
            for line in process.stdout or ():
                errors.write(line)
                if on_line:
                    on_line(line, meter)
            process.wait()
        except BaseException:
            process.terminate()
            raise
        usage = meter.stop()
    if process.returncode != 0:
        end = "\n".join(line[:300] for line in log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"{command[0]} failed with code {process.returncode}; the end of {log}:\n{end}")
    return usage


def run_json(
    command: Sequence[str], log: Path, checkout: Path = CHECKOUT
) -> tuple[list[dict[str, Any]], Usage]:
    """Run and measure a command that prints one JSON object per line; return the objects and the usage."""
    found: list[dict[str, Any]] = []

    def take(line: str, meter: TreeMeter) -> None:
        if line.startswith("{"):
            so_far = meter.usage()
            found.append(
                json.loads(line) | {"since_start": so_far.seconds, "cpu_since_start": so_far.cpu_seconds}
            )

    usage = run_measured(command, log, take, checkout)
    return found, usage


def program(checkout: Path = CHECKOUT) -> str:
    """Return the path of the command `replicator` of a checkout's environment.

    Run it with `child_environment` of the same checkout: its packages come before those of the environment.
    """
    programs = Path(sys.executable).parent if checkout == CHECKOUT else checkout / ".venv" / "bin"
    return str(programs / "replicator")


def child_environment(checkout: Path = CHECKOUT) -> dict[str, str]:
    """Return the environment of a child process that imports the packages of a checkout."""
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
