"""Canonical texts of values in a real MySQL, and the workloads that write them."""

from pathlib import Path

import pytest

from replicator.config import load
from tests.support.canonical_rows import describe, source_rows, use_utc
from tests.support.source import SourceDatabase
from tests.workload.record_demo import source_state
from tests.workload.schema import CHANGES, TABLES
from tests.workload.webshop import WebShop

pytestmark = pytest.mark.stack

COLUMNS = (
    ("id", "INT PRIMARY KEY", "1", b"1"),
    ("u", "BIGINT UNSIGNED", "18446744073709551615", b"18446744073709551615"),
    ("m", "DECIMAL(65,30)", "1.5", b"1.5"),
    ("f", "FLOAT", "3.14", b"3.140000104904175"),
    ("g", "DOUBLE", "1e-300", b"1e-300"),
    ("b", "BIT(1)", "b'1'", b"1"),
    ("y", "YEAR", "2024", b"2024"),
    ("c", "CHAR(9)", "'é '", "é".encode()),
    ("e", "ENUM('a','b, c')", "'b, c'", b"b, c"),
    ("s", "SET('x','y')", "'y,x'", b"x,y"),
    ("v", "VARBINARY(9)", "x'00ff'", b"00ff"),
    ("n", "BINARY(3)", "x'01'", b"010000"),
    ("d", "DATE", "'0001-01-01'", b"0001-01-01"),
    ("t", "DATETIME(3)", "'9999-12-31 23:59:59.5'", b"9999-12-31 23:59:59.500000"),
    ("z", "TIMESTAMP(6) NULL", "'2024-03-31 02:30:00+02:00'", b"2024-03-31 00:30:00.000000"),
    ("h", "TIME(6)", "'-838:59:58.5'", b"-3020398500000"),
    ("j", "JSON", '\'{"b": 2.0, "a": [1, "🦊"]}\'', '{"a":[1,"🦊"],"b":2}'.encode()),
    ("x", "INT", "NULL", None),
    ("k", "BIT(9)", "b'100000001'", b"0101"),
    ("p", "POINT", "ST_GeomFromText('POINT(0 0)')", b"0101000000" + b"00" * 16),
    (
        "q",
        "POINT SRID 4326",
        "ST_GeomFromText('POINT(0 0)', 4326)",
        b"0101000020e6100000" + b"00" * 16,
    ),
    ("zero", "DATE", "'0000-00-00'", b"0000-00-00"),
    ("zeroes", "DATETIME(3)", "'0000-00-00 00:00:00'", b"0000-00-00 00:00:00.000"),
)


def test_source_rows_have_canonical_texts_for_every_column_type(source_database: SourceDatabase) -> None:
    with source_database.connect(charset="utf8mb4") as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = ''")
            cursor.execute(
                f"CREATE TABLE kinds ({', '.join(f'{name} {kind}' for name, kind, _, _ in COLUMNS)})"
            )
            cursor.execute(f"INSERT INTO kinds VALUES ({', '.join(value for _, _, value, _ in COLUMNS)})")
        use_utc(connection)
        table = describe(connection, source_database.name, "kinds")
        assert table.key == ("id",)
        assert source_rows(connection, table) == [tuple(text for _, _, _, text in COLUMNS)]


@pytest.mark.long
def test_web_shop_is_the_same_for_the_same_seed(source_database: SourceDatabase, tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    states = []
    for _ in range(2):
        with source_database.connect(autocommit=False, charset="utf8mb4") as connection:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE `{source_database.name}`")
                cursor.execute(f"CREATE DATABASE `{source_database.name}` CHARACTER SET utf8mb4")
            connection.select_db(source_database.name)
            shop = WebShop(connection, seed=3)
            shop.create()
            shop.work(60 * (len(CHANGES) + 1))
        states.append(source_state(load(file), source_database.name).tables)
    assert states[0] == states[1]
    assert len(states[0]) == len(TABLES) + 1
    columns = {c.source for c in states[0][f"{source_database.name}.inventory"][0].columns}
    assert "shelf" in columns
