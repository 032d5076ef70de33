"""Describe the environment of a result: machine, versions, revision."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from replicator.jvm.jars import SPARK, find_java

_FOLDER = Path(__file__).parent
_PACKAGES = ("replicator", "pyspark", "confluent-kafka", "pyiceberg", "pyarrow")


def describe() -> dict[str, object]:
    """Return machine and versions as JSON values; memory is in GiB."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: version(name) for name in _PACKAGES},
        "jars": list(SPARK.roots),
        "revision": revision(),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def revision(checkout: Path = _FOLDER) -> str:
    """Return the git revision of a checkout."""
    return _git("rev-parse", "--short=12", "HEAD", checkout=checkout)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _java() -> str:
    shown = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    return shown.stderr.splitlines()[0]


def _git(*arguments: str, checkout: Path = _FOLDER) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=checkout)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
