"""`replicator tag` on the real MySQL, Kafka and Connect, while a writer changes all tables in each transaction."""

import json
import subprocess
from typing import Any

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.model.gtid import GtidSet
from replicator.operations.tag.request import list_tags
from tests.oracle.compare import tagged_rows
from tests.support.counters import COUNTERS, TABLES, counting, executed
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder


def command(mirrored: MirroredDatabase, *arguments: str) -> dict[str, Any]:
    """Run `replicator tag` and return its JSON."""
    words = [COMMAND, "tag", *arguments, "--json", "-c", str(mirrored.config)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def assert_one_state(mirrored: MirroredDatabase, name: str, before: GtidSet) -> int:
    """Assert that all tables have the state after one transaction, which is the last one before the position.

    `before` are the transactions before the first one of the writer. Return the number of the transaction.
    """
    config = load(mirrored.config)
    tag = next(t for t in list_tags(config) if t.name == name)
    assert (tag.state, len(tag.tables)) == ("complete", 5)
    count = before.lacking(GtidSet.parse(tag.gtids or ""))

    def rows(table: str, namespace: str = config.lake.namespace) -> list[dict[str, Any]]:
        with open_catalog(config.lake) as catalog:
            return tagged_rows(catalog.load_table((namespace, table)), name)

    assert sorted(row["n"] for row in rows("journal")) == list(range(1, count + 1))
    for counter in COUNTERS:
        assert [row["n"] for row in rows(counter)] == [count, count]
        changes = rows(counter, config.lake.changes_namespace)
        assert sum(row["_change"]["kind"] == "UPDATE_AFTER" for row in changes) == 2 * count
    assert sorted(row["id"] for row in rows("idle")) == [1, 2, 3]
    return count


@pytest.mark.fault(
    "The mirror is killed when some tables have a tag and others do not",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="the next process completes the tag",
)
@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 2])
def test_tags_show_one_state_of_the_database_under_load_and_after_kills(
    mirror_database: MirroredDatabaseBuilder, partitions: int
) -> None:
    mirrored = mirror_database(
        tables=0, log=f"partitions = {partitions}", extra=FAST_MIRROR, seed_rows=False, prepare=TABLES
    )
    database, output = mirrored.database, mirrored.folder / "out.log"
    before = executed(database)
    with running(mirrored.config, output) as mirror, counting(database):
        until(mirror.batches, seconds=START_S, doing="the first batch")
        command(mirrored, "first", "--wait", "240")
        counts = [assert_one_state(mirrored, "first", before)]
        assert mirror.stop() == 0, mirror.tail()
        # The process kills itself while some tables are tagged, and others are not.
        mirror.start(REPLICATOR_CRASH_AT="after-tag:3")
        command(mirrored, "second", "--wait", "0")
        assert mirror.wait(START_S) != 0
        assert [tag.state for tag in list_tags(load(mirrored.config))] == ["complete", "started"]
        mirror.start()
        until(
            lambda: [tag.state for tag in list_tags(load(mirrored.config))] == ["complete", "complete"],
            seconds=START_S,
            doing="the second tag",
        )
        counts.append(assert_one_state(mirrored, "second", before))
        command(mirrored, "first", "--delete", "--wait", "60")
        assert mirror.stop() == 0, mirror.tail()
    # Without a running mirror, the next run makes the tag, at the end of the binlog when it starts.
    command(mirrored, "third", "--wait", "0")
    with running(mirrored.config, output) as mirror:
        mirror.kill()
        mirror.arguments = ("--until-caught-up",)
        mirror.start()
        assert mirror.wait(START_S) == 0, mirror.tail()
    counts.append(assert_one_state(mirrored, "third", before))
    assert counts == sorted(set(counts))
    assert counts[-1] == database.rows("SELECT MAX(n) FROM journal")[0][0]
    assert [tag["name"] for tag in command(mirrored)["tags"]] == ["second", "third"]
    assert mirrored.comparison.differences() == {}
