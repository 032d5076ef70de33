"""`replicator verify` on the real stack: no false difference while both change, and every planted fault by name."""

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import shown_status
from tests.workload.paced_writer import PACED, PacedWriter

CHECKS = 20
RATE = 2_000
"""Rows that change per second during the checks, beside those of the random writers."""
KEYLESS = ["CREATE TABLE log (at INT, note VARCHAR(20) CHARACTER SET latin1, document JSON)"]
WIDE = [
    """
    CREATE TABLE wide (
        id BIGINT UNSIGNED PRIMARY KEY, a VARCHAR(20), b DOUBLE, c JSON, d DATETIME(6), e DECIMAL(30,9)
    )
    """,
    """
    INSERT INTO wide WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
    SELECT i * 1000000007, CONCAT('é', i), i / 7, JSON_OBJECT('n', i), '2024-02-29 12:34:56.789012', i / 3 FROM n
    """,
    "CREATE TABLE gone (id INT PRIMARY KEY, v INT)",
    "INSERT INTO gone VALUES (1, 1), (2, 2)",
]
FAULTS = (
    "UPDATE wide SET b = b + 1e-9 WHERE id = 7 * 1000000007",
    "DELETE FROM wide WHERE id = 8 * 1000000007",
    "INSERT INTO wide VALUES (5, 'only in the source', NULL, NULL, NULL, NULL)",
    # The values of two rows are exchanged.
    "UPDATE wide SET a = CONCAT('é', 31 - CAST(SUBSTRING(a, 2) AS SIGNED)) WHERE id IN (15000000105, 16000000112)",
    "UPDATE wide SET c = JSON_SET(c, '$.n', 'x') WHERE id = 20 * 1000000007",
    # The end of the table is cut off in the source.
    "DELETE FROM wide WHERE id > 998 * 1000000007",
    "INSERT INTO log VALUES (1, 'é', NULL)",
    "DELETE FROM log WHERE at = 2 LIMIT 1",
)
"""Changes that the binlog does not have."""


