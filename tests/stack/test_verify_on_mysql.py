"""Canonical forms, row texts and hashes: MySQL and Arrow compute the same bytes."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from replicator.config import Config, load
from replicator.config.column_rules import ColumnRuleBook
from replicator.model.table import TableId
from replicator.schema.types.table import Form
from replicator.sources.mysql.connection import connect
from replicator.verify.canonical import ComparedColumn, combined_hash, row_hash, row_text
from replicator.verify.chunks import ChunkSums, KeyRange, RangeChunks
from replicator.verify.compared_table import ComparedTable, compared_table
from replicator.verify.lake_rows import Checksum, forms, hashes, row_texts
from replicator.verify.mysql_json import mysql_json, same_json
from replicator.verify.source_side import SourceSide, open_source
from tests.support.compared_rows import lake_rows, source_forms, use_session
from tests.support.source import SourceDatabase
from tests.workload.column_types import MODES, TABLES, TypeTable

pytestmark = pytest.mark.stack

OTHER_TEXT = {Form.JSON}
"""Forms whose texts may differ although the values are the same."""


def configuration(database: SourceDatabase, folder: Path) -> Config:
    file = folder / "mirror.toml"
    file.write_text(database.config_text(folder))
    return load(file)


@contextmanager
def compared(database: SourceDatabase, folder: Path, name: str) -> Iterator[tuple[Connection, ComparedTable]]:
    """Connect to the source and describe a table."""
    config = configuration(database, folder)
    with connect(config.source) as connection:
        use_session(connection)
        yield (
            connection,
            compared_table(connection, config, ColumnRuleBook(config), TableId(database.name, name)),
        )


def assert_equal_on_both_sides(connection: Connection, table: ComparedTable) -> None:
    """Assert that the forms, row texts and hashes of all rows are the same."""
    rows = lake_rows(connection, table, "id")
    assert rows.num_rows
    ours, theirs = forms(rows, table.columns), source_forms(connection, table, "id")
    same_texts = True
    for column, mine, wanted in zip(table.columns, ours, theirs, strict=True):
        for value, expected in zip(mine.to_pylist(), wanted, strict=True):
            if value != expected and column.form in OTHER_TEXT:
                assert same_json(value.decode(), expected.decode()), column
                same_texts = False
            else:
                assert value == expected, (column.source, column.declared, value, expected)
    if same_texts:
        assert_equal_hashes(connection, table, rows, table.columns)
        assert_equal_hashes(connection, table, rows, table.hashed)


def assert_equal_hashes(
    connection: Connection, table: ComparedTable, rows: pa.Table, columns: Sequence[ComparedColumn]
) -> None:
    """Assert that the row texts and hashes are the same, but for zero dates in faster forms."""
    texts = row_texts(forms(rows, columns), columns)
    query = f"SELECT {row_text(columns)}, {row_hash(columns)} FROM {table.source.name} ORDER BY `id`"
    found = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).all()
    if any(b"0000-00-00" in text for text, _ in found):
        assert columns != table.columns
        return
    assert texts.to_pylist() == [text for text, _ in found]
    assert hashes(texts).tolist() == [int.from_bytes(found_hash, "big") for _, found_hash in found]
    for distinct in (True, False):
        sums = ChunkSums(1, distinct=distinct)
        sums.add(np.zeros(len(texts), np.int64), hashes(texts))
        query = f"SELECT COUNT(*), {combined_hash(columns, distinct=distinct)} FROM {table.source.name}"
        row = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()
        assert Checksum.of_source(*row) == sums[0]


@pytest.mark.parametrize("cases", TABLES, ids=lambda t: t.name)
@pytest.mark.every_case
def test_forms_of_every_type(source_database: SourceDatabase, tmp_path: Path, cases: TypeTable) -> None:
    known = TypeTable(
        cases.name, tuple(c for c in cases.cases if source_database.has_version(c.since)), cases.options
    )
    source_database.execute(MODES, known.create())
    with source_database.connect(charset="utf8mb4") as writer, writer.cursor() as cursor:
        cursor.execute(MODES)
        for row in range(known.rows):
            cursor.execute(known.insert(row, row))
    with compared(source_database, tmp_path, known.name) as (connection, table):
        assert_equal_on_both_sides(connection, table)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text("|\\0123 é🦊", max_size=9)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | DOUBLES | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
ROWS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.none() | st.decimals(-(10**28) + 1, 10**28 - 1, places=9, allow_nan=False, allow_infinity=False),
    st.none() | DOUBLES,
    st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.none() | TEXTS,
    TEXTS,
    st.none() | st.binary(max_size=30),
)
CREATE = """
CREATE TABLE anything (
    id INT PRIMARY KEY, i BIGINT, u BIGINT UNSIGNED NOT NULL, d DECIMAL(38,10), f DOUBLE, g FLOAT,
    t VARCHAR(200), n TEXT NOT NULL, b VARBINARY(200)
) CHARACTER SET utf8mb4
"""


def replace_rows(database: SourceDatabase, table: str, rows: Sequence[Sequence[Any]]) -> None:
    with database.connect(charset="utf8mb4", autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table}")
        marks = ", ".join(["%s"] * (1 + len(rows[0])))
        cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", [(i, *row) for i, row in enumerate(rows)])
        connection.commit()


def test_forms_of_any_values(source_database: SourceDatabase, tmp_path: Path) -> None:
    source_database.execute(CREATE)
    with compared(source_database, tmp_path, "anything") as (connection, table):

        @settings(max_examples=60, suppress_health_check=list(HealthCheck))
        @given(st.lists(ROWS, min_size=1, max_size=20))
        def run(rows: list[tuple[Any, ...]]) -> None:
            replace_rows(source_database, "anything", rows)
            assert_equal_on_both_sides(connection, table)

        run()


def test_json_is_written_as_mysql_shows_it(source_database: SourceDatabase, tmp_path: Path) -> None:
    import json

    source_database.execute("CREATE TABLE documents (id INT PRIMARY KEY, j JSON)")
    with compared(source_database, tmp_path, "documents") as (connection, table):

        @settings(max_examples=60, suppress_health_check=list(HealthCheck))
        @given(st.lists(JSONS, min_size=1, max_size=20))
        @example([1e15, 1e14, 123456789012345680000.0, 1e-14, 1e-15, 1.5e-15, 0.1, 5e-324, -0.0, 1e22])
        def run(values: list[Any]) -> None:
            texts = [json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values]
            replace_rows(source_database, "documents", [(text,) for text in texts])
            shown = [value.decode() for value in source_forms(connection, table, "id")[1]]
            for text, wanted in zip(texts, shown, strict=True):
                assert same_json(text, wanted)
                assert mysql_json(text) == wanted

        run()


def test_forms_beside_doubles_are_not_converted(source_database: SourceDatabase, tmp_path: Path) -> None:
    source_database.execute(
        "CREATE TABLE mixed (id INT PRIMARY KEY, t VARCHAR(9) CHARACTER SET latin1, f DOUBLE, u VARCHAR(9)) "
        "CHARACTER SET utf8mb4",
        "INSERT INTO mixed VALUES (1, 'é', -1e-300, 'é'), (2, NULL, NULL, NULL), (3, '', 1.1, '|')",
    )
    with compared(source_database, tmp_path, "mixed") as (connection, table):
        assert_equal_on_both_sides(connection, table)


KEYS = {
    "dense": ("id BIGINT PRIMARY KEY", "n"),
    "clustered": ("id BIGINT PRIMARY KEY", "IF(n <= 4000, n, n * 1000000000000000)"),
    "negative": ("id BIGINT PRIMARY KEY", "(n - 2500) * 3000000000000"),
    "unsigned": ("id BIGINT UNSIGNED PRIMARY KEY", "18446744073709551615 - n * 7"),
    "one value": ("a INT, id INT, PRIMARY KEY (a, id)", "7, n"),
    "few values": ("a INT, id SMALLINT UNSIGNED, PRIMARY KEY (a, id)", "n % 3, n"),
    "bytes": ("a BINARY(3), id INT, PRIMARY KEY (a, id)", "UNHEX(LPAD(HEX(n % 100), 6, '0')), n"),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.every_case
def test_ranges_of_any_keys_contain_each_row_once(
    source_database: SourceDatabase, tmp_path: Path, name: str
) -> None:
    columns, values = KEYS[name]
    source_database.execute(
        f"CREATE TABLE ranged ({columns})",
        "INSERT INTO ranged WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
        f"WHERE n < 1000) SELECT /*+ SET_VAR(cte_max_recursion_depth = 9999) */ {values} FROM "
        "(SELECT a.n + 1000 * b.n AS n FROM numbers a, (SELECT n - 1 AS n FROM numbers WHERE n <= 5) b) numbers",
        "ANALYZE TABLE ranged",
    )
    with (
        compared(source_database, tmp_path, "ranged") as (connection, table),
        open_source(configuration(source_database, tmp_path), 2) as (connections, _),
    ):
        source = SourceSide.of(connections, table)
        ranges = list(source.ranges(KeyRange(None, None), 100))
        assert (ranges[0].after, ranges[-1].upto) == (None, None)
        assert [r.after for r in ranges[1:]] == [r.upto for r in ranges[:-1]]
        counts = [source.checksum(r).rows for r in ranges]
        assert (sum(counts), source.checksum(KeyRange(None, None)).rows) == (5000, 5000)
        assert max(counts) <= 400
        part = KeyRange(ranges[3].after, ranges[6].upto)
        inner = list(source.ranges(part, 20))
        assert (inner[0].after, inner[-1].upto) == (part.after, part.upto)
        assert sum(source.checksum(r).rows for r in inner) == sum(counts[3:7])
        chunks = RangeChunks(table, tuple(ranges))
        numbers = chunks.numbers(lake_rows(connection, table, "id"))
        assert np.bincount(numbers, minlength=len(ranges)).tolist() == counts


def test_checksums_of_many_rows(source_database: SourceDatabase, tmp_path: Path) -> None:
    source_database.execute(CREATE)
    generator = random.Random(7)
    rows = [
        (n, n, None, generator.random(), None, f"text {n}", "|" * (n % 3), bytes([n % 256]))
        for n in range(5000)
    ]
    replace_rows(source_database, "anything", rows)
    with compared(source_database, tmp_path, "anything") as (connection, table):
        assert_equal_on_both_sides(connection, table)
