"""An archive tells of which tables it has all rows, and can take rows along that no event has."""

import json

import pytest

from tests.e2e.test_replay import other_lake, run
from tests.support.mirror import HEALING_MIRROR, START_S, Comparison, MirrorProcess
from tests.support.mirrored_database import MirroredDatabaseBuilder


@pytest.mark.fault(
    "An archive lacks the first rows of a table, because the mirror has read them itself",
    area="Log",
    on="MySQL, Debezium, Kafka",
    outcome="a replay into a new lake pauses this table only; `run` reads it from the source",
)
def test_replay_refuses_the_table_whose_first_rows_the_archive_lacks_and_run_reads_it(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = [
        "CREATE TABLE old (id INT PRIMARY KEY, v INT)",
        "INSERT INTO old WITH RECURSIVE s AS (SELECT 1 n UNION SELECT n + 1 FROM s WHERE n < 500) SELECT n, n FROM s",
    ]
    mirrored = mirror_database(tables=0, extra=HEALING_MIRROR, prepare=prepare, seed_rows=False)
    archive = mirrored.folder / "archive"
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    mirrored.database.execute(
        "UPDATE old SET v = 0 WHERE id = 1",
        "CREATE TABLE young (id INT PRIMARY KEY)",
        "INSERT INTO young VALUES (1), (2)",
    )
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    run("record", "-c", mirrored.config, "--to", archive, "--until-caught-up")
    shown = json.loads(run("archive", "--from", archive, "--json"))["partitions"]
    assert {part["topic"].rpartition(".")[2]: part["beginning"] for part in shown if part["beginning"]} == {
        "old": "partial",
        "young": "whole",
    }
    new = other_lake(mirrored, "new")
    refused = run("replay", "-c", new, "--from", archive, code=1)
    assert "the archive does not have" in refused
    assert Comparison.of(mirrored.database, new).differences() == {"old": "not in the lake"}
    next_step = MirrorProcess(new, mirrored.folder / "next.log", ("--until-caught-up",))
    next_step.start()
    assert next_step.wait(START_S) == 0, next_step.tail()
    assert Comparison.of(mirrored.database, new).differences() == {}
