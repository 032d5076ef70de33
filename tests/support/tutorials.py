"""Run the commands of a tutorial as they are printed.

A tutorial is a Markdown page. Its fenced blocks marked `bash` are commands of one shell session, those marked `sql` are
statements of MySQL's administrator, and every other block is only shown.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "tutorials"
CLONE: Final = "git clone <this repository> replicator"
"""The only command that is not run as printed: it is replaced by a copy of the working tree."""

_BLOCK: Final = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One block of a tutorial that a reader executes."""

    kind: Literal["bash", "sql"]
    text: str


def steps(page: str) -> list[Step]:
    """Return the blocks that a reader of a page executes, in order."""
    found = [(m["kind"], m["text"]) for m in _BLOCK.finditer(page)]
    return [
        Step("bash" if kind == "bash" else "sql", text) for kind, text in found if kind in ("bash", "sql")
    ]


def tutorial(name: str, replace: Mapping[str, str] | None = None) -> list[Step]:
    """Return the steps of a tutorial; `replace` has addresses as printed → addresses of the test's servers."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    for printed, actual in (replace or {}).items():
        assert printed in text, f"{printed} is not in the tutorial {name}"
        text = text.replace(printed, actual)
    return steps(text)


def run(found: list[Step], folder: Path, execute_sql: Callable[[str], None] | None = None) -> str:
    """Run steps in an empty folder, as a reader in one new shell. Returns what they print.

    Raises AssertionError with the output if a command fails.
    """
    assert not list(folder.iterdir()), f"{folder} is not empty"
    log = folder.parent / f"{folder.name}.log"
    variables, place = folder.parent / f"{folder.name}.env", folder
    environment = _new_shell()
    output = ""
    for step in found:
        if step.kind == "sql":
            assert execute_sql is not None, "the tutorial has SQL"
            execute_sql(step.text)
            continue
        copy = f"cp -a {_working_tree(folder)} replicator" if CLONE in step.text else ""
        state = f"declare -px > {variables}; pwd > {variables}.pwd"
        restore = f"source {variables}" if variables.exists() else ":"
        script = f"set -euo pipefail\n{restore}\n{step.text.replace(CLONE, copy)}\n{state}\n"
        with log.open("a") as target:
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
                timeout=900,
                check=False,
            )
        output = log.read_text(errors="replace")
        assert done.returncode == 0, f"{step.text}\nexit code {done.returncode}\n{output[-6000:]}"
        place = Path((variables.parent / f"{variables.name}.pwd").read_text().strip())
    return output


def _new_shell() -> dict[str, str]:
    """Return the environment of a new login shell: without the test run's own virtual environment."""
    inside = Path(os.environ.get("VIRTUAL_ENV", ROOT / ".venv")) / "bin"
    own = ("VIRTUAL_ENV", "PYTHONPATH", "UV_", "PYTEST_", "REPLICATOR_CONFIG", "MAKE", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    paths = [
        path
        for path in os.environ["PATH"].split(os.pathsep)
        if Path(path) not in (inside, ROOT / ".venv/bin")
    ]
    return environment | {"PATH": os.pathsep.join(paths), "COLUMNS": "160"}


def _working_tree(folder: Path) -> Path:
    """Return a copy of the files that a clone would have, with uncommitted changes."""
    target = folder.parent / f"{folder.name}.tree"
    for name in _tracked():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    return target


def _tracked() -> Iterator[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    yield from (name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file())
