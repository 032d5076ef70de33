"""Everyday tables in batches whose files Spark's workers write, and their histories, on a real server."""

import itertools
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from tests.support.mirror import COMMAND, FAST_MIRROR
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import command

CONFIG = (
    FAST_MIRROR.replace("[apply]", "[apply]\ndriver_max_events = 3")
    + """
[[table]]
name = "{name}.keys_of_all"
history = "scd2"

[[table]]
name = "{name}.moving"
history = "scd2"
history_columns = ["v"]

[[table]]
name = "{name}.codes"
history = "soft_delete"
"""
)
HISTORIES = {"keys_of_all": ("d", "s", "b", "u", "e"), "moving": ("id",), "codes": ("code",)}
WIDE = ", ".join(
    f"c{n:03d} {('INT DEFAULT 7', 'VARCHAR(30)', 'DECIMAL(10, 3)', 'DATETIME(6)', 'TINYINT(1)')[n % 5]}"
    for n in range(297)
)
PREPARE = [
    (
        "CREATE TABLE keys_of_all (d DATE, s VARCHAR(40), b VARBINARY(8), u BIGINT UNSIGNED, "
        "e ENUM('a', 'b,c', ''), v INT, PRIMARY KEY (d, s, b, u, e)) COLLATE utf8mb4_0900_ai_ci"
    ),
    "CREATE TABLE codes (code CHAR(10) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci",
    "CREATE TABLE moments (at DATETIME(6), t TIME(6), y YEAR, z TIMESTAMP(6) NULL, v INT, PRIMARY KEY (at, t, y))",
    "CREATE TABLE docs (id BIGINT UNSIGNED PRIMARY KEY, body MEDIUMTEXT, j JSON, note TEXT, raw_bytes MEDIUMBLOB)",
    (
        f"CREATE TABLE wide (id INT PRIMARY KEY, {WIDE}, s VARCHAR(80) AS (CONCAT(c001, '!')) STORED, "
        "g INT AS (c000 * 2) VIRTUAL)"
    ),
    "CREATE TABLE one (id INT PRIMARY KEY, v VARCHAR(20) DEFAULT (LEFT(UUID(), 8)))",
    "CREATE TABLE moving (id INT PRIMARY KEY, v INT, w INT)",
    "CREATE TABLE cut (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE altered (id INT PRIMARY KEY, a INT, b VARCHAR(10))",
    "CREATE TABLE merged (id INT PRIMARY KEY, total_order DECIMAL(20, 2), srid BIGINT UNSIGNED, p POINT SRID 4326)",
    "INSERT INTO one (id) VALUES (1)",
    *(
        f"INSERT INTO {t} (id, v) VALUES {', '.join(f'({n}, {n})' for n in range(30))}"
        for t in ("moving", "cut")
    ),
    "INSERT INTO altered VALUES " + ", ".join(f"({n}, {n}, 'x{n}')" for n in range(30)),
    "INSERT INTO codes VALUES " + ", ".join(f"('k{n}', {n})" for n in range(20)),
]
DAYS = ("0001-01-01", "0999-12-31", "1582-10-10", "1969-12-31", "9999-12-31")
KEYS = [
    f"('{day}', '{text}', x'{raw}', {number}, '{label}', 1)"
    for day in DAYS
    for text in ("", "it''s", "🦊", "Straße")
    for raw, number, label in (("", 0, "a"), ("00ff", 2**64 - 1, "b,c"), ("20", 2**63, ""))
]
FIRST = [
    f"INSERT INTO keys_of_all VALUES {', '.join(KEYS)}",
    "UPDATE keys_of_all SET v = 2 WHERE u = 0",
    "UPDATE keys_of_all SET s = UPPER(s) WHERE e = 'b,c'",
    "DELETE FROM keys_of_all WHERE e = '' AND d < '1000-01-01'",
    "INSERT INTO codes VALUES ('K1', 100), ('k2 ', 200), ('new', 1) ON DUPLICATE KEY UPDATE v = v + 1000",
    "REPLACE INTO codes VALUES ('K3', 300), ('k4', 400), ('other', 2)",
    "UPDATE codes SET code = 'K5' WHERE code = 'k5'",
    "DELETE FROM codes WHERE v BETWEEN 10 AND 12",
    (
        "INSERT INTO moments VALUES ('0001-01-01 00:00:00.000001', '-838:59:59', 1901, NULL, 1), "
        "('1969-12-31 23:59:59.999999', '838:59:59', 2155, '1970-01-01 00:00:01.5', 2), "
        "('9999-12-31 23:59:59.999999', '25:00:00.5', 0, '2038-01-19 03:14:07.999999', 3), "
        "('1900-01-01', '00:00:00', 2000, NULL, 4), ('2024-02-29 12:00:00.5', '-00:00:00.000001', 1970, NULL, 5)"
    ),
    "UPDATE moments SET v = v + 10",
    "UPDATE moments SET t = ADDTIME(t, '00:00:01') WHERE y = 2000",
    (
        "INSERT INTO docs VALUES (0, '', 'null', NULL, x''), (1, NULL, NULL, 'null', NULL), "
        "(2, REPEAT('é', 1000000), '\"\"', REPEAT('z', 5000), REPEAT(x'ff', 1500000)), "
        "(3, REPEAT('🦊', 300000), '{\"a\": 1.0, \"b\": [null, 1e300]}', 'a', x'00'), "
        "(18446744073709551615, 'x', '[]', REPEAT('a', 4097), NULL)"
    ),
    "UPDATE docs SET note = CONCAT(COALESCE(note, ''), '!')",
    "UPDATE docs SET body = CONCAT(body, '.') WHERE id > 1",
    "INSERT INTO wide (id, c001) VALUES " + ", ".join(f"({n}, 'text {n}')" for n in range(40)),
    "UPDATE wide SET c000 = id, c004 = -1, c003 = '1960-01-01 00:00:00.123456' WHERE id % 2",
    "UPDATE one SET v = 'changed'",
    (
        "INSERT INTO merged VALUES (1, 123456789012345678.25, 18446744073709551615, ST_SRID(POINT(1, 2), 4326)), "
        "(2, 0, 0, NULL), (3, -0.01, 4326, ST_SRID(POINT(-1, -2), 4326)), (4, 1, 1, NULL), (5, 2, 2, NULL)"
    ),
    "UPDATE merged SET total_order = total_order + 1",
    "UPDATE moving SET id = id + 100 WHERE id % 3 = 0",
    "UPDATE moving SET id = id - 100 WHERE id > 105",
    "UPDATE moving SET w = 5",
    "UPDATE moving SET v = v + 1 WHERE id % 2",
    "UPDATE cut SET v = 1",
    "TRUNCATE TABLE cut",
    "INSERT INTO cut VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
    "UPDATE altered SET a = a + 1",
    "ALTER TABLE altered ADD COLUMN c DECIMAL(6, 3) NOT NULL DEFAULT 1.5",
    "UPDATE altered SET c = 2 WHERE id < 10",
    "ALTER TABLE altered RENAME COLUMN b TO renamed",
    "UPDATE altered SET renamed = 'y' WHERE id < 5",
    "ALTER TABLE altered MODIFY a BIGINT, DROP COLUMN c, ADD COLUMN b INT",
    "UPDATE altered SET b = 3, a = 5000000000 WHERE id > 20",
]
SECOND = [
    "UPDATE keys_of_all SET v = v + 1",
    "DELETE FROM keys_of_all WHERE u = 0 AND s = ''",
    "INSERT INTO keys_of_all VALUES ('0001-01-01', '', x'', 0, 'a', 9), ('0999-12-31', '', x'', 0, 'a', 9)",
    "UPDATE codes SET v = v + 1",
    "DELETE FROM codes WHERE code LIKE 'k1_'",
    "INSERT INTO codes VALUES ('K11', 1), ('k10', 2)",
    "DELETE FROM moments WHERE y = 1901",
    "UPDATE moments SET v = v + 1",
    "UPDATE docs SET j = JSON_SET(COALESCE(j, '{}'), '$.n', id)",
    "DELETE FROM docs WHERE id = 2",
    "UPDATE wide SET c002 = -0.5",
    "UPDATE moving SET v = v + 1, id = id + 1000 WHERE id < 20",
    "DELETE FROM moving WHERE id > 1010",
    "UPDATE cut SET v = v + 1",
    "UPDATE altered SET a = -a, renamed = NULL",
    "UPDATE merged SET srid = id",
]


