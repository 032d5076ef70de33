"""The mirror as a process on the real MySQL, Kafka and Connect, while two writers change its tables."""

import os
import random
import shutil
import subprocess
import time
from functools import partial

import pytest

from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabaseBuilder

FAILPOINTS = (
    "after-changelog-files",
    "between-commits",
    "after-data-files",
    "after-delete-files",
    "before-commit",
    "after-commit",
)
LONG = bool(os.environ.get("REPLICATOR_LONG_TESTS"))
"""Whether to kill the mirror at all points instead of a few."""


def has_batches(mirror: MirrorProcess, count: int) -> bool:
    return len(mirror.batches()) >= count


@pytest.mark.fault(
    "The mirror is killed at failpoints of a batch, and at random times",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="the next process continues at the markers in the lake",
)
@pytest.mark.fault(
    "The state folder is lost, with Spark's checkpoint",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="the next process continues at the markers in the lake",
)
def test_mirror_equals_the_source_when_its_process_is_killed_at_any_point(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    """At failpoints of a batch and at random times, a few or (`LONG`) many; events contain their schemas here."""
    mirrored = mirror_database(tables=10 if LONG else 3, log="schemas = true", extra=FAST_MIRROR)
    compare, chance = mirrored.comparison, random.Random(7)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log")
    try:
        with mirrored.writers(3, 4, pause=0.05):
            for point in FAILPOINTS if LONG else FAILPOINTS[1:2]:
                mirror.start(REPLICATOR_CRASH_AT=f"{point}:{chance.randint(1, 8)}")
                assert mirror.wait(START_S) == -9, f"{point} was not reached\n{mirror.tail()}"
            for number in range(20 if LONG else 1):
                if number % 5 == 0:
                    # The state folder can be lost without harm.
                    shutil.rmtree(mirrored.folder / "state", ignore_errors=True)
                mirror.start()
                wanted = 0 if number % 4 == 0 else chance.randint(1, 2)
                until(partial(has_batches, mirror, wanted), seconds=START_S, doing="batches")
                time.sleep(chance.uniform(0, 6 if not wanted else 1))
                mirror.kill()
        mirror.start()
        compare.await_equal(mirror, 300)
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
    finally:
        mirror.kill()
    assert compare.assert_changelogs() > 500


@pytest.mark.fault(
    "A second process runs the same mirror, on this machine or another",
    area="Other writers",
    on="MySQL, Debezium, Kafka",
    outcome="it is refused, or one of the two ends",
)
@pytest.mark.long
def test_second_mirror_process_is_refused_or_fenced(mirror_database: MirroredDatabaseBuilder) -> None:
    """A second process is refused on this machine; one with another state folder makes one of the two stop."""
    mirrored = mirror_database(tables=4, extra=FAST_MIRROR)
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        again = subprocess.run(
            [COMMAND, "run", "-c", str(mirrored.config)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert again.returncode == 2
        assert "is already running" in again.stderr
        assert "next:" in again.stderr
        elsewhere = mirrored.configured(
            "elsewhere.toml", mirrored.config.read_text().replace('/state"', '/other-state"')
        )
        with running(elsewhere, mirrored.folder / "elsewhere.log") as other, mirrored.writers(5):
            until(
                lambda: not mirror.is_alive() or not other.is_alive(),
                seconds=START_S,
                doing="one of two mirrors gives way",
            )
        loser, winner = (other, mirror) if mirror.is_alive() else (mirror, other)
        assert loser.wait(120) == 3
        assert "another process writes" in loser.tail()
    config, output = winner.config, mirrored.folder / "winner.log"
    with running(config, output) as mirror:
        compare.await_equal(mirror, START_S)
    compare.assert_changelogs()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["split", "merge"])
def test_mirror_equals_the_source_on_a_cluster_of_two_workers(
    mirror_database: MirroredDatabaseBuilder, strategy: str
) -> None:
    """Executors are separate processes, so no step may depend on the memory of one JVM."""
    extra = f"""
[apply]
strategy = "{strategy}"
driver_max_events = 0
[spark]
master = "local-cluster[2,1,1024]"
driver_memory = "1g"
conf = {{ "spark.executor.memory" = "512m" }}
"""
    mirrored = mirror_database(tables=3, extra=extra)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    for seed in (7, 8):
        with mirrored.writers(seed):
            mirror.start()
            assert mirror.wait(400) == 0, mirror.tail()
    mirror.start()
    assert mirror.wait(400) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}
    assert mirrored.comparison.assert_changelogs() > 0
