"""Read binary log files with the client that Debezium uses, without making events of their rows."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import run_json
from replicator.jvm.jars import debezium_plugin_dir, default_cache, find_java

_SOURCE = Path(__file__).parent / "ReadFiles.java"


def rows_per_second(files: Sequence[Path], log: Path) -> tuple[int, float]:
    """Return the number of rows, and rows/s of the fastest of three runs in one process. Needs a JDK."""
    classes = default_cache() / "benchmarks" / "binlog-classes"
    libraries = f"{debezium_plugin_dir() / 'lib'}/*"
    compiler = find_java().resolve().parent / "javac"
    if not compiler.exists():
        raise RuntimeError(f"this measurement needs a JDK: there is no {compiler}")
    subprocess.run([str(compiler), "-d", str(classes), "-cp", libraries, str(_SOURCE)], check=True)
    command = [str(find_java()), "-cp", f"{classes}:{libraries}", "ReadFiles", *map(str, files)]
    runs, _ = run_json(command, log)
    return int(runs[0]["rows"]), max(run["rows"] / run["seconds"] for run in runs)
