"""JSON text in the forms of events, of MySQL's queries, and of Java."""

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from replicator.jvm.json_columns import compact_json, json_meaning

SAME = [
    ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}'),
    ('{"x": 0.0001}', '{"x":1.0E-4}'),
    ("[10000000.0, -1e100]", "[1.0E7,-1.0E100]"),
    ("[0.30000000000000004]", "[0.30000000000000004]"),
    (r'["a\"b: 1.50", "\u0001é"]', r'["a\"b: 1.50","\u0001é"]'),
    (
        "[0.00001, -1e20]",
        "[0.000010000000000000000818030539140313095458623138256371021270751953125,-100000000000000000000]",
    ),
    ("12.50", "12.50"),
    ("null", "null"),
    ('"a"', '"a"'),
    (
        "[12345678901234567890.50000, 18446744073709551615]",
        "[12345678901234567890.50000,18446744073709551615]",
    ),
]
DIFFERENT = [
    ('{"a": 1}', '{"a": 1.0}'),
    ('{"a": 1}', '{"a": "1"}'),
    ('["x, 1.5, y"]', '["x, 1.5e0, y"]'),
    ('["a b"]', '["ab"]'),
    ("[1, 2]", "[2, 1]"),
    ("null", '"null"'),
    ("[12345678901234567890.50000]", "[12345678901234567890.50001]"),
    ("no JSON", "no  JSON"),
]


def value(spark: SparkSession, column: Column) -> str:
    return str(spark.range(1).select(column.alias("v")).collect()[0].v)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_meaning_of_json_does_not_depend_on_its_form(spark: SparkSession, one: str, other: str) -> None:
    assert value(spark, json_meaning(F.lit(one))) == value(spark, json_meaning(F.lit(other)))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_json_values_have_different_meanings(spark: SparkSession, one: str, other: str) -> None:
    assert value(spark, json_meaning(F.lit(one))) != value(spark, json_meaning(F.lit(other)))


def test_null_has_no_meaning_and_long_strings_do(spark: SparkSession) -> None:
    assert spark.range(1).select(json_meaning(F.lit(None).cast("string")).alias("v")).collect()[0].v is None
    long = '["' + r"\"x" * 100_000 + '"]'
    assert value(spark, json_meaning(F.lit(long))) == long


def test_compact_json_has_spaces_only_in_strings(spark: SparkSession) -> None:
    text = r'{"a b": [1, 2.50, "c, d", "\" , "], "e": null}'
    assert value(spark, compact_json(F.lit(text))) == r'{"a b":[1,2.50,"c, d","\" , "],"e":null}'
