"""Run the tutorials that need servers as printed, each in an empty folder."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from replicator.operations.stack import LocalStack
from tests.support.source import SourceDatabase
from tests.support.tutorials import run, tutorial


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Provide an empty folder. Servers that a failed tutorial left running in it are stopped."""
    folder = tmp_path / "empty"
    folder.mkdir()
    yield folder
    checkout = folder / "replicator"
    if (checkout / ".replicator/stack/stack.json").exists():
        subprocess.run([".venv/bin/replicator", "stack", "down"], cwd=checkout, check=True, timeout=120)


@pytest.mark.usefixtures("local_stack")  # skips or fails in the same way if the servers cannot run here
@pytest.mark.long
def test_local_stack_tutorial_runs_as_printed(folder: Path) -> None:
    output = run(tutorial("local-stack"), folder)
    assert "current" in output
    for row in ("'name': 'Ada', 'city': 'Paris'", "'name': 'Grace', 'city': 'Paris'", "'city': 'Rotterdam'"):
        assert row in output
    assert "Stopped: " in output


@pytest.mark.usefixtures("local_stack")
@pytest.mark.long
def test_live_revenue_tutorial_runs_as_printed(folder: Path) -> None:
    output = run(tutorial("live-revenue"), folder)
    assert "kept current by: signed, changes are added" in output
    assert "equal to its computation as a whole" in output
    assert "Stopped: " in output


@pytest.fixture
def administrator(running_stack: LocalStack) -> Iterator[SourceDatabase]:
    """Connect as MySQL's administrator. What the tutorial creates in the servers is removed afterwards."""
    database = SourceDatabase(running_stack, "mysql", "")
    yield database
    requests.delete(f"{running_stack.endpoints.connect_url}/connectors/shop", timeout=30)
    database.execute("DROP DATABASE IF EXISTS shop", "DROP USER IF EXISTS mirror")


@pytest.mark.long
def test_first_mirror_tutorial_runs_as_printed(folder: Path, administrator: SourceDatabase) -> None:
    found = administrator.stack.endpoints
    addresses = {
        "127.0.0.1:3306": f"127.0.0.1:{found.mysql_port}",
        "127.0.0.1:9092": found.bootstrap_servers or "",
        "http://127.0.0.1:8083": found.connect_url or "",
    }

    def execute(text: str) -> None:
        administrator.execute(*filter(None, map(str.strip, text.split(";\n"))))

    output = run(tutorial("first-mirror", addresses), folder, execute)
    assert "current" in output
    assert "('shop', 'orders') 2 rows" in output
