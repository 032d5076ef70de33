"""Run a standalone Spark cluster on this machine: a master and workers with one core each, as separate processes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyspark
import requests

from replicator.jvm.jars import find_java
from replicator.operations.stack.process import Child, free_port, spawn, wait_until_healthy

_HOST = "127.0.0.1"
_MEMORY = "1g"
"""What a worker gives to its executor, which is Spark's default for the heap of one."""
_DAEMONS = "SPARK_DAEMON_JAVA_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Master and workers do little: they should start fast."""
_START_S, _END_S = 120.0, 20.0


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster.

    Attributes:
        address: for `[spark] master`.
        processes: the ids of the master and the workers, whose children are the executors.
    """

    address: str
    processes: tuple[int, ...]


@contextmanager
def spark_cluster(folder: Path, workers: int) -> Iterator[SparkCluster]:
    """Run a cluster while the block runs; its logs and the files of its executors are in `folder`.

    Raises:
        StackError: a process ended, or did not respond.
    """
    taken: set[int] = set()
    port, status = free_port(taken), free_port(taken)
    address, log = f"spark://{_HOST}:{port}", folder / "master.log"
    with ExitStack() as stack:
        master = _started(stack, log, "master.Master", "--port", str(port), "--webui-port", str(status))
        # A worker that finds no master tries again only after seconds.
        wait_until_healthy("Spark's master", master, log, partial(_has_workers, status, 0), seconds=_START_S)
        started = [
            _started(
                stack,
                folder / f"worker{number}.log",
                "worker.Worker",
                *("--cores", "1", "--memory", _MEMORY, "--webui-port", "0"),
                *("--work-dir", str(folder / f"worker{number}"), address),
            )
            for number in range(workers)
        ]
        wait_until_healthy(
            "Spark's cluster", master, log, partial(_has_workers, status, workers), seconds=_START_S
        )
        yield SparkCluster(address, (master.pid, *(worker.pid for worker in started)))


def _started(stack: ExitStack, log: Path, name: str, *arguments: str) -> Child:
    """Start a process of the cluster, which ends with its executors when `stack` is closed."""
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    java = f"JAVA_HOME={find_java().resolve().parent.parent}"
    child = spawn(
        ["env", java, _DAEMONS, program, f"org.apache.spark.deploy.{name}", "--host", _HOST, *arguments], log
    )
    stack.callback(child.stop, _END_S)
    return child


def _has_workers(status: int, count: int) -> bool:
    """Return whether the master answers at its port for people, and has this number of workers."""
    try:
        found = requests.get(f"http://{_HOST}:{status}/json/", timeout=10).json()
    except requests.RequestException:
        return False
    return int(found["aliveworkers"]) >= count
