"""The Python environment of dlt."""

from pathlib import Path
from typing import Final

from benchmarks.peers.environments import environment

_PACKAGES: Final = ("dlt[sql-database,parquet,filesystem]==1.31.0", "connectorx==0.4.6", "pymysql==1.2.4")


def python() -> Path:
    """Return the interpreter; create the environment if it does not exist yet."""
    return environment("dlt-1.31.0", _PACKAGES)
