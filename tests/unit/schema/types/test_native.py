"""Which changes of a source type leave the values of existing rows as they are."""

from itertools import product

import pytest

from replicator.model.recorded import checked_sql
from replicator.model.types import BINARY, BOOLEAN, DATE, DOUBLE, FLOAT, INT, LONG, STRING, VECTOR, decimal
from replicator.schema.types.native import cast, fits_in_place, keeps_values

KEPT = [
    ("TINYINT", "INT"),
    ("TINYINT UNSIGNED", "SMALLINT"),
    ("INT", "INTEGER"),
    ("INT(11) UNSIGNED", "INT ZEROFILL"),
    ("SMALLINT", "INT SIGNED(11)"),
    ("MEDIUMINT", "INT4"),
    ("BIGINT UNSIGNED", "SERIAL"),
    ("DECIMAL", "NUMERIC(10, 0)"),
    ("DECIMAL(6, 2)", "DECIMAL(10, 2)"),
    ("DECIMAL(6, 2) UNSIGNED", "DECIMAL(6, 2)"),
    ("DECIMAL(40, 2)", "DECIMAL(42, 2)"),
    ("FLOAT", "DOUBLE"),
    ("FLOAT(7, 4)", "FLOAT(7, 4)"),
    ("VARCHAR(5)", "VARCHAR(20)"),
    ("CHAR(5)", "NATIONAL CHAR(5)"),
    ("CHAR(5)", "VARCHAR(5)"),
    ("NVARCHAR(80)", "VARCHAR(80) CHARACTER SET utf8mb4"),
    ("VARCHAR(9)", "VARCHAR BINARY(9)"),
    ("VARCHAR(63)", "TINYTEXT"),
    ("TINYTEXT", "VARCHAR(255)"),
    ("TEXT", "LONGTEXT"),
    ("VARBINARY(16)", "BLOB"),
    ("BINARY(3)", "VARBINARY(3)"),
    ("VARCHAR(9) CHARACTER SET binary", "VARBINARY(9)"),
    ("DATETIME(3)", "DATETIME(6)"),
    ("TIME", "TIME(1)"),
    ("YEAR(4)", "YEAR"),
    ("BIT", "BIT(1)"),
    ("ENUM", "ENUM"),
    ("ENUM('a', 'b')", "ENUM('c', 'b', 'a')"),
    ("ENUM('a', 'bc')", "VARCHAR(2)"),
    ("SET('a', 'b')", "SET('a', 'c', 'b')"),
    ("SET('a', 'b')", "VARCHAR(3)"),
    ("TEXT CHARACTER SET utf8mb3", "TEXT CHARACTER SET utf8mb4"),
    ("TEXT CHARACTER SET latin1", "TEXT CHARACTER SET utf8mb3"),
    ("TEXT CHARACTER SET ascii", "TEXT CHARACTER SET gbk"),
    ("TEXT CHARACTER SET latin1", "TEXT"),
    ("JSON", "JSON"),
    ("TEXT(300)", "TEXT"),
    ("BLOB(100)", "TINYBLOB"),
    ("GEOMETRYCOLLECTION", "GEOMCOLLECTION"),
    ("GEOMETRY", "GEOMETRY"),
    (None, "TINYINT"),
    ("INT", None),
]
CHANGED = [
    ("INT", "TINYINT"),
    ("INT4", "MIDDLEINT UNSIGNED"),
    ("INT", "INT UNSIGNED"),
    ("BIGINT UNSIGNED", "BIGINT"),
    ("INT", "DECIMAL(10, 0)"),
    ("BIGINT UNSIGNED", "DECIMAL(20, 0)"),
    ("DECIMAL(10, 2)", "DECIMAL(6, 2)"),
    ("DECIMAL(6, 2)", "DECIMAL(10, 4)"),
    ("DECIMAL(40, 2)", "DECIMAL(42, 4)"),
    ("DECIMAL(38, 0)", "DECIMAL(38, 0) UNSIGNED"),
    ("DOUBLE", "DOUBLE UNSIGNED"),
    ("DOUBLE", "DOUBLE(8, 2)"),
    ("FLOAT(8, 3)", "FLOAT(8, 2)"),
    ("VARCHAR(20)", "VARCHAR(5)"),
    ("VARCHAR(9)", "CHAR(9)"),
    ("TEXT", "VARCHAR(300)"),
    ("VARCHAR(64)", "TINYTEXT"),
    ("MEDIUMTEXT", "TEXT"),
    ("BLOB", "VARBINARY(16)"),
    ("VARBINARY(3)", "BINARY(3)"),
    ("BINARY(3)", "BINARY(4)"),
    ("BIT(8)", "BIT(9)"),
    ("DATETIME(6)", "DATETIME"),
    ("DATETIME", "TIMESTAMP"),
    ("YEAR", "SMALLINT"),
    ("VARCHAR(9) CHARACTER SET utf8mb4", "VARCHAR(9) CHARACTER SET latin1"),
    ("TEXT CHARACTER SET latin1", "TEXT CHARACTER SET gbk"),
    ("TEXT CHARACTER SET utf8mb4", "TEXT CHARACTER SET utf8mb3"),
    ("ENUM('a', 'b')", "ENUM('a')"),
    # MySQL ignores letter case, and writes the new label.
    ("ENUM('a', 'b')", "ENUM('A', 'b')"),
    ("ENUM('a', 'b')", "SET('b', 'a')"),
    ("ENUM('é')", "VARCHAR(9) CHARACTER SET latin2"),
    ("ENUM('a', 'bc')", "VARCHAR(1)"),
    ("ENUM('a', 'b')", "CHAR(9)"),
    ("SET('a', 'b')", "SET('b', 'a')"),
    ("SET('a', 'b')", "VARCHAR(2)"),
    ("VARCHAR(9)", "ENUM('a')"),
    ("ENUM", "ENUM('a')"),
    ("VARCHAR(9)", "JSON"),
    ("JSON", "TEXT"),
    ("GEOMETRY", "POINT"),
    ("POINT", "VARBINARY(25)"),
]


@pytest.mark.parametrize(("was", "now"), KEPT)
def test_type_that_holds_all_values_keeps_them(was: str | None, now: str | None) -> None:
    assert keeps_values(was, now)


@pytest.mark.parametrize(("was", "now"), CHANGED)
def test_values_that_a_type_cannot_hold_or_that_it_converts_may_be_others(was: str, now: str) -> None:
    assert not keeps_values(was, now)


def test_column_of_the_lake_stays_if_it_can_hold_the_values_of_the_new_type() -> None:
    for old, new in ((INT, LONG), (LONG, INT), (FLOAT, DOUBLE), (decimal(9, 2), decimal(12, 2))):
        assert fits_in_place(old, new)
    for old, new in (
        (DOUBLE, FLOAT),
        (INT, STRING),
        (decimal(9, 2), decimal(12, 3)),
        (decimal(38, 0), STRING),
    ):
        assert not fits_in_place(old, new)


def test_every_cast_is_accepted_when_it_is_read_from_a_changelog() -> None:
    kinds = [INT, LONG, FLOAT, DOUBLE, decimal(12, 4), STRING, BINARY, BOOLEAN, DATE, VECTOR]
    found = {cast(old, new) for old, new in product(kinds, repeat=2)}
    assert found > {None, "TRY_CAST({0} AS decimal(12, 4))"}
    for using in found:
        assert using is None or checked_sql(using, 1) == using
