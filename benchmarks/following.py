"""Run a mirror or another engine in a separate process, and follow the JSON lines that it writes."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import CHECKOUT, child_environment, program

_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches of one process, and the maintenance of their table. Times are in seconds.

    Attributes:
        all_seconds: the time of each batch.
        snapshots: the number of snapshots that have the batches.
        maintenance: the time of all maintenance.
        alternating: whether no batch is applied during maintenance.
    """

    all_seconds: list[float]
    snapshots: int
    maintenance: float
    alternating: bool

    @property
    def seconds(self) -> list[float]:
        """The time of each batch except the first one, during which the engine starts."""
        return self.all_seconds[1:] or self.all_seconds

    @property
    def mean(self) -> float:
        """The time of a batch, with its share of the maintenance between batches."""
        between = self.maintenance if self.alternating else 0
        return (sum(self.seconds) + between) / len(self.seconds)


@contextmanager
def running(
    command: Sequence[str], log: Path, checkout: Path = CHECKOUT
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a command with a checkout's packages, and end it with SIGTERM after the block; its output goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=child_environment(checkout))
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE_S)


@contextmanager
def running_mirror(config: Path, log: Path, checkout: Path = CHECKOUT) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a mirror of a checkout during the block; its output goes to `log`."""
    with running([program(checkout), "run", "-c", str(config)], log, checkout) as mirror:
        yield mirror


def follow_log(log: Path, process: "subprocess.Popen[bytes]") -> Iterator[dict[str, object]]:
    """Yield the JSON lines of a process until it ends, or until it has written none for some time."""
    deadline = time.monotonic() + _PATIENCE_S
    line = ""
    with log.open() as lines:
        while process.poll() is None and time.monotonic() < deadline:
            line += lines.readline()
            if not line.endswith("\n"):
                time.sleep(0.02)
                continue
            if line.startswith("{") and line.endswith("}\n"):
                deadline = time.monotonic() + _PATIENCE_S
                yield json.loads(line)
            line = ""
    raise RuntimeError(f"the process ended or wrote nothing for {_PATIENCE_S:.0f} s; see {log}")
