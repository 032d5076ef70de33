"""Types of exact numbers, by Spark's rules for decimals; of integer literals they may be wider than Spark's."""

import pytest
import sqlglot

from replicator.pipelines.query.numeric import exact_type

TYPES = {
    ("t", "i"): "int",
    ("t", "l"): "bigint",
    ("t", "m"): "decimal(10,2)",
    ("t", "p"): "decimal(20,6)",
    ("t", "x"): "double",
}


def sql_type(expression: str) -> str | None:
    found = exact_type(sqlglot.parse_one(expression, dialect="spark"), TYPES)
    return None if found is None else found.sql


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("t.i", "INT"),
        ("t.i + t.l", "BIGINT"),
        ("t.i * t.i", "INT"),
        ("-t.m", "DECIMAL(10, 2)"),
        ("t.m + t.p", "DECIMAL(21, 6)"),
        ("t.m - t.m", "DECIMAL(11, 2)"),
        ("t.m * t.m", "DECIMAL(21, 4)"),
        ("t.m * t.p", "DECIMAL(31, 8)"),
        ("t.m * t.i", "DECIMAL(21, 2)"),
        ("coalesce(t.m, 0)", "DECIMAL(12, 2)"),
        ("CASE WHEN t.i > 1 THEN t.m ELSE NULL END", "DECIMAL(10, 2)"),
        ("CAST(t.x AS DECIMAL(12, 3))", "DECIMAL(12, 3)"),
        ("CAST(t.x AS BIGINT)", "BIGINT"),
        ("1.25", "DECIMAL(3, 2)"),
        ("t.x", None),
        ("t.m * t.x", None),
        ("t.unknown", None),
        ("t.m / t.i", None),
        ("t.p * t.p", None),
        ("round(t.m)", None),
    ],
)
def test_types_of_expressions(expression: str, expected: str | None) -> None:
    assert sql_type(expression) == expected


@pytest.mark.parametrize(
    ("column", "total", "mean"),
    [("i", "BIGINT", None), ("m", "DECIMAL(20, 2)", "DECIMAL(14, 6)"), ("p", "DECIMAL(30, 6)", None)],
)
def test_types_of_sums_and_means(column: str, total: str, mean: str | None) -> None:
    found = exact_type(sqlglot.parse_one(f"t.{column}", dialect="spark"), TYPES)
    assert found is not None
    assert found.sum.sql == total
    assert (None if found.mean is None else found.mean.sql) == mean
