"""Every kind of schema change within a batch and between batches: rows, columns and changelog afterwards."""

import pytest

from replicator.operations.status.read import read_status
from replicator.schema.evolution.changes import PENDING_CLEAR_KEY, PENDING_FILLS_KEY
from tests.oracle.events import ColumnSpec
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS
from tests.support.scenario import (
    ID,
    Scenario,
    changelog,
    other_table,
    play,
    row_of,
    rows,
    state,
    ways,
)


@ways
def test_columns_keep_their_values_when_they_exchange_names(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    a, b = ColumnSpec("a", "int"), ColumnSpec("b", "int")
    scenario = Scenario([ID, a, b], with_schemas)
    scenario.insert(id=1, a=10, b=20)
    scenario.insert(id=2, a=11, b=21)
    scenario.define("ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a", [ID, b, a])
    scenario.insert(id=3, b=12, a=22)
    scenario.change("u", before={"id": 2, "b": 11, "a": 21}, after={"id": 2, "b": 13, "a": 21})
    play(lake, scenario, cut)
    assert rows(lake) == [
        {"id": 1, "b": 10, "a": 20},
        {"id": 2, "b": 13, "a": 21},
        {"id": 3, "b": 12, "a": 22},
    ]
    assert list(rows(lake)[0]) == ["id", "b", "a"]
    assert [(r["a"], r["b"]) for r in changelog(lake)] == [(20, 10), (21, 11), (22, 12), (21, 11), (21, 13)]


@ways
def test_column_dropped_and_added_again_is_a_new_column(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    a, again = ColumnSpec("a", "int"), ColumnSpec("a", "int", False, "7")
    scenario = Scenario([ID, a], with_schemas)
    scenario.insert(id=1, a=10)
    scenario.insert(id=2, a=11)
    scenario.define("ALTER TABLE orders DROP COLUMN a, ADD COLUMN a INT NOT NULL DEFAULT 7", [ID, again])
    scenario.insert(id=3, a=12)
    scenario.change("u", before={"id": 2, "a": 7}, after={"id": 2, "a": 8})
    play(lake, scenario, cut)
    assert rows(lake) == [{"id": 1, "a": 7}, {"id": 2, "a": 8}, {"id": 3, "a": 12}]
    assert [(r["a__dropped"], r["a"]) for r in changelog(lake)] == [
        (10, None),
        (11, None),
        (None, 12),
        (None, 7),
        (None, 8),
    ]


@ways
def test_schema_changes_of_several_kinds_are_applied_in_order(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    """Columns are renamed, dropped, added first, moved and widened; one batch has events of each version."""
    names = [ColumnSpec("a", "int"), ColumnSpec("b", "varchar"), ColumnSpec("c", "int")]
    scenario = Scenario([ID, *names], with_schemas)
    scenario.insert(id=1, a=1, b="one", c=10)
    scenario.insert(id=2, a=2, b="two", c=20)
    scenario.define("ALTER TABLE orders CHANGE a `a b` BIGINT", [ID, ColumnSpec("a b", "bigint"), *names[1:]])
    scenario.insert(**{"id": 3, "a b": 2**40, "b": "three", "c": 30})
    scenario.define("ALTER TABLE orders DROP c", [ID, ColumnSpec("a b", "bigint"), names[1]])
    scenario.insert(**{"id": 4, "a b": 4, "b": "four"})
    fresh = ColumnSpec("d", "varchar", False, "new")
    scenario.define(
        "ALTER TABLE orders ADD d VARCHAR(200) NOT NULL DEFAULT 'new' FIRST, MODIFY b VARCHAR(200) AFTER id",
        [fresh, ID, names[1], ColumnSpec("a b", "bigint")],
    )
    scenario.insert(**{"d": "x", "id": 5, "b": "five", "a b": 5})
    scenario.change("d", before={"d": "new", "id": 2, "b": "two", "a b": 2})
    play(lake, scenario, cut)
    assert [tuple(r.items()) for r in rows(lake)] == [
        (("d", "new"), ("id", 1), ("b", "one"), ("a b", 1)),
        (("d", "new"), ("id", 3), ("b", "three"), ("a b", 2**40)),
        (("d", "new"), ("id", 4), ("b", "four"), ("a b", 4)),
        (("d", "x"), ("id", 5), ("b", "five"), ("a b", 5)),
    ]
    assert [(r["id"], r["c"]) for r in changelog(lake)] == [
        (1, 10),
        (2, 20),
        (3, 30),
        (4, None),
        (5, None),
        (2, None),
    ]
    done = [line for note in state(lake).notes for line in note.changes]
    early = ["rename column a to a b", "widen column a b from int to long"]
    late = ["drop column c", "add column d string", "move column b after id"]
    # A table that the first batch creates has the newest columns from the start.
    assert done == {"once": [], "half": late, "each": early + late}[cut]


@ways
def test_mirror_has_only_new_rows_when_its_table_is_dropped_and_created_again(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    old, new = ColumnSpec("a", "int"), ColumnSpec("a", "varchar")
    scenario = Scenario([ID, old], with_schemas)
    scenario.insert(id=1, a=1)
    scenario.insert(id=2, a=2)
    scenario.define("DROP TABLE orders", [], kind="DROP")
    scenario.define("CREATE TABLE orders (...)", [ID, new], kind="CREATE")
    scenario.insert(id=2, a="two")
    scenario.insert(id=3, a="three")
    play(lake, scenario, cut)
    assert rows(lake) == [{"id": 2, "a": "two"}, {"id": 3, "a": "three"}]
    assert len(changelog(lake)) == 4


def test_schema_changes_are_ignored_or_pause_the_table_by_policy(lake: LakeHarness) -> None:
    a, b, c = (ColumnSpec(name, "int") for name in "abc")
    scenario = Scenario([ID, a, b], with_schemas=False)
    scenario.insert(id=1, a=1, b=1)
    lake.write(scenario.records)
    ignoring = lake.config(schema_changes={"drop": "ignore", "add": "ignore", "rename": "ignore"})
    lake.catch_up(ignoring)
    scenario.records.clear()
    scenario.define("ALTER TABLE orders DROP a, ADD c INT", [ID, b, c])
    scenario.insert(id=2, b=2, c=2)
    scenario.insert(id=3, b=3, c=3)
    lake.write(scenario.records)
    failing = lake.config(
        schema_changes={"drop": "ignore"}, table=[{"name": "shop.orders", "schema_changes": {"add": "fail"}}]
    )
    (reason,) = lake.catch_up(failing).summary().paused.values()
    assert "add column c int" in reason
    for _ in range(2):
        assert lake.catch_up(ignoring).summary().paused == {}
    assert rows(lake) == [
        {"id": 1, "a": 1, "b": 1},
        {"id": 2, "a": None, "b": 2},
        {"id": 3, "a": None, "b": 3},
    ]
    (note,) = state(lake).notes
    assert set(note.changes) == {
        "keep dropped column a",
        "ignored: drop column a",
        "ignored: add column c int",
    }


def test_redelivered_definitions_do_not_change_the_lake_schema(lake: LakeHarness) -> None:
    a, b = ColumnSpec("a", "int"), ColumnSpec("b", "int")
    scenario = Scenario([ID, a, b], with_schemas=False)
    scenario.insert(id=1, a=1, b=2)
    scenario.define("ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a", [ID, b, a])
    scenario.insert(id=2, b=1, a=2)
    lake.write(scenario.records)
    lake.catch_up()
    before = state(lake)
    lake.write([r for r in scenario.records if r.topic == "shop"])
    scenario.records.clear()
    scenario.insert(id=3, b=1, a=2)
    lake.write(scenario.records)
    lake.catch_up()
    assert [(r["a"], r["b"]) for r in rows(lake)] == [(2, 1)] * 3
    assert state(lake) == before
    assert len(state(lake).notes) == len(before.notes)


def test_schemas_are_read_from_events_when_no_definitions_exist(lake: LakeHarness) -> None:
    """A missing column is dropped and a new one is added: without a statement no rename is known."""
    a, b, c = (ColumnSpec(name, "int") for name in "abc")
    scenario = Scenario([ID, a, b], with_schemas=True)
    scenario.insert(id=1, a=1, b=1)
    scenario.columns = [ID, a, b, c]
    scenario.insert(id=2, a=2, b=2, c=2)
    scenario.columns = [ID, ColumnSpec("d", "bigint"), c]
    scenario.insert(id=3, d=3, c=3)
    scenario.records = [r for r in scenario.records if r.topic != "shop"]
    for cut in ([1, 2, 3], [3]):
        own = LakeHarness(lake.base, lake.folder / str(len(cut)))
        own.folder.mkdir()
        own.write(scenario.records)
        for end in cut:
            mirror = own.mirror()
            mirror.advance({ORDERS: {0: end}})
            assert mirror.summary().paused == {}
        assert [tuple(r.items()) for r in rows(own)] == [
            (("id", 1), ("d", None), ("c", None)),
            (("id", 2), ("d", None), ("c", 2)),
            (("id", 3), ("d", 3), ("c", 3)),
        ]
        notes = state(own).notes
        assert notes == () or not any(n.declared for n in notes)


@ways
def test_added_column_keeps_its_fill_when_it_gets_the_name_of_a_dropped_column(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    """Existing rows have the value with which the source filled the column, under its present name."""
    a, e = ColumnSpec("a", "varchar"), ColumnSpec("e", "int", False, "7")
    scenario = Scenario([ID, a], with_schemas)
    scenario.insert(id=1, a="x")
    scenario.define("ALTER TABLE orders ADD COLUMN e INT NOT NULL DEFAULT 7", [ID, a, e])
    scenario.insert(id=2, a="y", e=8)
    renamed = ColumnSpec("a", "int", False, "7")
    scenario.define("ALTER TABLE orders DROP COLUMN a, RENAME COLUMN e TO a", [ID, renamed])
    scenario.insert(id=3, a=9)
    play(lake, scenario, cut)
    assert rows(lake) == [{"id": 1, "a": 7}, {"id": 2, "a": 8}, {"id": 3, "a": 9}]


@pytest.mark.parametrize("with_schemas", [False, True])
def test_schema_change_after_the_newest_event_is_applied_in_its_batch(
    lake: LakeHarness, with_schemas: bool
) -> None:
    """The next event may arrive much later."""
    scenario = Scenario([ID, ColumnSpec("n", "int")], with_schemas)
    scenario.insert(id=1, n=5)
    fresh = ColumnSpec("s", "varchar", False, "x")
    scenario.define(
        "ALTER TABLE orders ADD s VARCHAR(200) NOT NULL DEFAULT 'x'", [ID, ColumnSpec("n", "int"), fresh]
    )
    lake.write(scenario.records)
    assert lake.catch_up().summary().paused == {}
    assert rows(lake) == [{"id": 1, "n": 5, "s": "x"}]
    scenario.records.clear()
    scenario.insert(id=2, n=6, s="y")
    scenario.define("DROP TABLE orders", [], kind="DROP")
    lake.write(scenario.records)
    assert lake.catch_up().summary().paused == {}
    assert len(rows(lake)) == 2
    assert state(lake).gone == "dropped in the source"


def test_schema_changes_are_applied_when_the_table_has_no_new_events(lake: LakeHarness) -> None:
    """Types, fills and the drop of a table, while another table has events."""
    others = [other_table("others", "CREATE", 100, columns=[ID]), row_of("others", 110, id=1)]
    scenario = Scenario([ID, ColumnSpec("n", "int")], with_schemas=False)
    scenario.insert(id=1, n=5)
    lake.write([*others, *scenario.records])
    mirror = lake.catch_up()
    scenario.records.clear()
    fresh = ColumnSpec("s", "varchar", False, "x")
    scenario.define(
        "ALTER TABLE orders MODIFY n BIGINT, ADD s VARCHAR(200) NOT NULL DEFAULT 'x'",
        [ID, ColumnSpec("n", "bigint"), fresh],
    )
    lake.write([*scenario.records, row_of("others", 900, id=2)])
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert rows(lake) == [{"id": 1, "n": 5, "s": "x"}]
    scenario.records.clear()
    scenario.define("DROP TABLE orders", [], kind="DROP")
    lake.write([*scenario.records, row_of("others", 910, id=3)])
    for _ in range(2):
        assert lake.catch_up().summary().paused == {}
    assert rows(lake) == [{"id": 1, "n": 5, "s": "x"}]
    assert state(lake).gone == "dropped in the source"
    found = {t.table: t for t in read_status(lake.config()).tables}
    assert (found["shop.orders"].state, found["shop.others"].state) == ("gone", "current")
    assert [c for n in found["shop.orders"].schema_changes for c in n.changes] == [
        "widen column n from int to long",
        "add column s string",
        "dropped in the source",
    ]
    scenario.records.clear()
    scenario.define("CREATE TABLE orders (...)", [ID], kind="CREATE")
    lake.write([*scenario.records, row_of("others", 920, id=4)])
    assert lake.catch_up().summary().paused == {}
    assert rows(lake) == []
    assert state(lake).gone is None


@pytest.mark.parametrize("change", ["fill", "clear"])
def test_rows_get_what_a_schema_change_requires_when_the_process_was_killed_before(
    lake: LakeHarness, change: str
) -> None:
    """No later event of the table tells the next process of the change."""
    scenario = Scenario([ID, ColumnSpec("n", "int")], with_schemas=False)
    scenario.insert(id=1, n=5)
    lake.write(scenario.records)
    lake.catch_up()
    scenario.records.clear()
    fresh = [ID, ColumnSpec("n", "int"), ColumnSpec("s", "varchar", False, "x")]
    if change == "clear":
        scenario.define("DROP TABLE orders", [], kind="DROP")
        scenario.define("CREATE TABLE orders (...)", fresh, kind="CREATE")
    else:
        scenario.define("ALTER TABLE orders ADD s VARCHAR(200) NOT NULL DEFAULT 'x'", fresh)
        scenario.define("DROP TABLE orders", [], kind="DROP")
    lake.write(scenario.records)
    with pytest.raises(PowerCut), power_cut(1):
        lake.catch_up()
    with lake.catalog() as catalog:
        properties = catalog.load_table(("shop", "orders")).properties
    assert {PENDING_FILLS_KEY, PENDING_CLEAR_KEY} & properties.keys()
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert rows(lake) == ([] if change == "clear" else [{"id": 1, "n": 5, "s": "x"}])
    assert state(lake).gone == (None if change == "clear" else "dropped in the source")
    assert mirror.advance(mirror.context.log.offsets()[1]) is None
