"""Statements that change rows without row events, on a real server: the tables are read again, or keep their rows."""

import shutil
from pathlib import Path

import pytest

from tests.support.mirror import HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads, shown_status

CONFIG = f"""{HEALING_MIRROR}[[table]]
name = "{{name}}.archive"
schema_changes = {{ unlogged = "keep" }}

[[table]]
name = "{{name}}.follow_ranges"
schema_changes = {{ unlogged = "follow" }}

[[table]]
name = "{{name}}.follow_days"
schema_changes = {{ unlogged = "follow" }}
"""
RANGES = (
    "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), "
    "PARTITION p2 VALUES LESS THAN (30))"
)
LISTS = "PARTITION BY LIST (id) (PARTITION p0 VALUES IN (1, 2), PARTITION p1 VALUES IN (11, 12, 21, 25))"
BY_RANGE = ("truncated", "dropped", "parts", "reorganized", "plain", "archive")
PREPARE = [
    *(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT) {RANGES}" for name in BY_RANGE),
    "CREATE TABLE whole (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE hashed (id INT PRIMARY KEY, n INT) PARTITION BY HASH (id) PARTITIONS 4",
    f"CREATE TABLE lists (id INT PRIMARY KEY, n INT) {LISTS}",
    "CREATE TABLE spaces (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE computed (id INT PRIMARY KEY, n INT, s INT AS (n + 1) STORED, v INT AS (n + 2) VIRTUAL)",
]
FOLLOW_DAYS = (
    "PARTITION BY RANGE COLUMNS (d) (PARTITION p0 VALUES LESS THAN ('2024-02-01'), "
    "PARTITION p1 VALUES LESS THAN ('2024-04-01'))"
)
PREPARE += [
    f"CREATE TABLE follow_ranges (id INT PRIMARY KEY, n INT) {RANGES}",
    "CREATE TABLE follow_days (id INT, n INT, d DATE NOT NULL DEFAULT '2024-03-01', PRIMARY KEY (id, d)) "
    + FOLLOW_DAYS,
    "INSERT INTO follow_days VALUES (1, 6, '2024-01-15'), (6, 6, '2024-01-31'), (7, 6, '2024-02-01')",
]
FOLLOWED = ("follow_ranges", "follow_days")
TABLES = ("computed", "hashed", "lists", "spaces", "whole", *BY_RANGE, *FOLLOWED)
UNLOGGED = (
    "ALTER TABLE truncated /* , */ TRUNCATE PARTITION p0, `p1`",
    "ALTER TABLE {name}.dropped DROP PARTITION p1",
    "ALTER TABLE parts EXCHANGE PARTITION p2 WITH TABLE whole",
    "ALTER TABLE lists REORGANIZE PARTITION p0 INTO (PARTITION p0 VALUES IN (1))",
    "ALTER TABLE computed MODIFY COLUMN s INT GENERATED ALWAYS AS (n * 10) STORED",
    "ALTER TABLE computed CHANGE v w INT AS (n * 20) VIRTUAL, ADD COLUMN t INT AS (n * 30) STORED",
    "ALTER TABLE archive DROP PARTITION p0",
    "ALTER TABLE follow_ranges REORGANIZE PARTITION p0, p1 INTO (PARTITION p01 VALUES LESS THAN (20))",
    "ALTER TABLE follow_ranges ADD PARTITION (PARTITION p3 VALUES LESS THAN MAXVALUE)",
    "INSERT INTO follow_ranges VALUES (40, 1), (50, 1)",
    "ALTER TABLE follow_ranges DROP PARTITION P01, `p3`",
    "INSERT INTO follow_ranges VALUES (3, 3)",
    "ALTER TABLE follow_days ADD PARTITION (PARTITION p2 VALUES LESS THAN ('2025-01-01'))",
    "INSERT INTO follow_days VALUES (8, 8, '2024-04-01'), (9, 9, '2024-12-31')",
    "ALTER TABLE follow_days DROP PARTITION p2",
    "ALTER TABLE follow_days TRUNCATE PARTITION p0",
    "INSERT INTO follow_days VALUES (9, 9, '2024-01-01')",
)
"""Statements that change rows."""
HARMLESS = (
    "ALTER TABLE hashed COALESCE PARTITION 2",
    "ALTER TABLE reorganized REORGANIZE PARTITION p0, p1 INTO (PARTITION p0 VALUES LESS THAN (20))",
    "ALTER TABLE reorganized ADD PARTITION (PARTITION p3 VALUES LESS THAN (40))",
    "ALTER TABLE reorganized REBUILD PARTITION p0",
    "ALTER TABLE reorganized OPTIMIZE PARTITION ALL",
    "ALTER TABLE plain REMOVE PARTITIONING",
    "ALTER TABLE plain PARTITION BY HASH (id) PARTITIONS 3",
)
"""Statements about partitions that change no row."""


