"""Signals to the mirror as a separate process, and to its Java process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from replicator.jvm.spark import running_session
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.config_files import ARCHIVE_MIRROR
from tests.support.lake_harness import LakeHarness
from tests.support.mirror import family

CONFIG = (
    ARCHIVE_MIRROR
    + """\
[spark]
master = "local[1]"
driver_memory = "512m"
conf = { "spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" }
"""
)


@contextmanager
def program(folder: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """Run the program in a separate process group, and provide it with its Java process."""
    (folder / "replicator.toml").write_text(CONFIG)
    with ArchiveWriter(folder / "archive", topic_prefix="shop", encoding="json"):
        pass
    command = [sys.executable, "-m", "tests.programs.busy_mirror"]
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # The same code that the other tests import.
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, env=env, **pipes) as python:
        try:
            assert python.stdout is not None
            assert python.stdout.readline() == "ready 3\n", python.communicate()[1]
            (java,) = psutil.Process(python.pid).children()
            yield python, java
        finally:
            for process in family(python.pid):
                process.kill()
            python.kill()


ENDS_S = 180.0
"""Includes the time in which Java writes its class archive if no earlier process did (see `class_archive`)."""


def problems(errors: str) -> list[str]:
    """Return the lines of a program's output, without the one that says that it starts."""
    return [line for line in errors.splitlines() if line and '"event": "starting Spark"' not in line]


def assert_ends(process: psutil.Process) -> None:
    """Assert that a process ends by itself."""
    process.wait(ENDS_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_stops_cleanly_when_its_group_is_signalled(tmp_path: Path, number: signal.Signals) -> None:
    with program(tmp_path) as (python, java):
        os.killpg(python.pid, number)
        # As a service manager that signals every process.
        java.send_signal(number)
        out, err = python.communicate(timeout=ENDS_S)
        assert (python.returncode, "counted 3" in out, problems(err)) == (0, True, [])
        assert_ends(java)


@pytest.mark.fault(
    "The Python process is killed",
    area="Process",
    on="Spark",
    outcome="Java ends too, so that it writes nothing more",
)
def test_java_ends_when_python_is_killed(tmp_path: Path) -> None:
    with program(tmp_path) as (python, java):
        python.kill()
        assert_ends(java)


@pytest.mark.fault(
    "Spark's Java process is killed",
    area="Process",
    on="Spark",
    outcome="the mirror ends with an error and a next step",
)
def test_process_exits_with_one_error_and_next_step_when_java_is_killed(tmp_path: Path) -> None:
    with program(tmp_path) as (python, java):
        java.kill()
        _, err = python.communicate(timeout=ENDS_S)
        error, following = problems(err)
        assert python.returncode == 3
        assert error == "error: Spark's Java process has ended (signal 9)"
        assert following.startswith("next:  see spark.log")


def test_running_session_does_not_stop_an_existing_session(lake: LakeHarness) -> None:
    with running_session(lake.config()) as session:
        assert session.range(2).count() == 2
    assert lake.base.range(3).count() == 3
