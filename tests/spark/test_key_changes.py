"""Changes of a table's key within a batch and between batches: other columns, other names, values that no event has."""

from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, Scenario, changelog, play, rows, ways


@ways
def test_change_of_the_primary_key_is_applied(lake: LakeHarness, cut: str, with_schemas: bool) -> None:
    code = ColumnSpec("code", "bigint", False)
    scenario = Scenario([ID, code], with_schemas)
    scenario.insert(id=1, code=10)
    scenario.insert(id=2, code=20)
    scenario.change("u", before={"id": 2, "code": 20}, after={"id": 2, "code": 21})
    scenario.change("d", before={"id": 1, "code": 10})
    scenario.insert(id=3, code=30)
    scenario.define("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (code)", [ID, code], ["code"])
    scenario.change("u", before={"id": 2, "code": 21}, after={"id": 3, "code": 21})
    scenario.change("d", before={"id": 3, "code": 30})
    scenario.insert(id=3, code=40)
    play(lake, scenario, cut)
    assert sorted(r["code"] for r in rows(lake)) == [21, 40]
    assert {r["id"] for r in rows(lake)} == {3}
    with lake.catalog() as catalog:
        schema = catalog.load_table(("shop", "orders")).schema()
    assert schema.identifier_field_names() == {"code"}


@ways
def test_rename_of_a_key_column_is_applied(lake: LakeHarness, cut: str, with_schemas: bool) -> None:
    name, other = ColumnSpec("name", "varchar"), ColumnSpec("number", "bigint", False)
    scenario = Scenario([ID, name], with_schemas)
    for i in range(4):
        scenario.insert(id=i, name="x")
    scenario.change("d", before={"id": 0, "name": "x"})
    scenario.define("ALTER TABLE orders CHANGE id number BIGINT NOT NULL", [other, name], ["number"])
    scenario.change("u", before={"number": 1, "name": "x"}, after={"number": 1, "name": "y"})
    scenario.change("d", before={"number": 2, "name": "x"})
    play(lake, scenario, cut)
    found = sorted(lake.rows("orders"), key=lambda r: r["number"])
    assert found == [{"number": 1, "name": "y"}, {"number": 3, "name": "x"}]


def test_table_pauses_when_events_lack_values_of_a_new_key_column(lake: LakeHarness) -> None:
    scenario = Scenario([ID, ColumnSpec("t", "datetime")], with_schemas=False)
    scenario.insert(id=1, t=5)
    lake.write(scenario.records)
    lake.catch_up()
    scenario.records.clear()
    number = ColumnSpec("n", "bigint", False)
    scenario.define(
        "ALTER TABLE orders DROP PRIMARY KEY, ADD n BIGINT AUTO_INCREMENT PRIMARY KEY",
        [ID, scenario.columns[1], number],
        ["n"],
    )
    scenario.insert(id=2, t=6, n=2)
    lake.write(scenario.records)
    (reason,) = lake.catch_up().summary().paused.values()
    assert "no event contains its values" in reason
    assert [r["id"] for r in rows(lake)] == [1]


@ways
def test_rows_with_null_in_a_unique_key_are_mirrored(lake: LakeHarness, cut: str, with_schemas: bool) -> None:
    """Debezium 3.6 treats `id` of `id SERIAL NULL` as a primary key, in definitions and in the keys of events."""
    number, a, b = ColumnSpec("id", "bigint"), ColumnSpec("a", "int"), ColumnSpec("b", "int")
    scenario = Scenario([number, a], with_schemas)
    scenario.insert(id=None, a=1)
    scenario.insert(id=None, a=1)
    scenario.insert(id=None, a=2)
    scenario.insert(id=3, a=3)
    scenario.change("u", before={"id": None, "a": 2}, after={"id": None, "a": 4})
    scenario.change("d", before={"id": None, "a": 1})
    scenario.define("ALTER TABLE orders ADD b INT", [number, a, b])
    scenario.insert(id=None, a=5, b=6)
    play(lake, scenario, cut)
    found = sorted((row["a"], row["id"], row["b"]) for row in lake.rows("orders"))
    assert found == [(1, None, None), (3, 3, None), (4, None, None), (5, None, 6)]
    assert len(changelog(lake)) == 8
