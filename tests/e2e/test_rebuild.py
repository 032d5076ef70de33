"""`replicator rebuild` and `restore` on the real MySQL, Kafka and Connect."""

import json
import subprocess
from typing import Any

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from tests.oracle.compare import lake_rows
from tests.support.counters import COUNTERS, TABLES, counting, executed
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder

ALTERS = (
    "ALTER TABLE counter_b ADD COLUMN added INT NOT NULL DEFAULT 7",
    "ALTER TABLE counter_c MODIFY n BIGINT NOT NULL",
)


def command(mirrored: MirroredDatabase, *arguments: str) -> list[dict[str, Any]]:
    """Run a command and return the tables in its JSON."""
    words = [COMMAND, *arguments, "--json", "-c", str(mirrored.config)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads(done.stdout)["tables"])


def rows(mirrored: MirroredDatabase, namespace: str, table: str) -> list[dict[str, Any]]:
    with open_catalog(load(mirrored.config).lake) as catalog:
        return lake_rows(catalog, namespace, table)


@pytest.mark.long
def test_mirrors_are_rebuilt_in_place_and_restored_at_a_transaction(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, extra=FAST_MIRROR, seed_rows=False, prepare=TABLES)
    database, compare = mirrored.database, mirrored.comparison
    before = executed(database)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        until(mirror.batches, seconds=START_S, doing="the first batch")
        with counting(database) as writer:
            until(lambda: writer.commits > 200, seconds=120, doing="200 transactions")
        database.execute(*ALTERS)
        with counting(database, writer.commits) as writer:
            until(lambda: writer.commits > 300, seconds=120, doing="300 transactions")
        compare.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()

        reports = command(mirrored, "rebuild", "--yes")
        assert {report["rows"] == report["rows_before"] for report in reports} == {True}
        assert compare.differences() == {}

        ((uuid, intervals),) = before.intervals.items()
        number = intervals[-1][1] + 100
        command(mirrored, "restore", "--as-of", f"{uuid}:{number}", "--to", "then")
        assert sorted(row["n"] for row in rows(mirrored, "then", "journal")) == list(range(1, 101))
        for counter in COUNTERS:
            # Both columns changed later.
            assert [list(row) for row in rows(mirrored, "then", counter)] == [["id", "n"]] * 2
            assert [row["n"] for row in rows(mirrored, "then", counter)] == [100, 100]

        mirror.start()
        database.execute("UPDATE counter_a SET n = n + 1", "DELETE FROM idle WHERE id = 1")
        compare.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
