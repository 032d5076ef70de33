"""A mirror without `[verify]` compares its rows with the source by itself, on the real stack."""

import subprocess
from typing import Any

import pytest

from tests.support.mirror import COMMAND, HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import command, shown_status
from tests.support.source import NOT_COMPARED

BUSY = (
    "CREATE TABLE busy (id INT PRIMARY KEY, v INT, note VARCHAR(20))",
    "INSERT INTO busy VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd')",
)
QUIET = (
    # The tables are compared as a whole in the order of their names.
    "CREATE TABLE z_quiet (name VARCHAR(20) PRIMARY KEY, v INT)",
    "INSERT INTO z_quiet VALUES ('one', 1), ('two', 2)",
)
REPAIRS = '[verify]\non_difference = "repair"\n'
"""Compares rows that changed recently, but no whole tables."""
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


def differences(mirror: MirrorProcess) -> list[tuple[str, str, str]]:
    lines = [line for line in mirror.lines() if line["event"] == DIFFERS]
    return [(line["table"].rpartition(".")[2], line["by"], line["found"]) for line in lines]


def status_of(mirrored: MirroredDatabase, table: str) -> dict[str, Any]:
    return next(t for t in shown_status(mirrored)["tables"] if t["source"].endswith(f".{table}"))


@pytest.mark.fault(
    "A row of the lake differs from the source's after a change",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="rows that changed recently are compared within a minute; what differs is read again, and a table that "
    "differs again within an hour is paused",
    lost="the values between, in the changelog: it has the differences",
)
def test_rows_that_changed_recently_and_differ_are_corrected_and_pause_the_table_the_second_time(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR + REPAIRS, prepare=BUSY)
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        wrong = ("UPDATE busy SET v = 10 WHERE id = 2", "UPDATE busy SET note = 'silent' WHERE id = 2")
        silently(mirrored, *wrong)
        until(lambda: differences(mirror), seconds=FOUND_S, doing="the difference is found")
        assert differences(mirror) == [("busy", "keys", "1 row different, in note")]
        compare.await_equal(mirror, START_S)
        silently(mirrored, "UPDATE busy SET v = 30 WHERE id = 3", "DELETE FROM busy WHERE id = 3")
        until(lambda: len(differences(mirror)) == 2, seconds=FOUND_S, doing="the second one is found")
        assert differences(mirror)[1] == ("busy", "keys", "1 row unexpected")
        known = until(
            lambda: (s := status_of(mirrored, "busy"))["state"] == "paused" and s["differences"] == 2 and s,
            seconds=FOUND_S,
            doing="the table is paused",
        )
        assert "differ from the source again: 1 row unexpected" in known["reason"]
        assert known["next_step"].endswith(f"replicator heal {mirrored.database.name}.busy")
        assert known["compared_at"] <= known["differed_at"]
        done = verify(mirrored, "busy")
        assert (done.returncode, "it is paused" in done.stdout) == (3, True), done.stdout
        command(mirrored, "heal", f"{mirrored.database.name}.busy")
        compare.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()


@pytest.mark.fault(
    "Rows of the lake differ from the source's, and nothing changes them",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="each table is compared as a whole once a day, without configuration; what differs is read again",
)
@pytest.mark.long
def test_a_table_is_compared_as_a_whole_without_configuration(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR, prepare=[*BUSY, *QUIET])
    without_section(mirrored)
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        silently(mirrored, "INSERT INTO z_quiet VALUES ('three', 3)", "UPDATE z_quiet SET v = 20 WHERE v = 2")
        until(lambda: differences(mirror), seconds=START_S, doing="the difference is found")
        assert differences(mirror) == [("z_quiet", "buckets", "1 row different, in v")]
        compare.await_equal(mirror, START_S)
        until(lambda: status_of(mirrored, "z_quiet")["proved_at"], seconds=START_S, doing="it is proved")
        assert mirror.stop() == 0, mirror.tail()


def verify(mirrored: MirroredDatabase, table: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, "verify", f"{mirrored.database.name}.{table}", "-c", str(mirrored.config)],
        capture_output=True,
        text=True,
        check=False,
    )
