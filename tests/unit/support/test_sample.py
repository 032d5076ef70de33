"""`pytest --one-case`: which cases run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONFTEST = "from tests.conftest import pytest_addoption, pytest_collection_modifyitems\n"
TESTS = """
import pytest

pytestmark = pytest.mark.parametrize("n", range(5))

@pytest.mark.spark
def test_a(n): pass

@pytest.mark.stack
def test_b(n): pass

@pytest.mark.spark
@pytest.mark.every_case
def test_c(n): pass

def test_d(n): pass
"""


def collected(folder: Path, *arguments: str) -> list[str]:
    """Return the names of the tests that would run."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  spark\n  stack\n  every_case\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments, "."]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_one_case_of_each_slow_test_runs_and_is_the_same_in_every_order(tmp_path: Path) -> None:
    orders = [collected(tmp_path, "--one-case", f"--randomly-seed={seed}") for seed in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    tests = sorted(name.partition("[")[0] for name in orders[0])
    assert tests == ["test_a", "test_b", *["test_c"] * 5, *["test_d"] * 5]
