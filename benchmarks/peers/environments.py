"""Python environments of peers, apart from the one of this project."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.broker import cache_folder


def environment(name: str, packages: Sequence[str]) -> Path:
    """Return the interpreter of an environment; create it in the cache if it does not exist yet."""
    folder = cache_folder() / name
    found = folder / "bin/python"
    if not (folder / "complete").exists():
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", found, *packages], check=True)
        (folder / "complete").touch()
    return found
