"""A column becomes narrower. Without strict `sql_mode`, MySQL changes values that do not fit, without an event."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from replicator.model.types import BINARY
from replicator.schema.conversions import rewriting, unfit_values
from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, Scenario, play, rows, ways

BIG, SMALL = ColumnSpec("v", "bigint"), ColumnSpec("v", "int")
LONG_TEXT, SHORT_TEXT = ColumnSpec("v", "text"), ColumnSpec("v", "varchar")
INT, UNSIGNED = ColumnSpec("v", "int"), ColumnSpec("v", "unsigned")
REQUIRED = ColumnSpec("v", "bigint", optional=False)
NARROWED = [(BIG, SMALL, 7), (LONG_TEXT, SHORT_TEXT, "é" * 200), (BIG, REQUIRED, 2**40), (INT, UNSIGNED, 7)]


@ways
@pytest.mark.parametrize(("was", "now", "value"), NARROWED)
def test_table_continues_if_all_values_fit(
    lake: LakeHarness, cut: str, with_schemas: bool, was: ColumnSpec, now: ColumnSpec, value: Any
) -> None:
    scenario = Scenario([ID, was], with_schemas)
    scenario.insert(id=1, v=value)
    scenario.define("ALTER TABLE orders MODIFY v ...", [ID, now])
    scenario.insert(id=2, v=value)
    play(lake, scenario, cut)
    assert rows(lake) == [{"id": 1, "v": value}, {"id": 2, "v": value}]


@pytest.mark.fault(
    "Without strict `sql_mode`, an ALTER TABLE changes values that the new type cannot hold",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table pauses, or is read again",
)
@pytest.mark.parametrize(
    ("was", "now", "value"),
    [
        (BIG, SMALL, 5_000_000_000),
        (LONG_TEXT, SHORT_TEXT, "é" * 201),
        (BIG, REQUIRED, None),
        (INT, UNSIGNED, -1),
    ],
)
@pytest.mark.parametrize("batches", [1, 2])
def test_table_pauses_if_the_source_must_have_changed_a_value(
    lake: LakeHarness, was: ColumnSpec, now: ColumnSpec, value: Any, batches: int
) -> None:
    scenario = Scenario([ID, was], with_schemas=True)
    scenario.insert(id=1, v=value)
    if batches == 2:
        play(lake, scenario, "once")
        scenario.records.clear()
    scenario.define("ALTER TABLE orders MODIFY v ...", [ID, now])
    scenario.insert(id=2, v="2" if now is SHORT_TEXT else 2)
    lake.write(scenario.records)
    (reason,) = lake.catch_up().summary().paused.values()
    assert reason.startswith("type of column v changed from ")
    assert reason.endswith("1 of its values in the lake do not fit: the source has changed them")
    assert rows(lake) == [{"id": 1, "v": value}]


def test_values_that_the_mirror_still_has_to_fill_in_fit(lake: LakeHarness) -> None:
    scenario = Scenario([ID], with_schemas=False)
    scenario.insert(id=1)
    scenario.define("ALTER TABLE orders ADD v BIGINT DEFAULT 5", [ID, ColumnSpec("v", "bigint", True, "5")])
    scenario.define("ALTER TABLE orders MODIFY v BIGINT NOT NULL", [ID, REQUIRED])
    scenario.insert(id=2, v=2)
    play(lake, scenario, "once")
    assert rows(lake) == [{"id": 1, "v": 5}, {"id": 2, "v": 2}]


@pytest.mark.parametrize(
    ("was", "now", "fits", "unfit"),
    [
        ("ENUM('a', 'b')", "ENUM('a')", ["a", ""], ["b"]),
        # MySQL ignores letter case and trailing spaces, and writes the label.
        ("ENUM('a', 'b')", "ENUM('A', 'b')", ["b"], ["a"]),
        ("VARCHAR(9)", "ENUM('it''s', '{x}')", ["it's", "{x}"], ["IT'S", "x"]),
        ("SET('a', 'b', 'c')", "SET('c', 'a')", ["a", "c", "c,a", ""], ["a,c", "b", "a,b"]),
        ("VARCHAR(9)", "SET('a', 'b')", ["a,b", ""], ["b,a", "a,a", "A", "a,x"]),
        ("TEXT CHARACTER SET utf8mb4", "TEXT CHARACTER SET utf8mb3", ["é", "漢"], ["a🦊"]),
    ],
)
def test_labels_and_characters_that_another_type_lacks(
    spark: SparkSession, was: str, now: str, fits: list[str], unfit: list[str]
) -> None:
    (condition,) = unfit_values(was, now)
    for column in ("v", "m"):
        values = spark.createDataFrame([(value,) for value in [*fits, *unfit]], f"{column} string")
        found = values.where(condition.format(f"`{column}`")).collect()
        assert [row[0] for row in found] == unfit


def test_bits_beyond_a_narrower_type_do_not_fit(spark: SparkSession) -> None:
    using = rewriting(BINARY, BINARY, "BIT(8)", "BIT(4)")
    assert using is not None
    values = spark.createDataFrame([(bytearray([n]),) for n in (0, 15, 16, 255)], "v binary")
    assert [r[0] for r in values.selectExpr(using.format("`v`")).collect()] == [b"\x00", b"\x0f", None, None]
