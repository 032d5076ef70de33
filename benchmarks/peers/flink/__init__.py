"""Run Flink with Iceberg, the usual engine for this task, on the same topics: one JVM, one job after the other.

Flink's own jars are installed from a PyPI package in a separate virtual environment, the connectors with Ivy.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.engine import Target
from benchmarks.processes import Usage, run_json
from benchmarks.workload import Layout
from replicator.jvm.jars import JarSet, default_cache, find_java, jars

VERSION = "2.1.3"
CONNECTORS = JarSet(
    "flink-peer",
    (
        "org.apache.iceberg:iceberg-flink-runtime-2.1:1.11.0",
        "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0",
        "org.apache.hadoop:hadoop-client-api:3.4.1",
        "org.apache.hadoop:hadoop-client-runtime:3.4.1",
        "org.xerial:sqlite-jdbc:3.50.3.0",
    ),
)
MODES = ("upsert", "changelog")
# Flink's own scripts open the same packages on Java 17.
_OPENS = (
    "java.io", "java.lang", "java.lang.reflect", "java.math", "java.net", "java.nio", "java.text",
    "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
    "java.util.concurrent.locks", "sun.nio.ch",
)  # fmt: skip


def drain(target: Target, layout: Layout, mode: str, warm_runs: int) -> list[Usage]:
    """Drain the layout's topics from a cold start, then `warm_runs` times again. Return the figures, cold run first.

    Run n, from 1, fills the namespace `flink_<mode>_<n>`.
    """
    topics = ";".join(f"{layout.topic(i)}={layout.table(i)}" for i in range(layout.tables))
    settings = {
        "bootstrap": target.bootstrap,
        "topics": topics,
        "uri": target.uri,
        "warehouse": str(target.warehouse),
        "mode": mode,
        "runs": str(warm_runs + 1),
        "parallelism": "2",
        "schemas": str(layout.with_schemas).lower(),
        # Each table has a separate source and sink, whose buffers need more than Flink's default.
        **({"network-memory": "512m"} if layout.tables > 1 else {}),
    }
    target.warehouse.mkdir(parents=True, exist_ok=True)
    runs, whole = run_json(command(target, "Drain", settings), target.log(f"flink-{mode}"))
    cold = Usage(runs[0]["since_start"], runs[0]["cpu_since_start"], whole.peak_rss)
    return [cold, *(Usage(run["seconds"], run["cpu_seconds"], whole.peak_rss) for run in runs[1:])]


def command(target: Target, driver: str, settings: Mapping[str, str]) -> list[str]:
    """Return the command that runs one of the drivers, with the heap of the engine's driver."""
    return [
        str(find_java()),
        *(f"{option}{target.driver_memory}" for option in ("-Xms", "-Xmx")),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS),
        *("-cp", class_path()),
        driver,
        *(f"{name}={value}" for name, value in settings.items()),
    ]


def namespace(mode: str, run: int) -> str:
    """Return the namespace of run `run` of a mode; run 1 is the cold one."""
    return f"flink_{mode}_{run}"


def class_path() -> str:
    """Return the class path of the drivers; download and compile what the cache lacks."""
    own = default_cache() / "benchmarks" / f"flink-{VERSION}"
    entries = [*sorted(_libraries(own / "venv").glob("*.jar")), *jars(CONNECTORS)]
    sources = sorted(Path(__file__).parent.glob("*.java"))
    classes = own / "classes"
    compiled = [classes / f"{source.stem}.class" for source in sources]
    newest = max(source.stat().st_mtime for source in sources)
    if not all(path.exists() and path.stat().st_mtime >= newest for path in compiled):
        compiler = find_java().resolve().parent / "javac"
        if not compiler.exists():
            raise RuntimeError(f"the Flink benchmark needs a JDK: there is no {compiler}")
        options = ["-proc:none", "-d", str(classes), "-cp", ":".join(map(str, entries))]
        subprocess.run([str(compiler), *options, *map(str, sources)], check=True)
    return ":".join(map(str, [classes, *entries]))


def _libraries(environment: Path) -> Path:
    """Return the folder with Flink's jars, in a virtual environment that has no other package."""
    marker = environment / "complete"
    if not marker.exists():
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        package = f"apache-flink-libraries=={VERSION}"
        pip = [str(environment / "bin" / "pip"), "install", "--quiet", "--no-deps", package]
        subprocess.run(pip, check=True)
        marker.touch()
    return next(environment.glob("lib/python*/site-packages/pyflink/lib"))
