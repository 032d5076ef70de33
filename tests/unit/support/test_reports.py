"""The list of tests that did not run; the reports are written by pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.reports import main, read_reports, summary

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def server(request):
    for item in request.session.items:
        item.user_properties.append(("mysql", "8.0.33"))

def pytest_collection_modifyitems(items):
    for item in items:
        if "server" in item.fixturenames:
            item.user_properties.append(("needs", "stack"))
"""
RUNS = """
def test_runs(server, request):
    request.node.user_properties.append(("left out", "VECTOR needs MySQL 9.0 or newer, not 8.0.33"))
"""
SKIPS = """
import pytest

def test_skips(server):
    pytest.skip("the real stack cannot run here: no Java is installed")

@pytest.mark.skip(reason="no release for this machine")
def test_unit():
    pass
"""
FAILS = """
import pytest

def test_fails(server):
    assert 1 == 2

@pytest.fixture
def broken():
    raise OSError("no space\\nsecond line")

def test_has_no_fixture(broken):
    pass
"""


def report(folder: Path, *tests: str) -> Path:
    """Run these tests in a separate process, and return the report."""
    (folder / "conftest.py").write_text(CONFTEST)
    for number, text in enumerate(tests):
        (folder / f"test_{number}.py").write_text(text)
    file = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", f"--junitxml={file}", str(folder)]
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    return file


def test_summary_lists_each_test_that_did_not_run_or_failed_with_its_reason(tmp_path: Path) -> None:
    run = read_reports([report(tmp_path, RUNS, SKIPS, FAILS), tmp_path / "absent.xml"])
    assert summary(run) == [
        "== tests on the real stack (MySQL 8.0.33): 1 passed, 2 did not",
        "== skipped on the real stack: the real stack cannot run here: no Java is installed",
        "   test_1.test_skips",
        "== skipped: no release for this machine",
        "   test_1.test_unit",
        "== left out: VECTOR needs MySQL 9.0 or newer, not 8.0.33",
        "   test_0.test_runs",
        f"== FAILED: {tmp_path / 'absent.xml'} was not written",
        "== FAILED: test_2.test_fails: assert 1 == 2",
        '== FAILED: test_2.test_has_no_fixture: failed on setup with "OSError: no space',
    ]


def test_report_main_fails_when_stack_tests_were_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()
    assert main(["--all-stack", str(report(whole, RUNS))]) == 0
    file = str(report(part, RUNS, SKIPS))
    assert main(["--all-stack", file]) == 1
    assert main([file]) == 0
    assert main(["--all-stack", str(tmp_path / "absent.xml")]) == 1
    assert "no Java is installed" in capsys.readouterr().out
