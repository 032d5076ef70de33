"""The Python environment of dlt."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.broker import cache_folder

_PACKAGES: Final = ("dlt[sql-database,parquet,filesystem]==1.31.0", "connectorx==0.4.6", "pymysql==1.2.4")


def python() -> Path:
    """Return the interpreter; create the environment if it does not exist yet."""
    folder = cache_folder() / "dlt-1.31.0"
    found = folder / "bin/python"
    if not (folder / "complete").exists():
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", found, *_PACKAGES], check=True)
        (folder / "complete").touch()
    return found