def catch_up(mirrored: MirroredDatabase) -> None:
    ran = subprocess.run(
        [COMMAND, "run", "-c", str(mirrored.config), "--until-caught-up"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert mirrored.comparison.differences() == {}
    mirrored.comparison.assert_changelogs(besides={"altered"})


def written_by_workers(folder: Path) -> set[str]:
    """Return the tables and changelogs that have files of workers; their names begin with the label of a batch."""
    found = folder.rglob("data/*.parquet")
    return {"/".join(f.parts[-4:-2]) for f in found if re.match(r"[0-9a-f]{32}-", f.name)}


def rows(mirrored: MirroredDatabase, namespace: str, table: str) -> list[dict[str, Any]]:
    with open_catalog(load(mirrored.config).lake) as catalog:
        return catalog.load_table((namespace, table)).scan().to_arrow().to_pylist()


def assert_histories(mirrored: MirroredDatabase) -> None:
    lake = load(mirrored.config).lake
    for table, key in HISTORIES.items():
        mirror = rows(mirrored, lake.namespace, table)
        history = rows(mirrored, lake.history_namespace, table)
        is_open = [row.get("is_current", row.get("deleted_at") is None) for row in history]
        names = list(mirror[0])
        current = Counter(
            tuple(row[n] for n in names) for row, found in zip(history, is_open, strict=True) if found
        )
        assert current == Counter(tuple(row[n] for n in names) for row in mirror), table
        if "is_current" not in history[0]:
            assert len({tuple(row[n] for n in key) for row in history}) == len(history)
            continue
        versions: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
        for row in history:
            versions.setdefault(tuple(row[n] for n in key), []).append((row["valid_from"], row["valid_to"]))
        for found in versions.values():
            found.sort(key=lambda times: (times[0], times[1] is None, times[1] or 0))
            assert all(a[1] is not None and a[1] <= b[0] for a, b in itertools.pairwise(found))


@pytest.mark.long
def test_everyday_tables_in_large_batches(mirror_database: MirroredDatabaseBuilder) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, extra=CONFIG, prepare=PREPARE)
    catch_up(mirrored)
    for statements in (FIRST, SECOND):
        mirrored.database.execute(*statements)
        catch_up(mirrored)
        command(mirrored, "pipeline", "run")
        assert_histories(mirrored)
    found = written_by_workers(mirrored.folder)
    for table in ("keys_of_all", "codes", "moments", "docs", "wide", "moving", "cut", "altered", "merged"):
        assert {name for name in found if name.endswith(f"/{table}")}, (table, found)