@pytest.mark.fault(
    "Rows change without events: `TRUNCATE`, `DROP`, `EXCHANGE PARTITION`, `REORGANIZE PARTITION` of lists, "
    "`IMPORT TABLESPACE`, new expressions of generated columns",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read again from the source; as configured, it follows dropped partitions, or keeps its rows "
    "and `status` says so",
)
@pytest.mark.long
def test_tables_equal_the_source_after_statements_that_change_rows_without_events(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    whole = "(22, 1), (23, 2)"
    rows = dict.fromkeys(TABLES, "(1, 1), (2, 2), (11, 3), (12, 4), (21, 5)") | {"whole": whole}
    fill = [f"INSERT INTO {table} (id, n) VALUES {values}" for table, values in rows.items()]
    mirrored = mirror_database(tables=0, seed_rows=False, extra=CONFIG, prepare=[*PREPARE, *fill])
    database = mirrored.database
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_rereads(mirror, len(TABLES))
        database.execute(*(f"UPDATE {table} SET n = n + 100 WHERE n IN (1, 4)" for table in TABLES))
        mirrored.comparison.await_equal(mirror, START_S)
        database.execute(*(s.replace("{name}", database.name) for s in (*UNLOGGED, *HARMLESS)))
        imported = import_earlier_rows(mirrored, "spaces")
        database.execute(*(f"INSERT INTO {table} (id, n) VALUES (25, 25)" for table in TABLES))
        wanted = {"truncated", "dropped", "parts", "whole", "lists", "computed"} | imported
        until(
            lambda: wanted <= healed(mirror),
            seconds=START_S,
            doing="the tables are read again",
        )
        mirrored.comparison.await_equal(mirror, START_S, {"archive"})
        assert healed(mirror) == wanted
        assert set(mirrored.comparison.differences()) == {"archive"}
        database.execute(*(f"UPDATE {table} SET n = n + 1" for table in TABLES))
        mirrored.comparison.await_equal(mirror, START_S, {"archive"})
        assert mirror.stop() == 0, mirror.tail()
    kept = {
        entry["source"]: [k["statement"] for k in entry["kept"]] for entry in shown_status(mirrored)["tables"]
    }
    assert {source: found for source, found in kept.items() if found} == {
        f"{database.name}.archive": ["ALTER TABLE archive DROP PARTITION p0"]
    }
    mirrored.comparison.assert_changelogs(besides={"archive", "computed", *FOLLOWED})


def healed(mirror: MirrorProcess) -> set[str]:
    """Return the tables that were read again, after they were read as new ones."""
    done = [line for line in mirror.lines() if line["event"] == "re-read done"]
    return {line["table"].rpartition(".")[2] for line in done if line["reason"] != "new table"}


def import_earlier_rows(mirrored: MirroredDatabase, table: str) -> set[str]:
    """Let a table have its present rows again after later changes, if the server's files can be written here."""
    folder = Path(mirrored.database.rows("SELECT @@datadir")[0][0]) / mirrored.database.name
    if not folder.exists():
        return set()
    with mirrored.database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"FLUSH TABLES {table} FOR EXPORT")
        for kind in ("ibd", "cfg"):
            shutil.copy(folder / f"{table}.{kind}", mirrored.folder)
        cursor.execute("UNLOCK TABLES")
        cursor.execute(f"DELETE FROM {table} WHERE id = 1")
        cursor.execute(f"ALTER TABLE {table} DISCARD TABLESPACE")
        for kind in ("ibd", "cfg"):
            shutil.copy(mirrored.folder / f"{table}.{kind}", folder)
        cursor.execute(f"ALTER TABLE {table} IMPORT TABLESPACE")
    return {table}
