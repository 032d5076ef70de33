"""`replicator verify` finds every planted fault, and names row and columns exactly, for every type and key shape.

Faults are planted in the source without a trace in its binlog.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
from pymysql.cursors import Cursor

from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, running
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.source import SourceDatabase
from tests.workload.column_types import MODES, TABLES, TypeTable

FIRST = 1000
"""Key of the row in which the first column of a table is changed."""
MOST = 0.8
"""At least this share of the types has two values that the lake can tell apart."""
ZERO = re.compile(rb"\d{4}-(00-|\d\d-00)")
KEYS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "k_int": ("k INT PRIMARY KEY", ("-2147483648", "-1", "0", "1", "2", "2147483647", "5")),
    "k_big": (
        "k BIGINT UNSIGNED PRIMARY KEY",
        ("0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615", "7", "8"),
    ),
    "k_pair": (
        "k INT, j VARCHAR(9), PRIMARY KEY (k, j)",
        ("1, 'a'", "1, 'b'", "2, ''", "2, 'a'", "-3, 'é'", "4, ' '", "4, 'x'"),
    ),
    "k_swapped": (
        "k INT, j SMALLINT UNSIGNED, PRIMARY KEY (j, k)",
        ("1, 2", "2, 1", "3, 65535", "-1, 0", "-1, 1", "0, 9", "7, 7"),
    ),
    "k_binary": ("k BINARY(3) PRIMARY KEY", ("''", "x'000001'", "x'ff'", "x'00ff'", "'a'", "'abc'", "'b'")),
    "k_varbinary": ("k VARBINARY(5) PRIMARY KEY", ("''", "x'00'", "x'0000'", "x'ff'", "'a'", "'ab'", "'b'")),
    "k_text": (
        "k VARCHAR(20) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY",
        ("''", "'a'", "'ß|'", "'Ö'", "'🦊'", "'z'", "'zz'"),
    ),
    "k_latin": (
        "k CHAR(5) CHARACTER SET latin1 PRIMARY KEY",
        ("''", "'a'", "'é'", "'ö'", "'b'", "'c'", "'d'"),
    ),
    "k_decimal": (
        "k DECIMAL(20,4) PRIMARY KEY",
        ("0", "-0.0001", "1.5", "9999999999999999.9999", "2", "3", "4"),
    ),
    "k_date": (
        "k DATE PRIMARY KEY",
        (
            "'1000-01-01'",
            "'1969-12-31'",
            "'1970-01-02'",
            "'2024-02-29'",
            "'9999-12-31'",
            "'2000-01-01'",
            "'2001-01-01'",
        ),
    ),
    "k_datetime": (
        "k DATETIME(6) PRIMARY KEY",
        tuple(f"'2024-01-01 00:00:00.00000{n}'" for n in range(7)),
    ),
    "k_timestamp": ("k TIMESTAMP(3) PRIMARY KEY", tuple(f"'2024-01-01 00:00:00.00{n}'" for n in range(1, 8))),
    "k_time": (
        "k TIME(1) PRIMARY KEY",
        ("'-838:59:59'", "'-0:0:1'", "0", "'0:0:0.1'", "'1:1:1'", "'2:0:0'", "'3:0:0'"),
    ),
    "k_year": ("k YEAR PRIMARY KEY", ("1901", "1999", "2000", "2024", "2155", "2001", "2002")),
    "k_enum": ("k ENUM('b','a','c','d','e','f','g') PRIMARY KEY", tuple(f"'{c}'" for c in "bacdefg")),
    "k_unique": ("k INT NOT NULL UNIQUE", ("5", "4", "3", "2", "1", "0", "-1")),
    "k_none": ("k INT, j FLOAT", ("1, 1", "1, 2", "2, NULL", "NULL, 1", "NULL, NULL", "3, 3", "4, 4")),
}
"""Name → columns of the key, and its values: six rows, and one that only the source gets."""
PARENTS = (
    "CREATE TABLE parents (id INT PRIMARY KEY)",
    """
    CREATE TABLE children (
        id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE
    )
    """,
    "INSERT INTO parents VALUES (1), (2)",
    "INSERT INTO children VALUES (1, 1), (2, 1), (3, 2)",
)


def creations(tables: tuple[TypeTable, ...]) -> list[str]:
    """Return statements that make a row for each column of each type, and six rows for each key shape."""
    statements = [MODES]
    for table in tables:
        statements.append(table.create())
        statements += [table.insert(FIRST + i, 1) for i in range(len(table.cases))]
    for name, (key, values) in KEYS.items():
        statements.append(f"CREATE TABLE {name} ({key}, n INT, v INT) CHARACTER SET utf8mb4")
        statements += [
            f"INSERT INTO {name} VALUES ({value}, {n}, {10 * n})" for n, value in enumerate(values[:6])
        ]
    return [*statements, *PARENTS]


def report(mirrored: MirroredDatabase) -> dict[str, Any]:
    done = subprocess.run(
        [COMMAND, "verify", "-c", str(mirrored.config), "--json"], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    return {t["table"].partition(".")[2]: t for t in json.loads(done.stdout)["tables"]}


def found_in(table: Mapping[str, Any], identity: str) -> set[tuple[str, ...]]:
    """Return (kind, number of the row, columns that differ) of all rows that differ."""
    return {(row["kind"], (row["source"] or row["lake"])[identity], *row["columns"]) for row in table["rows"]}


def contents(cursor: Cursor, name: str) -> dict[int, dict[str, bytes | None]]:
    """Return key → column → bytes of the value; zero dates, which are NULL in the lake, as None."""
    cursor.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s",
        (name,),
    )
    names = [str(column) for (column,) in cursor.fetchall()]
    cursor.execute(f"SELECT id, {', '.join(f'CAST({c} AS BINARY)' for c in names)} FROM {name}")
    found = {}
    for key, *values in cursor.fetchall():
        plain = [None if value is None or ZERO.match(value) else value for value in values]
        found[int(key)] = dict(zip(names, plain, strict=True))
    return found


def plant_in_columns(cursor: Cursor, table: TypeTable) -> None:
    """Give each column another value, in the row that is its own."""
    for i, case in enumerate(table.cases):
        others = [*case.values[1:], *(["NULL"] if case.nullable else [])]
        if not case.generated and others:
            cursor.execute(
                f"UPDATE {table.name} SET {table.column(case)} = {others[0]} WHERE id = {FIRST + i}"
            )


def plant_in_rows(cursor: Cursor, name: str) -> None:
    """Change a row, delete one, add one, and exchange the values of two."""
    values = KEYS[name][1]
    cursor.execute(f"UPDATE {name} SET v = -1 WHERE n = 0")
    cursor.execute(f"DELETE FROM {name} WHERE n = 1")
    cursor.execute(f"UPDATE {name} SET v = 70 - v WHERE n IN (3, 4)")
    cursor.execute(f"INSERT INTO {name} VALUES ({values[6]}, 6, 60)")


ROWS = {
    ("different", "0", "v"),
    ("unexpected", "1"),
    ("different", "3", "v"),
    ("different", "4", "v"),
    ("missing", "6"),
}
ROWS_WITHOUT_KEY = {(kind, n) for kind in ("missing", "unexpected") for n in "034"} | {
    ("unexpected", "1"),
    ("missing", "6"),
}


@pytest.mark.fault(
    "Rows change without an event, in columns of every type, and by cascades of foreign keys",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="`replicator verify` names each row",
    lost="the changes, until the rows are repaired",
)
@pytest.mark.long
def test_every_fault_is_found_and_named(
    source_database: SourceDatabase, mirror_database: MirroredDatabaseBuilder
) -> None:
    tables = tuple(
        TypeTable(t.name, tuple(c for c in t.cases if source_database.has_version(c.since)), t.options)
        for t in TABLES
    )
    extra = f'{FAST_MIRROR}[[table]]\nname = "{{name}}.k_none"\nkeyless = "identity"\n'
    mirrored = mirror_database(tables=1, extra=extra, prepare=creations(tables))
    known = {t.name: {t.column(c) for c in t.cases if c.known} for t in tables}
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S, besides=known.keys())
        before = report(mirrored)
        for name, table in before.items():
            assert {c for row in table["rows"] for c in row["columns"]} <= known.get(name, set()), table
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DELETE FROM parents WHERE id = 1")
            cursor.execute(MODES)
            cursor.execute("SET SESSION sql_log_bin = 0")
            was = {t.name: contents(cursor, t.name) for t in tables}
            for table in tables:
                plant_in_columns(cursor, table)
            now = {t.name: contents(cursor, t.name) for t in tables}
            for name in KEYS:
                plant_in_rows(cursor, name)
        after = report(mirrored)
        assert mirror.stop() == 0, mirror.tail()
    planted = set[tuple[str, str]]()
    for name, rows in was.items():
        wanted = {
            (key, column)
            for key, values in rows.items()
            for column, value in values.items()
            if now[name][key][column] != value and column not in known[name]
        }
        found = {
            (int(row["key"]["id"]), column)
            for row in after[name]["rows"]
            for column in row["columns"]
            if column not in known[name]
        }
        assert found == wanted, name
        assert {row["kind"] for row in after[name]["rows"]} <= {"different"}
        planted |= {(name, column) for _, column in wanted}
    assert len(planted) > MOST * sum(len(t.cases) for t in tables)
    for name in KEYS:
        assert found_in(after[name], "n") == (ROWS if name != "k_none" else ROWS_WITHOUT_KEY), name
    logs_cascades = source_database.has_version("9.6")
    cascaded = set() if logs_cascades else {("unexpected", "1"), ("unexpected", "2")}
    assert found_in(after["children"], "id") == cascaded
    assert after["parents"]["verdict"] == "equal"
