"""The demo as a user runs it: a separate process, from the bundled recording to a compared lake."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replicator.cli.render_demo import shell_lines, snippets
from replicator.config import load
from replicator.operations.demo import RECORDING
from replicator.operations.demo.compare import RecordedSource, compare_lake

pytestmark = pytest.mark.spark


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"COLUMNS": "200", "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_demo_lake_equals_mysql_and_its_printed_snippets_run(tmp_path: Path) -> None:
    output = run("from replicator.cli import main; main(['demo', '--dir', 'lake'])", tmp_path)
    source = RecordedSource.load(RECORDING)
    assert f"{len(source.tables)} of {len(source.tables)} tables equal MySQL" in output
    assert "DIFFERENT" not in output
    assert "Pipeline pipelines/revenue.sql: its result is shop_pipelines.revenue, 4 rows" in output
    folder = tmp_path / "lake"
    result = compare_lake(load(folder / "replicator.toml"), source, folder=folder, events=0, seconds=0)
    assert result.match
    changes = sum(sum(table.changes.values()) for table in result.tables)
    assert changes > source.changes
    for engine, text in snippets(result).items():
        assert max(map(len, text.splitlines())) <= 72
        # A unit test runs the others.
        assert engine != "Spark" or run(text, folder)
    shell = " && ".join([*shell_lines(folder), "replicator status"])
    status = subprocess.run(
        ["bash", "-c", shell],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    ).stdout
    assert status.count("current") >= len(source.tables)
