"""Which changes of a source type give existing rows other values in the lake."""

import pytest

from replicator.model.types import BINARY, INT, LONG, STRING, LakeType, decimal
from replicator.schema import mysql_types
from replicator.schema.conversions import needs_rewrite, rewriting, unfit_values


@pytest.mark.parametrize(
    ("lake_type", "was", "now"),
    [
        (STRING, "DECIMAL(40, 2)", "DECIMAL(42, 4)"),
        (STRING, "VARCHAR(60)", "DECIMAL(40, 2)"),
        (STRING, "DECIMAL(40, 2) UNSIGNED ZEROFILL", "VARCHAR(60)"),
        (STRING, "DECIMAL(40, 2)", "JSON"),
        (BINARY, "GEOMETRY", "LONGBLOB"),
        (BINARY, "POINT", "VARBINARY(25)"),
        (BINARY, "BLOB", "POINT"),
        (decimal(20, 0), "DECIMAL(20, 0)", "BIGINT UNSIGNED"),
    ],
)
def test_values_whose_new_form_is_not_computed(lake_type: LakeType, was: str, now: str) -> None:
    assert needs_rewrite(lake_type, lake_type, was, now)


@pytest.mark.parametrize("name", ["CHAR", "NCHAR", "CHARACTER", "NATIONAL CHAR"])
def test_trailing_spaces_are_removed_whatever_the_type_is_called(name: str) -> None:
    assert needs_rewrite(STRING, STRING, "VARCHAR(20)", f"{name}(20)")
    assert rewriting(STRING, STRING, "VARCHAR(20)", f"{name}(20)") == "RTRIM({0})"
    assert not needs_rewrite(STRING, STRING, "CHAR(20)", f"{name}(20)")


@pytest.mark.parametrize("name", mysql_types.VARCHARS)
def test_names_of_one_type_have_the_same_values(name: str) -> None:
    assert not needs_rewrite(STRING, STRING, f"{name}(80)", "VARCHAR(80) CHARACTER SET utf8mb4")
    assert unfit_values(f"{name}(80)", "VARCHAR(40)") != []


@pytest.mark.parametrize(
    ("lake_type", "was", "now"),
    [
        (INT, "YEAR", "SMALLINT"),
        (INT, "YEAR(4)", "INT UNSIGNED"),
        (decimal(20, 0), "BIGINT UNSIGNED", "DECIMAL(20, 0)"),
        (STRING, "DECIMAL(40, 2)", "VARCHAR(43)"),
        (STRING, "DECIMAL(40, 2)", "TEXT"),
        (STRING, "DECIMAL(40, 2)", "DECIMAL(42, 2)"),
        (BINARY, "GEOMETRY", "POINT"),
        (BINARY, "VARCHAR(9) CHARACTER SET binary", "VARBINARY(9)"),
        (STRING, "ENUM('a')", "VARCHAR(9)"),
        (INT, "MEDIUMINT", "INT4"),
        (INT, "SMALLINT", "INT SIGNED(11)"),
        (STRING, "VARCHAR(9)", "VARCHAR BINARY(9)"),
    ],
)
def test_values_that_are_the_same_in_another_type(lake_type: LakeType, was: str, now: str) -> None:
    assert not needs_rewrite(lake_type, lake_type, was, now)


def test_values_that_may_not_fit_another_type() -> None:
    assert needs_rewrite(INT, INT, "YEAR", "TINYINT")
    assert needs_rewrite(STRING, STRING, "DECIMAL(40, 2)", "VARCHAR(42)")


@pytest.mark.parametrize(
    ("was", "now", "unfit"),
    [
        ("INT", "INT2", "{0} NOT BETWEEN -32768 AND 32767"),
        ("INT4", "MIDDLEINT UNSIGNED", "{0} NOT BETWEEN 0 AND 16777215"),
        ("BIGINT", "INT4(11)", "{0} NOT BETWEEN -2147483648 AND 2147483647"),
        ("INT8", "INTEGER", "{0} NOT BETWEEN -2147483648 AND 2147483647"),
    ],
)
def test_other_names_of_types_have_the_same_range(was: str, now: str, unfit: str) -> None:
    assert unfit_values(was, now) == [unfit]
    assert not needs_rewrite(LONG, LONG, was, now)


def test_years() -> None:
    text = "LPAD(CAST({0} AS STRING), 4, '0')"
    assert text in (rewriting(INT, STRING, "YEAR", "VARCHAR(4)") or "")
    using = rewriting(INT, INT, "INT", "YEAR")
    assert using is not None
    assert using.endswith("WHEN {0} = 0 OR {0} BETWEEN 1901 AND 2155 THEN {0} END")
