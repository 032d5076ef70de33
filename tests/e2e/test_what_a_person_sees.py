"""What `status`, `check` and `run` say of a mirror that starts, runs, is killed, or cannot start."""

import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from replicator.config import load
from replicator.operations.status.read import read_status
from tests.support.mirror import COMMAND, HEALING_MIRROR, START_S, running, until
from tests.support.source import SourceDatabase

_NEXT = re.compile(r"next: +(replicator .+)")


def ran(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the command line as a user does."""
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        env=os.environ | environment,
    )


def follow_next_step(output: str) -> None:
    """Run the first next step of an output exactly as it was printed."""
    found = _NEXT.search(output)
    assert found, output
    done = ran(*shlex.split(found[1])[1:])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.fault(
    "The mirror starts with a wrong password, or without a connector",
    area="Process",
    on="MySQL, Kafka, Connect",
    outcome="`run` ends before Spark is used, with the reason and the next step",
)
@pytest.mark.fault(
    "The state folder is deleted while the mirror runs",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="a second process is refused; the record of the run is written again",
)
def test_person_is_told_what_the_mirror_does(source_database: SourceDatabase, tmp_path: Path) -> None:
    source_database.execute(
        "CREATE TABLE a (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
        "CREATE TABLE quiet (id INT PRIMARY KEY)",
        "INSERT INTO quiet VALUES (1)",
        "INSERT INTO a (n) VALUES (1)",
    )
    config = tmp_path / "mirror.toml"
    config.write_text(source_database.config_text(tmp_path, HEALING_MIRROR))
    option = ("-c", str(config))

    # Nothing runs, and there is no connector.
    unconnected = ran("run", *option)
    for refused, reason in (
        (unconnected, "no connector has the topic prefix"),
        (ran("run", *option, REPLICATOR_TEST_PASSWORD="wrong"), "refused the user"),
    ):
        assert refused.returncode != 0
        assert reason in refused.stderr
        assert not (tmp_path / "state" / "spark.log").exists()
    shown = ran("status", *option).stdout
    assert "NOT RUNNING on this machine, where it has never run" in shown.splitlines()[0]
    assert "no connector has this topic prefix" in shown
    # The next step of the refusal is what makes the start possible.
    follow_next_step(unconnected.stderr)
    assert "replicator connect" not in ran("check", *option).stdout

    with running(config, tmp_path / "output.txt") as mirror:
        until(
            lambda: [t.state for t in read_status(load(config)).tables] == ["current"] * 2,
            seconds=START_S,
            doing="two tables",
        )
        first = ran("status", *option).stdout.splitlines()[0]
        assert re.search(r": running, pid \d+ since \d\d:\d\d:\d\d(, last batch .* ago)?, lag \d", first), (
            first
        )

        # Under a steady load, tables are current: what is on its way does not count.
        states: dict[str, set[str]] = {"a": set(), "quiet": set()}
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            source_database.execute("INSERT INTO a (n) VALUES (2)")
            for table in read_status(load(config)).tables:
                states[table.source.partition(".")[2]].add(table.state)
                assert table.lag_seconds is not None
                assert table.lag_seconds < 60, "the newest change in the quiet table is older"
        assert states["quiet"] == {"current"}
        assert "current" in states["a"]

        # A difference is found, named and repaired.
        with source_database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("INSERT INTO quiet VALUES (2)")
        found = ran("verify", *option)
        assert found.returncode == 1, found.stdout + found.stderr
        assert re.search(r"\.quiet +different +2 +1 ", found.stdout), found.stdout
        repaired = ran("verify", *option, "--repair")
        assert repaired.returncode == 0, repaired.stdout + repaired.stderr

        # The lock does not depend on the state folder.
        shutil.rmtree(tmp_path / "state")
        second = ran("run", *option)
        assert second.returncode == 2
        assert "already running" in second.stderr
        until((tmp_path / "state" / "run.json").exists, seconds=60, doing="a new record")
        assert mirror.is_alive()

    lines = ran("status", *option).stdout.splitlines()
    assert re.search(r": NOT RUNNING since .* \(process \d+ was killed\)", lines[0]), lines[0]
    assert lines[1] == f"  next: replicator run -c {config}"
    assert max(map(len, lines)) <= 200
