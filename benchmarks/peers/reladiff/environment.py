"""The Python environment of reladiff."""

from pathlib import Path
from typing import Final

from benchmarks.peers.environments import environment

_PACKAGES: Final = ("reladiff==0.6.0", "mysql-connector-python==26.10.0", "duckdb==2.0.1", "toml==0.10.2")


def python() -> Path:
    """Return the interpreter; create the environment if it does not exist yet."""
    return environment("reladiff-0.6.0", _PACKAGES)
