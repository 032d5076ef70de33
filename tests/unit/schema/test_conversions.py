"""Which values another type of the source cannot hold."""

from itertools import product

import pytest

from replicator.model.recorded import checked_sql
from replicator.model.types import BINARY, BOOLEAN, INT, STRING, LakeType, decimal
from replicator.schema.conversions import rewriting, unfit_values
from replicator.schema.mysql_types import declared, stored
from replicator.schema.native_types import shown


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
        ("VARCHAR(20)", "CHAR(9)", "CHAR_LENGTH({0}) > 9"),
        ("VARCHAR(64)", "TINYTEXT", "OCTET_LENGTH({0}) > 255"),
        ("MEDIUMTEXT", "TEXT", "OCTET_LENGTH({0}) > 65535"),
        ("BLOB", "VARBINARY(16)", "OCTET_LENGTH({0}) > 16"),
        ("DOUBLE", "DOUBLE(8, 2)", "{0} IS NOT NULL"),
        ("FLOAT(8, 3)", "FLOAT(8, 2)", "{0} IS NOT NULL"),
        # Not all character sets have the others' characters.
        (
            "VARCHAR(9) CHARACTER SET utf8mb4",
            "VARCHAR(9) CHARACTER SET latin1",
            "OCTET_LENGTH({0}) > CHAR_LENGTH({0})",
        ),
        ("TEXT CHARACTER SET latin1", "TEXT CHARACTER SET gbk", "OCTET_LENGTH({0}) > CHAR_LENGTH({0})"),
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
        ("ENUM('a', 'b')", "ENUM('c', 'b', 'a')"),
        ("ENUM('a', 'b')", "SET('b', 'a')"),
        ("ENUM('a', 'bc')", "VARCHAR(2)"),
        ("SET('a', 'b')", "SET('a', 'c', 'b')"),
        ("SET('a', 'b')", "VARCHAR(3)"),
        ("VARCHAR(9)", "JSON"),
        ("FLOAT(8, 2)", "FLOAT(9, 3)"),
        ("DOUBLE(8, 2)", "DOUBLE"),
        ("TEXT CHARACTER SET utf8mb3", "TEXT CHARACTER SET utf8mb4"),
        ("TEXT CHARACTER SET latin1", "TEXT CHARACTER SET utf8mb3"),
        ("TEXT CHARACTER SET ascii", "TEXT CHARACTER SET gbk"),
        ("TEXT CHARACTER SET latin1", "TEXT"),
        # Other values of these are converted.
        ("INT", "VARCHAR(2)"),
        (None, "TINYINT"),
        ("INT", None),
    ],
)
def test_type_that_holds_all_values_needs_no_check(was: str | None, now: str | None) -> None:
    assert unfit_values(was, now) == []


def test_documents_that_become_text_do_not_fit_because_mysql_writes_them_in_its_own_form() -> None:
    assert "{0} IS NOT NULL" in unfit_values("JSON", "TEXT")


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


def test_bits_that_become_a_boolean_are_not_computed() -> None:
    assert rewriting(BINARY, BOOLEAN, "BIT(8)", "BIT(1)") is None


def test_types_in_messages_are_short() -> None:
    assert shown("TEXT CHARACTER SET utf8mb4", "CHAR(2) CHARACTER SET utf8mb4") == "TEXT"
    assert shown("TEXT CHARACTER SET latin1", "TEXT CHARACTER SET utf8mb4") == "TEXT CHARACTER SET latin1"
    long = shown(f"ENUM({', '.join(repr(str(n)) for n in range(999))})", "TEXT")
    assert long is not None
    assert len(long) == 101


def test_every_conversion_is_accepted_when_it_is_read_from_a_changelog() -> None:
    numbers = [
        "TINYINT",
        "INT UNSIGNED",
        "BIGINT",
        "BIGINT UNSIGNED",
        "DECIMAL(12, 2)",
        "DECIMAL(38, 0)",
        "DECIMAL(65, 30)",
    ]
    texts = [
        "VARCHAR(9) CHARACTER SET utf8mb4",
        "VARCHAR(5) CHARACTER SET utf8mb3",
        "CHAR(3)",
        "TEXT",
        "JSON",
    ]
    labels = ["ENUM('a', 'b')", "SET('{', '--', '/*', 'd')"]
    times = ["DATE", "DATETIME", "DATETIME(3)", "TIMESTAMP", "TIMESTAMP(2)", "TIME", "TIME(1)", "YEAR"]
    others = ["FLOAT", "DOUBLE(8, 2)", "BINARY(3)", "VARBINARY(9)", "BLOB", "BIT(1)", "BIT(9)", "BIT(17)"]
    found = set()
    for was, now in product([*numbers, *texts, *labels, *times, *others], repeat=2):
        using = rewriting(lake_type(was), lake_type(now), was, now)
        found |= {using} - {None}
    assert len(found) > 40
    for using in found:
        assert using is not None
        assert checked_sql(using, 1) == using


def lake_type(native: str) -> LakeType:
    name, _, rest = native.partition("(")
    sizes = [int(part) for part in rest.partition(")")[0].split(",") if part.strip().isdigit()]
    length, scale, *_ = [*sizes, None, None]
    return stored(declared(name, length, scale))[0]