def run(
    mirrored: MirroredDatabase, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, "verify", *arguments, "-c", str(mirrored.config), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def verify(mirrored: MirroredDatabase, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the report of a check; tables by their name without the database."""
    done = run(mirrored, *arguments)
    assert done.stdout, done.stderr[-3000:]
    report = json.loads(done.stdout)
    report["tables"] = {t["table"].partition(".")[2]: t for t in report["tables"]}
    return done.returncode, report


@pytest.mark.long
def test_verify_while_writers_write_and_with_planted_faults(mirror_database: MirroredDatabaseBuilder) -> None:
    rows = [
        *KEYLESS,
        "INSERT INTO log VALUES (1, 'é', NULL), (2, 'a|b', '{}'), (2, 'a|b', '{}'), (NULL, NULL, NULL)",
    ]
    extra = f'{FAST_MIRROR}[[table]]\nname = "{{name}}.log"\nkeyless = "identity"\n'
    mirrored = mirror_database(tables=5, extra=extra, prepare=[*rows, *WIDE, *PACED])
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        with mirrored.writers(1, 2), PacedWriter(mirrored.database.connect, RATE) as load:
            undone = 0
            for _ in range(CHECKS):
                code, report = verify(mirrored)
                assert (code, report["verdict"]) == (0, "equal"), report
                undone += sum(table["undone_images"] for table in report["tables"].values())
            until(lambda: load.lacking <= RATE, seconds=60, doing="the load has its rate")
        assert undone > 0, "nothing changed after the source was read, so this proves little"
        mirrored.comparison.await_equal(mirror, START_S)
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            for fault in FAULTS:
                cursor.execute(fault)
            cursor.execute("DROP TABLE gone")
            cursor.execute("ALTER TABLE t01 MODIFY number VARCHAR(20)")
        page = mirrored.folder / "report.html"
        code, report = verify(mirrored, "--report", str(page))
        assert code == 1
        assert "</html>" in page.read_text(encoding="utf-8")
        tables = report["tables"]
        assert {name for name, t in tables.items() if t["verdict"] == "equal"} == {
            "t00", "t02", "t03", "t04", "paced"
        }  # fmt: skip
        found = {
            (row["kind"], int(row["key"]["id"]) // 1000000007, *row["columns"])
            for row in tables["wide"]["rows"]
        }
        assert found == {
            ("different", 7, "b"),
            ("unexpected", 8),
            ("missing", 0),
            ("different", 15, "a"),
            ("different", 16, "a"),
            ("different", 20, "c"),
            ("unexpected", 999),
            ("unexpected", 1000),
        }
        log = {(row["kind"], (row["source"] or row["lake"])["note"]) for row in tables["log"]["rows"]}
        assert log == {("missing", "é"), ("unexpected", "a|b")}
        assert [f["text"] for f in tables["gone"]["schema"]] == ["the source has no such table"]
        assert [f["severity"] for f in tables["t01"]["schema"]] == ["different"]
        wide = f"{mirrored.database.name}.wide"
        assert (verify(mirrored, "--repair", "--dry-run", "--table", wide))[0] == 1
        code, report = verify(mirrored, "--repair", "--table", wide)
        assert (code, report["tables"]["wide"]["repaired"]) == (0, len(found)), report
        assert mirrored.comparison.differences({"wide"}) == {}
        status = shown_status(mirrored)
        assert next(r for r in status["rereads"] if r["name"] == "wide")["narrowed"]["column"] == "id"
        assert mirror.stop() == 0, mirror.tail()
    status = shown_status(mirrored)
    past = next(history["checks"] for history in status["checks"] if history["name"] == "paced")
    assert [check["verdict"] for check in past] == ["equal"] * len(past)
    assert len(past) >= 5
    verdicts = {v["name"]: v["verdict"] for v in status["verified"]}
    assert (verdicts["wide"], verdicts["log"], verdicts["t00"]) == ("equal", "different", "equal")
    code, report = verify(mirrored, "--wait", "0", "--table", f"{mirrored.database.name}.t02")
    assert (code, set(report["tables"])) == (0, {"t02"})


COUNTED = (
    "CREATE TABLE {} (id INT PRIMARY KEY, v INT)",
    "INSERT INTO {} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i, i FROM n",
)


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {name: table["verdict"] for name, table in report["tables"].items()}


@pytest.mark.fault(
    "A check of the mirror is killed",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="`--resume` continues it",
)
@pytest.mark.long
def test_a_killed_check_is_continued_and_changed_keys_are_checked(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = [statement.format(name) for name in ("first", "second") for statement in COUNTED]
    mirrored = mirror_database(tables=1, extra=FAST_MIRROR, prepare=prepare)
    first, second = (f"{mirrored.database.name}.{name}" for name in ("first", "second"))

    def silently(*statements: str) -> None:
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            for statement in statements:
                cursor.execute(statement)

    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        killed = run(mirrored, REPLICATOR_CRASH_AT="after-verified-table")
        assert killed.returncode == -signal.SIGKILL
        silently("UPDATE first SET v = 0 WHERE id = 1", "UPDATE second SET v = 0 WHERE id = 2")
        refused = run(mirrored, "--resume", "--sample", "50")
        assert (refused.returncode, "other options" in refused.stderr) == (2, True), refused.stderr
        # The first table was checked before the fault; it is not checked again.
        code, report = verify(mirrored, "--resume")
        assert code == 1
        assert verdicts(report) == {"first": "equal", "second": "different", "t00": "equal"}
        code, report = verify(mirrored, "--resume")
        assert verdicts(report) == {"first": "different", "second": "different", "t00": "equal"}
        code, report = verify(mirrored, "--table", first, "--first", "2", "--last", "50")
        found = report["tables"]["first"]
        assert (code, found["source_rows"], found["lake_rows"], found["sampled"]) == (0, 49, 49, True)
        silently("UPDATE first SET v = 1 WHERE id = 1", "UPDATE second SET v = 2 WHERE id = 2")
        assert verify(mirrored)[0] == 0
        # Row 7 changes, and then again silently; row 8 changes silently, and is not among the keys that changed.
        mirrored.database.execute(
            "UPDATE first SET v = 70 WHERE id IN (7, 9)", "DELETE FROM first WHERE id = 10"
        )
        silently("UPDATE first SET v = 71 WHERE id = 7", "UPDATE first SET v = 80 WHERE id = 8")
        code, report = verify(mirrored, "--since", "last")
        found = report["tables"]["first"]
        assert (code, found["by"], [row["key"] for row in found["rows"]]) == (1, "keys", [{"id": "7"}]), (
            report
        )
        assert (report["tables"]["second"]["verdict"], report["tables"]["second"]["source_rows"]) == (
            "equal",
            0,
        )
        code, report = verify(mirrored, "--since", "last", "--table", first)
        # The last check was not equal, so all rows are checked.
        assert (code, report["tables"]["first"]["different"], report["tables"]["first"]["by"]) == (
            1,
            2,
            "ranges",
        )
        code, report = verify(mirrored, "--since", report["position"], "--table", second)
        assert (code, report["tables"]["second"]["source_rows"]) == (0, 0)
        assert mirror.stop() == 0, mirror.tail()


@pytest.mark.long
def test_a_repair_reads_and_writes_only_ranges_that_differ(mirror_database: MirroredDatabaseBuilder) -> None:
    rows = 100_000
    prepare = [
        "CREATE TABLE long_table (id BIGINT, line INT, v INT, PRIMARY KEY (id, line))",
        """
        INSERT INTO long_table WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
        SELECT 1000 * a.i + b.i, 1, 0 FROM n a, n b WHERE a.i < 100
        """,
        "CREATE TABLE uuids (uid BINARY(16) PRIMARY KEY, v INT)",
        "INSERT INTO uuids SELECT UNHEX(LEFT(SHA2(id, 256), 32)), id FROM long_table",
    ]
    mirrored = mirror_database(tables=1, extra=FAST_MIRROR, prepare=prepare)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("UPDATE long_table SET v = 1 WHERE id IN (5, 99990)")
            cursor.execute("DELETE FROM long_table WHERE id = 6")
            cursor.execute("INSERT INTO long_table VALUES (7, 2, 2)")
        name = f"{mirrored.database.name}.long_table"
        # The check does not look at the last keys, so the repair does not either.
        code, report = verify(mirrored, "--repair", "--table", name, "--last", "50000")
        repaired = report["tables"]["long_table"]
        assert (code, repaired["repaired"], repaired["source_rows"]) == (0, 3, 50_001)
        request = next(r for r in shown_status(mirrored)["rereads"] if r["name"] == "long_table")
        assert 0 < request["rows"] <= rows / 2 + 1
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("UPDATE uuids SET v = -1 WHERE uid = UNHEX(LEFT(SHA2(77, 256), 32))")
        code, report = verify(mirrored, "--repair", "--table", f"{mirrored.database.name}.uuids")
        assert (code, report["tables"]["uuids"]["repaired"]) == (0, 1)
        request = next(r for r in shown_status(mirrored)["rereads"] if r["name"] == "uuids")
        assert 0 < request["rows"] < rows / 2
        code, report = verify(mirrored)
        assert [row["key"]["id"] for row in report["tables"]["long_table"]["rows"]] == ["99990"]
        shown = subprocess.run(
            [COMMAND, "verify", "--repair", "--dry-run", "-c", str(mirrored.config)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "insert 0 rows, update 1 and delete 0" in shown.stdout
        assert verify(mirrored)[0] == 1
        # Changes go on while the range is read.
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE long_table SET v = v + 10 WHERE id < 10")
        assert verify(mirrored, "--repair")[0] == 0
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
