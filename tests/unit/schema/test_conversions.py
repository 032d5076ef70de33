"""Which values a narrower type of the source cannot hold."""

import pytest

from replicator.model.types import INT, STRING, decimal
from replicator.schema.conversions import rewriting, unfit_values


@pytest.mark.parametrize(
    ("was", "now", "unfit"),
    [
        ("INT", "TINYINT", "{0} NOT BETWEEN -128 AND 127"),
        ("INT", "INT UNSIGNED", "{0} NOT BETWEEN 0 AND 4294967295"),
        ("BIGINT UNSIGNED", "BIGINT", "{0} NOT BETWEEN -9223372036854775808 AND 9223372036854775807"),
        ("INT", "MEDIUMINT UNSIGNED ZEROFILL", "{0} NOT BETWEEN 0 AND 16777215"),
        ("DECIMAL(10, 2)", "DECIMAL(6, 2)", "{0} NOT BETWEEN -9999.99 AND 9999.99"),
        ("DECIMAL(38, 0)", "DECIMAL(38, 0) UNSIGNED", "{0} NOT BETWEEN 0 AND " + 38 * "9"),
        ("VARCHAR(20)", "VARCHAR(5)", "CHAR_LENGTH({0}) > 5"),
        ("TEXT", "VARCHAR(300)", "CHAR_LENGTH({0}) > 300"),
        ("JSON", "CHAR(9)", "CHAR_LENGTH({0}) > 9"),
        ("VARCHAR(64)", "TINYTEXT", "OCTET_LENGTH({0}) > 255"),
        ("MEDIUMTEXT", "TEXT", "OCTET_LENGTH({0}) > 65535"),
        ("BLOB", "VARBINARY(16)", "OCTET_LENGTH({0}) > 16"),
    ],
)
def test_values_that_a_narrower_type_cannot_hold(was: str, now: str, unfit: str) -> None:
    assert unfit_values(was, now) == [unfit]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("TINYINT", "INT"),
        ("TINYINT UNSIGNED", "SMALLINT"),
        ("INT", "INTEGER"),
        ("DECIMAL(6, 2)", "DECIMAL(10, 4)"),
        ("VARCHAR(5)", "VARCHAR(20)"),
        ("VARCHAR(63)", "TINYTEXT"),
        ("TEXT", "LONGTEXT"),
        ("VARBINARY(16)", "BLOB"),
        ("DATETIME(3)", "DATETIME(6)"),
        ("ENUM", "ENUM"),
        # Other values of these are converted.
        ("INT", "VARCHAR(2)"),
        (None, "TINYINT"),
        ("INT", None),
    ],
)
def test_type_that_holds_all_values_needs_no_check(was: str | None, now: str | None) -> None:
    assert unfit_values(was, now) == []


def test_column_that_becomes_not_null_cannot_have_nulls_any_more() -> None:
    assert unfit_values("INT", "INT", nulls_end=True) == ["{0} IS NULL"]
    assert unfit_values("INT", "TINYINT", nulls_end=True) == ["{0} NOT BETWEEN -128 AND 127", "{0} IS NULL"]
    assert unfit_values(None, "INT", nulls_end=True) == []


def test_converted_value_must_fit_too() -> None:
    assert rewriting(INT, STRING, "INT", "VARCHAR(11)") == "CAST({0} AS STRING)"
    text = "CAST({0} AS STRING)"
    assert (
        rewriting(INT, STRING, "INT", "VARCHAR(5)")
        == f"CASE WHEN NOT CHAR_LENGTH(({text})) > 5 THEN {text} END"
    )
    unsigned = "TRY_CAST({0} AS decimal(6, 2))"
    assert (
        rewriting(INT, decimal(6, 2), "INT", "DECIMAL(6, 2) UNSIGNED")
        == f"CASE WHEN NOT ({unsigned}) NOT BETWEEN 0 AND 9999.99 THEN {unsigned} END"
    )
    number = "TRY_CAST(ROUND({0}) AS int)"
    assert (
        rewriting(decimal(10, 2), INT, "DECIMAL(10, 2)", "TINYINT")
        == f"CASE WHEN NOT ({number}) NOT BETWEEN -128 AND 127 THEN {number} END"
    )
