"""The row counts and unfilled columns that `status` reports, compared with the rows of the table."""

import pytest

from replicator.operations.status.mirror_status import TableStatus
from replicator.operations.status.read import read_status
from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, Scenario, rows


def declared(lake: LakeHarness) -> TableStatus:
    (table,) = read_status(lake.config()).tables
    return table


def go_on(lake: LakeHarness, scenario: Scenario) -> None:
    """Apply the events that the scenario has so far, without maintenance, which would remove the deleted rows."""
    lake.write(scenario.records)
    scenario.records.clear()
    assert lake.catch_up(lake.config(maintenance={"enabled": False})).summary().paused == {}


def update(scenario: Scenario, ids: range, **values: object) -> None:
    for number in ids:
        scenario.change("u", before={"id": number}, after={"id": number, **values})


@pytest.mark.long
def test_status_row_count_ignores_deletes_of_files_that_a_rewrite_replaced(lake: LakeHarness) -> None:
    number = ColumnSpec("n", "int")
    scenario = Scenario([ID, number], with_schemas=False)
    for i in range(40):
        scenario.insert(id=i, n=i)
    go_on(lake, scenario)
    for n in (1, 2, 3):
        update(scenario, range(40), n=n)
        go_on(lake, scenario)
    assert (declared(lake).rows, declared(lake).delete_files) == (40, 3)
    columns = [ID, number, ColumnSpec("s", "varchar", False, "x")]
    scenario.define("ALTER TABLE orders ADD s VARCHAR(200) NOT NULL DEFAULT 'x'", columns)
    update(scenario, range(5), n=4, s="y")
    go_on(lake, scenario)
    assert declared(lake).rows == len(rows(lake)) == 40
    scenario.change("d", before={"id": 7})
    go_on(lake, scenario)
    assert declared(lake).rows == len(rows(lake)) == 39


def test_status_names_columns_that_are_null_in_older_rows(lake: LakeHarness) -> None:
    scenario = Scenario([ID], with_schemas=False)
    scenario.insert(id=1)
    go_on(lake, scenario)
    columns = [ID, ColumnSpec("u", "varchar")]
    scenario.define("ALTER TABLE orders ADD u VARCHAR(200) DEFAULT (uuid())", columns)
    scenario.insert(id=2, u="told")
    go_on(lake, scenario)
    assert declared(lake).unfilled == ("u",)
    scenario.define("ALTER TABLE orders RENAME COLUMN u TO v", [ID, ColumnSpec("v", "varchar")])
    scenario.insert(id=3, v="told")
    go_on(lake, scenario)
    assert declared(lake).unfilled == ("v",)
    assert rows(lake) == [{"id": 1, "v": None}, {"id": 2, "v": "told"}, {"id": 3, "v": "told"}]
