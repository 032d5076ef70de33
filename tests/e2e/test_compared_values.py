"""A mirror without `[verify]` compares its rows with the source by itself, on the real stack."""

import json
import subprocess
from typing import Any

import pytest

from tests.support.mirror import COMMAND, HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.source import NOT_COMPARED

TABLES = (
    "CREATE TABLE busy (id INT PRIMARY KEY, v INT, note VARCHAR(20))",
    "INSERT INTO busy VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd')",
    # The tables are compared as a whole in the order of their names.
    "CREATE TABLE z_quiet (name VARCHAR(20) PRIMARY KEY, v INT)",
    "INSERT INTO z_quiet VALUES ('one', 1), ('two', 2)",
)
DIFFERS = "the mirror differs from the source"
FOUND_S = 120


def silently(mirrored: MirroredDatabase, *statements: str) -> None:
    """Change rows so that no event shows it, right after a change of which there is one."""
    with mirrored.database.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            cursor.execute("SET SESSION sql_log_bin = 0")


def without_section(mirrored: MirroredDatabase) -> None:
    text = mirrored.config.read_text()
    mirrored.config.write_text(text.replace(NOT_COMPARED, ""))


def differences(mirror: MirrorProcess) -> list[tuple[str, str]]:
    lines = [line for line in mirror.lines() if line["event"] == DIFFERS]
    return [(line["table"].rpartition(".")[2], line["found"]) for line in lines]


def status_of(mirrored: MirroredDatabase, table: str) -> dict[str, Any]:
    done = subprocess.run(
        [COMMAND, "status", "-c", str(mirrored.config), "--json"], capture_output=True, text=True, check=True
    )
    return next(t for t in json.loads(done.stdout)["tables"] if t["source"].endswith(f".{table}"))


@pytest.mark.fault(
    "Rows of the lake differ from the source's, which no event shows",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="rows that changed recently are compared within a minute, tables as a whole once a day; what differs is "
    "read again, and a table that differs again within an hour is paused",
    lost="the changes between, in the changelog: it has the differences",
)
def test_rows_that_differ_are_found_and_corrected_without_configuration(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR, prepare=TABLES)
    without_section(mirrored)
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        silently(
            mirrored,
            "UPDATE z_quiet SET v = 10 WHERE v = 1 AND v = 2",
            "UPDATE z_quiet SET v = 20 WHERE v = 2",
        )
        silently(
            mirrored, "UPDATE busy SET v = 10 WHERE id = 2", "UPDATE busy SET note = 'wrong' WHERE id = 2"
        )
        until(lambda: len(differences(mirror)) == 2, seconds=FOUND_S, doing="both differences are found")
        assert dict(differences(mirror)) == {
            "busy": "1 row different, in note",
            "z_quiet": "1 row different, in v",
        }
        compare.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
