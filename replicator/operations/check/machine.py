"""Check that this machine can run the engine."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from replicator.config import Config
from replicator.errors import JavaMissing
from replicator.jvm.jars import find_java, java_version
from replicator.operations.check.result import CheckResult, fail, ok, warn

GIB = 1 << 30
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": GIB}
_BESIDE_DRIVER = GIB // 2
"""Memory for the Python process, and for the JVM outside its heap."""
_LITTLE_DISK = 2 * GIB


def check_machine(config: Config) -> Iterator[CheckResult]:
    """Check Java, memory and disk. Only a local engine needs memory on this machine."""
    yield java()
    if config.spark.master.startswith("local"):
        yield memory(config.spark.driver_memory, psutil.virtual_memory().total)
    existing = next(p for p in (config.mirror.state_dir, *config.mirror.state_dir.parents) if p.exists())
    yield disk(existing, shutil.disk_usage(existing).free)


def java(candidates: Iterable[Path] | None = None) -> CheckResult:
    """Check that there is a Java that can run Spark. `candidates` as in `find_java`."""
    try:
        found = find_java(candidates)
    except JavaMissing as error:
        return fail("machine: Java", error.message, error.hint or "install Java 17 or newer")
    return ok("machine: Java", f"{java_version(found)} at {found}")


def memory(driver_memory: str, total: int) -> CheckResult:
    """Check that the driver's heap fits into `total` bytes of memory."""
    heap = int(driver_memory[:-1]) * _UNITS[driver_memory[-1].lower()]
    found = f"{total / GIB:.1f} GiB for a driver of {driver_memory}"
    if total < heap + _BESIDE_DRIVER:
        return warn("machine: memory", found, "lower spark.driver_memory, or the system may kill the mirror")
    return ok("machine: memory", found)


def disk(folder: Path, free: int) -> CheckResult:
    """Check that there is space for checkpoints and spilled data."""
    found = f"{free / GIB:.1f} GiB free at {folder}"
    if free < _LITTLE_DISK:
        return warn("machine: disk", found, "free some space, or set mirror.state_dir to another disk")
    return ok("machine: disk", found)
