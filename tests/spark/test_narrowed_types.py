"""A column becomes narrower. Without strict `sql_mode`, MySQL changes values that do not fit, without an event."""

from typing import Any

import pytest

from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, Scenario, play, rows, ways

BIG, SMALL = ColumnSpec("v", "bigint"), ColumnSpec("v", "int")
LONG_TEXT, SHORT_TEXT = ColumnSpec("v", "text"), ColumnSpec("v", "varchar")
REQUIRED = ColumnSpec("v", "bigint", optional=False)
NARROWED = [(BIG, SMALL, 7), (LONG_TEXT, SHORT_TEXT, "é" * 200), (BIG, REQUIRED, 2**40)]


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
    [(BIG, SMALL, 5_000_000_000), (LONG_TEXT, SHORT_TEXT, "é" * 201), (BIG, REQUIRED, None)],
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
