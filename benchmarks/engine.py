"""Runs the engine under test, as a user would: by a config file, in a process of its own.

Run as a program (`python -m benchmarks.engine CONFIG...`) it drains into each config in turn inside one
process, and prints one JSON line each: the first is cold, the later ones are warm. As in a mirror that lives on, they
share a Spark session: with it would go the code that it generated, and what Java made of that.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.processes import Usage, run_json, run_measured
from replicator.config import load
from replicator.jvm.spark import running_session
from replicator.runner.process import run
from replicator.telemetry import setup_logging

STRATEGIES = ("split", "merge", "copy-on-write")


@dataclass(frozen=True, slots=True)
class Target:
    """Where the mirrors of a benchmark go: one catalog and warehouse, a namespace each."""

    folder: Path
    bootstrap: str
    driver_memory: str = "4g"
    registry: str | None = None
    """The schema registry of a log in Avro."""

    @property
    def uri(self) -> str:
        """The catalog, for Spark and Flink alike."""
        return f"jdbc:sqlite:{self.folder}/catalog.db"

    @property
    def warehouse(self) -> Path:
        """Where the files go."""
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
        """Write the config of a mirror of all tables under `prefix`; `apply` are settings of that section."""
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
            "spark": {"driver_memory": self.driver_memory},
        }  # fmt: skip
        if connect_url:
            sections["log"]["connect_url"] = connect_url
        if self.registry:
            sections["log"] |= {"format": "avro", "registry_url": self.registry}
        lines = []
        for section, settings in sections.items():
            lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
            if section == "source" and password_file:
                lines.append(f"password = {{ file = {json.dumps(str(password_file))} }}")
        path = self.folder / f"{namespace}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def log(self, name: str) -> Path:
        """The file for a child's output."""
        return self.folder / "logs" / f"{name}.log"


def drain_cold(target: Target, config: Path) -> Usage:
    """`replicator run --until-caught-up` as a fresh process, from its start to its end."""
    program = str(Path(sys.executable).parent / "replicator")
    return run_measured(
        [program, "run", "-c", str(config), "--until-caught-up"], target.log(f"{config.stem}-cold")
    )


def drain_warm(target: Target, thrown_away: Path, measured: list[Path]) -> list[Usage]:
    """Drain into `thrown_away`, then into each of `measured`, in one process; the figures of the latter."""
    command = [sys.executable, "-m", "benchmarks.engine", str(thrown_away), *map(str, measured)]
    runs, whole = run_json(command, target.log(f"{measured[0].stem}-warm"))
    return [Usage(run["seconds"], run["cpu_seconds"], whole.peak_rss) for run in runs[1:]]


def _tree_cpu() -> float:
    process = psutil.Process()
    every = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for times in (one.cpu_times() for one in every))


def _main(paths: list[Path]) -> None:
    setup_logging()
    started, cpu = time.monotonic(), _tree_cpu()
    with running_session(load(paths[0])):
        for path in paths:
            run(load(path), until_caught_up=True)
            line = {
                "config": path.stem,
                "seconds": time.monotonic() - started,
                "cpu_seconds": _tree_cpu() - cpu,
            }
            print(json.dumps(line), flush=True)
            started, cpu = time.monotonic(), _tree_cpu()


if __name__ == "__main__":
    _main([Path(argument) for argument in sys.argv[1:]])
