"""Run the engine under test as a user would: with a configuration file, in a separate process.

The program `python -m benchmarks.engine [PID...] CONFIG...` drains into each configuration in turn in one process, and
prints one JSON line for each: the first run is cold, the later ones are warm. They share a Spark session, as batches of
a running mirror do: a new session would lose the generated code and its compiled form. The CPU time of the processes
with the given ids is counted too, such as those of a Spark cluster.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.processes import CHECKOUT, Usage, program, run_json, run_measured
from replicator.config import load
from replicator.jvm.spark import running_session
from replicator.runner.process import run
from replicator.telemetry import setup_logging

STRATEGIES = ("split", "merge", "copy-on-write")


@dataclass(frozen=True, slots=True)
class Target:
    """The lake of a benchmark: one catalog and warehouse, with a namespace for each mirror."""

    folder: Path
    bootstrap: str
    driver_memory: str = "4g"
    registry: str | None = None
    """The schema registry of a log in Avro."""
    spark: Mapping[str, object] = field(default_factory=dict)
    """Further settings of `[spark]`."""

    @property
    def uri(self) -> str:
        """Return the address of the catalog, for Spark and Flink."""
        return f"jdbc:sqlite:{self.folder}/catalog.db"

    @property
    def warehouse(self) -> Path:
        """Return the folder of the files."""
        return self.folder / "warehouse"

    def config(
        self,
        namespace: str,
        prefix: str,
        *,
        source: str = "mysql://nobody@127.0.0.1:3306/shop",
        password_file: Path | None = None,
        connect_url: str | None = None,
        **apply: object,
    ) -> Path:
        """Write the configuration of a mirror of all tables of `prefix`; `apply` has settings of that section."""
        self.warehouse.mkdir(parents=True, exist_ok=True)
        state = self.folder / "state" / namespace
        sections: dict[str, dict[str, object]] = {
            "mirror": {"name": namespace, "state_dir": str(state)},
            "source": {"url": source, "tables": ["shop.*"]},
            "log": {"kind": "kafka", "bootstrap_servers": self.bootstrap, "topic_prefix": prefix},
            "lake": {
                "catalog": "jdbc", "uri": self.uri, "warehouse": str(self.warehouse), "namespace": namespace,
            },
            "apply": apply,
            "spark": {"driver_memory": self.driver_memory, **self.spark},
        }  # fmt: skip
        if connect_url:
            sections["log"]["connect_url"] = connect_url
        if self.registry:
            sections["log"] |= {"format": "avro", "registry_url": self.registry}
        lines = []
        for section, settings in sections.items():
            lines += [f"[{section}]", *(f"{name} = {_toml(value)}" for name, value in settings.items())]
            if section == "source" and password_file:
                lines.append(f"password = {{ file = {json.dumps(str(password_file))} }}")
        path = self.folder / f"{namespace}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def log(self, name: str) -> Path:
        """Return the file for the output of a child process."""
        return self.folder / "logs" / f"{name}.log"


def _toml(value: object) -> str:
    """Return a value, which may be a table of others, as TOML."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    return f"{{ {', '.join(f'{json.dumps(name)} = {_toml(found)}' for name, found in value.items())} }}"


def drain_cold(target: Target, config: Path, checkout: Path = CHECKOUT) -> Usage:
    """Run `replicator run --until-caught-up` of a checkout as a new process, and measure it to its end."""
    command = [program(checkout), "run", "-c", str(config), "--until-caught-up"]
    return run_measured(command, target.log(f"{config.stem}-cold"), checkout=checkout)


def drain_warm(
    target: Target,
    warm_up: Path,
    measured: list[Path],
    python: Path = Path(sys.executable),
    checkout: Path = CHECKOUT,
    beside: Sequence[int] = (),
) -> list[Usage]:
    """Drain into `warm_up`, then into each of `measured`, in one process; return the figures of the latter.

    `checkout` has the engine to run, `python` is the interpreter of its environment. `beside` are the ids of processes
    whose CPU time is counted too.
    """
    command = [str(python), "-m", "benchmarks.engine", *map(str, [*beside, warm_up, *measured])]
    runs, whole = run_json(command, target.log(f"{measured[0].stem}-warm"), checkout)
    return [Usage(run["seconds"], run["cpu_seconds"], whole.peak_rss) for run in runs[1:]]


def _trees_cpu(pids: Sequence[int]) -> float:
    roots = [psutil.Process(pid) for pid in pids]
    every = [process for root in roots for process in (root, *root.children(recursive=True))]
    return sum(times.user + times.system for times in (one.cpu_times() for one in every))


def _main(paths: list[Path], beside: list[int]) -> None:
    setup_logging()
    pids = [os.getpid(), *beside]
    started, cpu = time.monotonic(), _trees_cpu(pids)
    with running_session(load(paths[0])):
        for path in paths:
            run(load(path), until_caught_up=True)
            line = {
                "config": path.stem,
                "seconds": time.monotonic() - started,
                "cpu_seconds": _trees_cpu(pids) - cpu,
            }
            print(json.dumps(line), flush=True)
            started, cpu = time.monotonic(), _trees_cpu(pids)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdecimal()]
    _main([Path(argument) for argument in sys.argv[1 + len(numbers) :]], numbers)
