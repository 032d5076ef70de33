"""Every parser of statements takes a time proportional to their length, whatever they contain.

Whoever may execute statements on the source, in any database, decides what they contain.
"""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replicator.schema.ddl.dml import changed_tables
from replicator.schema.history.declared import definitions_of
from replicator.sources.binlog.deviations import DeviationScanner, ListedEvent
from replicator.sources.binlog.scan import scan
from tests.support.binlog_files import previous_gtids, query, write_file

HOSTILE: dict[str, Callable[[int], str]] = {
    "single quotes": lambda n: "'" * n + "x",
    "single quotes behind backslashes": lambda n: "\\'" * (n // 2),
    "double quotes behind backslashes": lambda n: '\\"' * (n // 2),
    "backticks": lambda n: "`" * (n | 1),
    "single quotes, each opened once": lambda n: "'a\\" * (n // 3),
    "backslashes": lambda n: "\\" * n,
    "a text of backslashes": lambda n: "'" + "\\" * n,
    "all quotes": lambda n: "'\"`" * (n // 3),
    "openings of comments": lambda n: "/*" * (n // 2),
    "openings of executable comments": lambda n: "/*!" * (n // 3),
    "openings of executable comments of a version": lambda n: "/*!80000 '" * (n // 10),
    "comments of quotes": lambda n: "/*M'*/" * (n // 6),
    "an open comment of stars": lambda n: "/*" + "*" * n,
    "closings of comments": lambda n: "*/" * (n // 2),
    "comments of one line": lambda n: "-- '\n#'\n" * (n // 8),
    "hyphens": lambda n: "-" * n,
    "opening parentheses": lambda n: "(" * n,
    "closing parentheses": lambda n: ")" * n,
    "nested parentheses": lambda n: "(" * (n // 2) + ")" * (n // 2),
    "commas": lambda n: "," * n,
    "dots": lambda n: "." * n,
    "semicolons": lambda n: ";" * n,
    "spaces": lambda n: " " * n + "x",
    "one word": lambda n: "a" * n,
    "many words": lambda n: "a " * (n // 2),
    "renames of columns": lambda n: "RENAME COLUMN a TO b," * (n // 21),
    "expressions": lambda n: "ADD t INT AS (1)," * (n // 17),
    "added in parentheses": lambda n: "ADD (" * (n // 5),
    "specifications": lambda n: "FORCE, " * (n // 7),
    "options before partitions": lambda n: "LOCK=NONE, " * (n // 11),
    "partitions that lose rows": lambda n: "TRUNCATE PARTITION p, " * (n // 22),
    "partitions that are reorganized": lambda n: "REORGANIZE PARTITION p, " * (n // 24),
    "partitions that are exchanged": lambda n: "EXCHANGE PARTITION p WITH TABLE x, " * (n // 35),
    "clauses of partitions": lambda n: "PARTITION BY RANGE (a) (" * (n // 24),
    "partitions": lambda n: (
        "PARTITION BY RANGE (a) ("
        + "".join(f"PARTITION p{i} VALUES LESS THAN ({i})," for i in range(n // 36))
    ),
    "values of a partition": lambda n: (
        "PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (" + "(1, 2)," * (n // 7)
    ),
    "new names": lambda n: "RENAME TO u, " * (n // 13),
    "keys": lambda n: "ADD UNIQUE KEY k (a), " * (n // 22),
    "character sets": lambda n: "MODIFY a CHAR COLLATE x, " * (n // 25),
}


RECORDS: dict[str, Callable[[int], str]] = {
    "statements of tables": lambda n: "".join(f"ALTER TABLE t{i} DROP PARTITION p;" for i in range(n // 34)),
    "statements of databases": lambda n: "".join(
        f"ALTER TABLE d{i}.t DROP PARTITION p;" for i in range(n // 36)
    ),
    "statements of one table": lambda n: "ALTER TABLE t DROP PARTITION p;" * (n // 31),
    "statements that rename": lambda n: "ALTER TABLE t RENAME u; ALTER TABLE u RENAME t;" * (n // 47),
    "statements of indexes": lambda n: "".join(f"CREATE INDEX i ON t{i} (a);" for i in range(n // 27)),
    "a table of nested parentheses": lambda n: "CREATE TABLE t (" + "(" * (n // 2) + ")" * (n // 2),
    "a table of commas": lambda n: "CREATE TABLE t (" + "," * n,
    "a table of expressions": lambda n: "CREATE TABLE t (" + "a INT AS (1)," * (n // 13),
    "renames of nested parentheses": lambda n: "RENAME TABLE " + "(" * (n // 2) + ")" * (n // 2),
    "renames of one table": lambda n: "RENAME TABLE t TO u" + ", u TO t, t TO u" * (n // 16),
    "renames of tables": lambda n: "RENAME TABLE " + ", ".join(f"a{i} TO b{i}" for i in range(n // 14)),
    "renames between databases": lambda n: (
        "RENAME TABLE "
        + ", ".join(
            [f"a TO d{i}.t" for i in range(n // 28)] + [f"d{i}.t TO b" for i in reversed(range(n // 28))]
        )
    ),
}
DML: dict[str, Callable[[int], str]] = {
    "tables": lambda n: "UPDATE " + "".join(f"t{i}, " for i in range(n // 7)) + "a SET b = 1",
    "joins": lambda n: "UPDATE a " + "JOIN b " * (n // 7) + "SET b = 1",
    "modifiers": lambda n: "INSERT " + "IGNORE " * (n // 7) + "INTO t VALUES (1)",
    "dots": lambda n: "DELETE " + "a." * (n // 2) + "b FROM c",
    "calls": lambda n: "WITH a AS (SELECT " + "f(" * (n // 2),
    "databases": lambda n: "USE `shop`;" + ";USE `x`" * (n // 8),
}


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the CPU time of this thread. The garbage collector's time depends on what earlier tests left."""
    gc.disable()
    try:
        begin = time.thread_time()
        run()
        return time.thread_time() - begin
    finally:
        gc.enable()


def assert_linear(small: Callable[[], object], large: Callable[[], object]) -> None:
    """Assert linear time. `large` reads ten times as much: quadratic time would be a hundred times as long."""
    # Times below some hundredths of a second are not precise. A busy machine makes single runs slower, not faster.
    limit = 40 * max(cpu_seconds(small), 0.01)
    assert any(cpu_seconds(large) < limit for _ in range(3))


def record(ddl: str, *tables: str) -> dict[str, Any]:
    column = {"name": "id", "position": 1, "typeName": "INT", "optional": False}
    table = {"columns": [column], "primaryKeyColumnNames": ["id"]}
    changes = [{"type": "ALTER", "id": f'"shop"."{name}"', "table": table} for name in tables]
    source = {"file": "mysql-bin.000001", "pos": 4, "server_id": 1, "ts_ms": 1}
    return {"source": source, "ddl": ddl, "databaseName": "shop", "tableChanges": changes}


def read(ddl: str) -> None:
    """Read a record that defines no table, and one that defines one."""
    definitions_of(record(ddl))
    definitions_of(record(ddl, "t"))


@pytest.mark.parametrize("kind", HOSTILE)
def test_alter_table_is_read_in_linear_time(kind: str) -> None:
    small, large = ("ALTER TABLE t " + HOSTILE[kind](size) for size in (4_000, 40_000))
    assert_linear(lambda: read(small), lambda: read(large))


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_is_read_in_linear_time(kind: str) -> None:
    small, large = (RECORDS[kind](size) for size in (4_000, 40_000))
    assert_linear(lambda: read(small), lambda: read(large))


@pytest.mark.parametrize("ddl", ["RENAME TABLE {}", "DROP TABLE {}"])
def test_a_record_of_many_tables_is_read_in_linear_time(ddl: str) -> None:
    def of(count: int) -> dict[str, Any]:
        names = [f"b{i}" for i in range(count)]
        listed = ", ".join(f"a{name} TO {name}" if "RENAME" in ddl else name for name in names)
        return record(ddl.format(listed), *names)

    small, large = of(300), of(3_000)
    assert_linear(lambda: definitions_of(small), lambda: definitions_of(large))


@pytest.mark.parametrize("kind", DML)
def test_statements_that_change_rows_are_read_in_linear_time(kind: str) -> None:
    small, large = (DML[kind](size) for size in (10_000, 100_000))
    assert_linear(lambda: changed_tables(small), lambda: changed_tables(large))


@pytest.mark.parametrize("text", ["UPDATE a, b SET x = 1", "TRUNCATE a", "XA START 'x'", "' ONE PHASE" * 9])
def test_statements_of_the_binlog_are_read_in_linear_time(text: str) -> None:
    def scanned(count: int) -> None:
        begin = [ListedEvent("b.000001", 4, "Query", 8, "BEGIN")]
        DeviationScanner().scan(begin + [ListedEvent("b.000001", 8, "Query", 9, text)] * count)

    assert_linear(lambda: scanned(500), lambda: scanned(5_000))


@pytest.mark.parametrize("between", ["/* a */ ", "/**/", "/*", " ", "*/"])
def test_comments_before_a_statement_in_a_binlog_file_are_read_in_linear_time(
    tmp_path: Path, between: str
) -> None:
    def written(number: int, count: int) -> Path:
        return write_file(tmp_path, number, previous_gtids(0), query(between * count + "TRUNCATE t"))

    small, large = written(1, 20_000), written(2, 200_000)
    assert_linear(lambda: scan([small]), lambda: scan([large]))
