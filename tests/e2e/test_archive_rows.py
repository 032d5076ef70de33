"""An archive tells of which tables it has all rows, and can take rows along that no event has."""

import json

import pytest
import requests

from tests.e2e.test_replay import archive_all, other_lake, run
from tests.support.encodings import ENCODINGS, Encoding
from tests.support.mirror import HEALING_MIRROR, START_S, Comparison, MirrorProcess
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.source import SourceDatabase


@pytest.mark.fault(
    "An archive lacks the first rows of a table, because the mirror has read them itself",
    area="Log",
    on="MySQL, Debezium, Kafka",
    outcome="a replay into a new lake pauses this table only; `run` reads it from the source",
)
@pytest.mark.long
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


@pytest.mark.parametrize("encoding", ENCODINGS[1:], ids=str)
@pytest.mark.long
def test_archive_with_rows_restores_every_table_without_the_source_and_run_goes_on(
    mirror_database: MirroredDatabaseBuilder, source_database: SourceDatabase, encoding: Encoding
) -> None:
    prepare = [
        "CREATE TABLE empty_one (id INT PRIMARY KEY)",
        "CREATE TABLE quiet (id INT PRIMARY KEY, d DECIMAL(10,2), t TEXT, b VARBINARY(9), j JSON, ts TIMESTAMP(3))",
        "INSERT INTO quiet VALUES (1, 1.50, 'é中🦊', x'00FF', '[1]', '2024-02-29 12:00:00.5')",
        "CREATE TABLE keyless (a INT, b TEXT)",
        "INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    ]
    log = encoding.log(source_database)
    mirrored = mirror_database(tables=3, log=log, extra=HEALING_MIRROR, prepare=prepare)
    archive, new = mirrored.folder / "archive", other_lake(mirrored, "new")
    with mirrored.writers(1, pause=0.1):
        run("record", "-c", mirrored.config, "--to", archive, "--until-caught-up")
        run("record", "-c", mirrored.config, "--to", archive, "--with-rows", "--until-caught-up")
        mirrored.database.execute(
            "DELETE FROM keyless WHERE a = 1 LIMIT 1",
            "ALTER TABLE t00 ADD late INT DEFAULT 7",
            "CREATE TABLE young (id INT PRIMARY KEY)",
            "INSERT INTO young VALUES (1)",
        )
    archive_all(mirrored, archive)
    shown = json.loads(run("archive", "--from", archive, "--verify", "--json"))
    assert shown["problems"] == []
    assert {part["beginning"] for part in shown["partitions"] if part["beginning"]} == {"whole"}
    run("replay", "-c", new, "--from", archive)
    comparison = Comparison.of(mirrored.database, new)
    assert comparison.differences() == {}
    comparison.assert_changelogs({"t00": {"late": 7}}, besides=("keyless",))
    assert "0 events in 0 batches" in run("replay", "-c", new, "--from", archive)
    names = requests.get(f"{mirrored.database.endpoints.connect_url}/connectors", timeout=30).json()
    assert not [name for name in names if name.startswith(f"{mirrored.database.prefix}-rows")]
    mirrored.database.execute(
        "UPDATE quiet SET d = 2.50",
        "INSERT INTO keyless VALUES (3, 'c')",
        "DELETE FROM young",
        "INSERT INTO empty_one VALUES (1)",
        "DELETE FROM t01 LIMIT 1",
    )
    mirror = MirrorProcess(new, mirrored.folder / "later.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert not [line for line in mirror.lines() if line["event"] == "re-read done"]
    assert comparison.differences() == {}
