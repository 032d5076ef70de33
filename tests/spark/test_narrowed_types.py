"""A column may be NULL no more, or gets another type: the table continues only if its rows keep their values."""

from typing import Any

import pytest

from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, Scenario, play, rows, ways

BIG, SMALL = ColumnSpec("v", "bigint"), ColumnSpec("v", "int")
LONG_TEXT, SHORT_TEXT = ColumnSpec("v", "text"), ColumnSpec("v", "varchar")
INT, UNSIGNED = ColumnSpec("v", "int"), ColumnSpec("v", "unsigned")
REQUIRED = ColumnSpec("v", "bigint", optional=False)


@ways
@pytest.mark.parametrize(
    ("was", "now", "value"),
    [(SMALL, BIG, 7), (SHORT_TEXT, LONG_TEXT, "é" * 200), (BIG, REQUIRED, 2**40)],
)
def test_table_continues_if_its_values_stay(
    lake: LakeHarness, cut: str, with_schemas: bool, was: ColumnSpec, now: ColumnSpec, value: Any
) -> None:
    scenario = Scenario([ID, was], with_schemas)
    scenario.insert(id=1, v=value)
    scenario.define("ALTER TABLE orders MODIFY v ...", [ID, now])
    scenario.insert(id=2, v=value)
    play(lake, scenario, cut)
    assert rows(lake) == [{"id": 1, "v": value}, {"id": 2, "v": value}]


@pytest.mark.fault(
    "ALTER TABLE gives a column another type, and MySQL converts or, without strict `sql_mode`, clips values",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table pauses, or is read again",
)
@pytest.mark.parametrize(
    ("was", "now", "value"),
    [
        (BIG, SMALL, 5),
        (LONG_TEXT, SHORT_TEXT, "x"),
        (BIG, REQUIRED, None),
        (INT, UNSIGNED, 1),
        (INT, SHORT_TEXT, 1),
    ],
)
@pytest.mark.parametrize("batches", [1, 2])
def test_table_pauses_if_the_source_may_have_changed_a_value(
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
    assert ("NOT NULL now" if now is REQUIRED else "in v, changed rows at ") in reason
    assert rows(lake) == [{"id": 1, "v": value}]
