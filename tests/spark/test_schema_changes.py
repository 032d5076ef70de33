"""Every kind of schema change, in the middle of a batch and between batches: rows, columns and changelog afterwards."""

from datetime import timedelta
from decimal import Decimal

import pytest

from replicator.status import read_status
from tests.oracle.events import ColumnSpec
from tests.spark.batches import ORDERS
from tests.spark.conftest import Lab
from tests.spark.stories import EPOCH, ID, Story, changelog, other_table, play, row_of, rows, state
from tests.support.failpoints import PowerCut, power_cut

ways = pytest.mark.parametrize(
    ("cut", "with_schemas"), [("once", False), ("once", True), ("half", False), ("each", True)]
)


@ways
def test_columns_that_swap_names(lab: Lab, cut: str, with_schemas: bool) -> None:
    a, b = ColumnSpec("a", "int"), ColumnSpec("b", "int")
    story = Story([ID, a, b], with_schemas)
    story.insert(id=1, a=10, b=20)
    story.insert(id=2, a=11, b=21)
    story.define("ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a", [ID, b, a])
    story.insert(id=3, b=12, a=22)
    story.change("u", before={"id": 2, "b": 11, "a": 21}, after={"id": 2, "b": 13, "a": 21})
    play(lab, story, cut)
    assert rows(lab) == [
        {"id": 1, "b": 10, "a": 20},
        {"id": 2, "b": 13, "a": 21},
        {"id": 3, "b": 12, "a": 22},
    ]
    assert list(rows(lab)[0]) == ["id", "b", "a"]
    assert [(r["a"], r["b"]) for r in changelog(lab)] == [(20, 10), (21, 11), (22, 12), (21, 11), (21, 13)]


@ways
def test_a_column_dropped_and_added_again_starts_anew(lab: Lab, cut: str, with_schemas: bool) -> None:
    a, again = ColumnSpec("a", "int"), ColumnSpec("a", "int", False, "7")
    story = Story([ID, a], with_schemas)
    story.insert(id=1, a=10)
    story.insert(id=2, a=11)
    story.define("ALTER TABLE orders DROP COLUMN a, ADD COLUMN a INT NOT NULL DEFAULT 7", [ID, again])
    story.insert(id=3, a=12)
    story.change("u", before={"id": 2, "a": 7}, after={"id": 2, "a": 8})
    play(lab, story, cut)
    assert rows(lab) == [{"id": 1, "a": 7}, {"id": 2, "a": 8}, {"id": 3, "a": 12}]
    assert [(r["a__dropped"], r["a"]) for r in changelog(lab)] == [
        (10, None),
        (11, None),
        (None, 12),
        (None, 7),
        (None, 8),
    ]


@ways
def test_many_changes_at_once(lab: Lab, cut: str, with_schemas: bool) -> None:
    """Renamed, dropped, added in the middle, moved, widened; and events of each version in one batch."""
    names = [ColumnSpec("a", "int"), ColumnSpec("b", "varchar"), ColumnSpec("c", "int")]
    story = Story([ID, *names], with_schemas)
    story.insert(id=1, a=1, b="one", c=10)
    story.insert(id=2, a=2, b="two", c=20)
    story.define("ALTER TABLE orders CHANGE a `a b` BIGINT", [ID, ColumnSpec("a b", "bigint"), *names[1:]])
    story.insert(**{"id": 3, "a b": 2**40, "b": "three", "c": 30})
    story.define("ALTER TABLE orders DROP c", [ID, ColumnSpec("a b", "bigint"), names[1]])
    story.insert(**{"id": 4, "a b": 4, "b": "four"})
    fresh = ColumnSpec("d", "varchar", False, "new")
    story.define(
        "ALTER TABLE orders ADD d VARCHAR(200) NOT NULL DEFAULT 'new' FIRST, MODIFY b VARCHAR(200) AFTER id",
        [fresh, ID, names[1], ColumnSpec("a b", "bigint")],
    )
    story.insert(**{"d": "x", "id": 5, "b": "five", "a b": 5})
    story.change("d", before={"d": "new", "id": 2, "b": "two", "a b": 2})
    play(lab, story, cut)
    assert [tuple(r.items()) for r in rows(lab)] == [
        (("d", "new"), ("id", 1), ("b", "one"), ("a b", 1)),
        (("d", "new"), ("id", 3), ("b", "three"), ("a b", 2**40)),
        (("d", "new"), ("id", 4), ("b", "four"), ("a b", 4)),
        (("d", "x"), ("id", 5), ("b", "five"), ("a b", 5)),
    ]
    assert [(r["id"], r["c"]) for r in changelog(lab)] == [
        (1, 10),
        (2, 20),
        (3, 30),
        (4, None),
        (5, None),
        (2, None),
    ]
    done = [line for note in state(lab).notes for line in note.changes]
    assert "drop column c" in done or cut == "once"


@ways
def test_types_that_are_converted(lab: Lab, cut: str, with_schemas: bool) -> None:
    old = [
        ColumnSpec("n", "int"),
        ColumnSpec("m", "decimal"),
        ColumnSpec("t", "datetime"),
        ColumnSpec("s", "varchar"),
    ]
    new = [
        ColumnSpec("n", "varchar"),
        ColumnSpec("m", "bigint"),
        ColumnSpec("t", "seconds"),
        ColumnSpec("s", "int"),
    ]
    story = Story([ID, *old], with_schemas)
    price = 12.5
    story.insert(id=1, n=-5, m=price, t=1_500_000, s="17")
    story.insert(id=2, n=None, m=None, t=None, s=None)
    story.define(
        "ALTER TABLE orders MODIFY n VARCHAR(200), MODIFY m BIGINT, MODIFY t DATETIME, MODIFY s INT",
        [ID, *new],
    )
    story.insert(id=3, n="five", m=5, t=3_000, s=3)
    story.change(
        "u",
        before={"id": 2, "n": None, "m": None, "t": None, "s": None},
        after={"id": 2, "n": "x", "m": 1, "t": 0, "s": 2},
    )
    play(lab, story, cut)
    assert [tuple(r.items()) for r in rows(lab)] == [
        (("id", 1), ("n", "-5"), ("m", 13), ("t", EPOCH + timedelta(seconds=2)), ("s", 17)),
        (("id", 2), ("n", "x"), ("m", 1), ("t", EPOCH), ("s", 2)),
        (("id", 3), ("n", "five"), ("m", 5), ("t", EPOCH + timedelta(seconds=3)), ("s", 3)),
    ]
    first, *_, last = changelog(lab)
    assert (first["n__was_int"], first["m__was_decimal_12_2"], first["s__was_string"]) == (
        -5,
        Decimal("12.50"),
        "17",
    )
    assert (first["n"], last["n"], last["n__was_int"]) == (None, "x", None)


@ways
def test_another_primary_key(lab: Lab, cut: str, with_schemas: bool) -> None:
    code = ColumnSpec("code", "bigint", False)
    story = Story([ID, code], with_schemas)
    story.insert(id=1, code=10)
    story.insert(id=2, code=20)
    story.change("u", before={"id": 2, "code": 20}, after={"id": 2, "code": 21})
    story.change("d", before={"id": 1, "code": 10})
    story.insert(id=3, code=30)
    story.define("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (code)", [ID, code], ["code"])
    story.change("u", before={"id": 2, "code": 21}, after={"id": 3, "code": 21})
    story.change("d", before={"id": 3, "code": 30})
    story.insert(id=3, code=40)
    play(lab, story, cut)
    assert sorted(r["code"] for r in rows(lab)) == [21, 40]
    assert {r["id"] for r in rows(lab)} == {3}
    with lab.catalog() as catalog:
        schema = catalog.load_table(("shop", "orders")).schema()
    assert schema.identifier_field_names() == {"code"}


@ways
def test_a_renamed_key_column(lab: Lab, cut: str, with_schemas: bool) -> None:
    name, other = ColumnSpec("name", "varchar"), ColumnSpec("number", "bigint", False)
    story = Story([ID, name], with_schemas)
    for i in range(4):
        story.insert(id=i, name="x")
    story.change("d", before={"id": 0, "name": "x"})
    story.define("ALTER TABLE orders CHANGE id number BIGINT NOT NULL", [other, name], ["number"])
    story.change("u", before={"number": 1, "name": "x"}, after={"number": 1, "name": "y"})
    story.change("d", before={"number": 2, "name": "x"})
    play(lab, story, cut)
    found = sorted(lab.rows("orders"), key=lambda r: r["number"])
    assert found == [{"number": 1, "name": "y"}, {"number": 3, "name": "x"}]


@ways
def test_dropped_and_created_again(lab: Lab, cut: str, with_schemas: bool) -> None:
    old, new = ColumnSpec("a", "int"), ColumnSpec("a", "varchar")
    story = Story([ID, old], with_schemas)
    story.insert(id=1, a=1)
    story.insert(id=2, a=2)
    story.define("DROP TABLE orders", [], kind="DROP")
    story.define("CREATE TABLE orders (...)", [ID, new], kind="CREATE")
    story.insert(id=2, a="two")
    story.insert(id=3, a="three")
    play(lab, story, cut)
    assert rows(lab) == [{"id": 2, "a": "two"}, {"id": 3, "a": "three"}]
    assert len(changelog(lab)) == 4


def test_twenty_schemas_in_one_batch(lab: Lab) -> None:
    columns = [ID, ColumnSpec("c0", "int")]
    story = Story(columns, with_schemas=False)
    for number in range(20):
        story.insert(**{c.name: number for c in columns})
        columns = [*columns, ColumnSpec(f"c{number + 1}", "int")]
        if number % 3 == 2:
            gone = columns.pop(1).name
            story.define(f"ALTER TABLE orders DROP {gone}, ADD c{number + 1} INT", columns)
        else:
            story.define(f"ALTER TABLE orders ADD c{number + 1} INT", columns)
    story.insert(**{c.name: 20 for c in columns})
    play(lab, story, "once")
    found = sorted(lab.rows("orders"), key=lambda r: r["id"])
    assert len(found) == 21
    assert set(found[0]) == {c.name for c in columns}
    assert found[20] == {c.name: 20 for c in columns}


@pytest.mark.parametrize("crash", range(1, 9))
def test_a_crash_while_types_are_converted(lab: Lab, crash: int) -> None:
    story = Story([ID, ColumnSpec("n", "int"), ColumnSpec("m", "int")], with_schemas=False)
    story.insert(id=1, n=1, m=1)
    lab.write(story.records)
    lab.catch_up()
    story.records.clear()
    story.define("ALTER TABLE orders MODIFY n VARCHAR(200), DROP m", [ID, ColumnSpec("n", "varchar")])
    story.insert(id=2, n="two")
    lab.write(story.records)
    for _ in range(2):
        try:
            with power_cut(crash):
                lab.catch_up()
        except PowerCut:
            continue
    assert lab.catch_up().summary().paused == {}
    assert rows(lab) == [{"id": 1, "n": "1"}, {"id": 2, "n": "two"}]
    assert len(changelog(lab)) == 2


def test_ignored_and_forbidden_changes(lab: Lab) -> None:
    a, b, c = (ColumnSpec(name, "int") for name in "abc")
    story = Story([ID, a, b], with_schemas=False)
    story.insert(id=1, a=1, b=1)
    lab.write(story.records)
    ignoring = lab.config(schema_changes={"drop": "ignore", "add": "ignore", "rename": "ignore"})
    lab.catch_up(ignoring)
    story.records.clear()
    story.define("ALTER TABLE orders DROP a, ADD c INT", [ID, b, c])
    story.insert(id=2, b=2, c=2)
    story.insert(id=3, b=3, c=3)
    lab.write(story.records)
    failing = lab.config(
        schema_changes={"drop": "ignore"}, table=[{"name": "shop.orders", "schema_changes": {"add": "fail"}}]
    )
    (reason,) = lab.catch_up(failing).summary().paused.values()
    assert "add column c int" in reason
    for _ in range(2):
        assert lab.catch_up(ignoring).summary().paused == {}
    assert rows(lab) == [
        {"id": 1, "a": 1, "b": 1},
        {"id": 2, "a": None, "b": 2},
        {"id": 3, "a": None, "b": 3},
    ]
    (note,) = state(lab).notes
    assert set(note.changes) == {
        "keep dropped column a",
        "ignored: drop column a",
        "ignored: add column c int",
    }


def test_definitions_that_come_again_do_no_harm(lab: Lab) -> None:
    a, b = ColumnSpec("a", "int"), ColumnSpec("b", "int")
    story = Story([ID, a, b], with_schemas=False)
    story.insert(id=1, a=1, b=2)
    story.define("ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a", [ID, b, a])
    story.insert(id=2, b=1, a=2)
    lab.write(story.records)
    lab.catch_up()
    before = state(lab)
    lab.write([r for r in story.records if r.topic == "shop"])
    story.records.clear()
    story.insert(id=3, b=1, a=2)
    lab.write(story.records)
    lab.catch_up()
    assert [(r["a"], r["b"]) for r in rows(lab)] == [(2, 1)] * 3
    assert state(lab) == before
    assert len(state(lab).notes) == len(before.notes)


def test_without_definitions_the_events_tell(lab: Lab) -> None:
    """What went is dropped and what came is added: without a statement nothing says that it was renamed."""
    a, b, c = (ColumnSpec(name, "int") for name in "abc")
    story = Story([ID, a, b], with_schemas=True)
    story.insert(id=1, a=1, b=1)
    story.columns = [ID, a, b, c]
    story.insert(id=2, a=2, b=2, c=2)
    story.columns = [ID, ColumnSpec("d", "bigint"), c]
    story.insert(id=3, d=3, c=3)
    story.records = [r for r in story.records if r.topic != "shop"]
    for cut in ([1, 2, 3], [3]):
        own = Lab(lab.base, lab.folder / str(len(cut)))
        own.folder.mkdir()
        own.write(story.records)
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
        assert notes == () or not any(n.told for n in notes)


def test_what_cannot_be_followed_stops_the_table(lab: Lab) -> None:
    story = Story([ID, ColumnSpec("t", "datetime")], with_schemas=False)
    story.insert(id=1, t=5)
    lab.write(story.records)
    lab.catch_up()
    story.records.clear()
    number = ColumnSpec("n", "bigint", False)
    story.define(
        "ALTER TABLE orders DROP PRIMARY KEY, ADD n BIGINT AUTO_INCREMENT PRIMARY KEY",
        [ID, story.columns[1], number],
        ["n"],
    )
    story.insert(id=2, t=6, n=2)
    lab.write(story.records)
    (reason,) = lab.catch_up().summary().paused.values()
    assert "no event says which values" in reason
    assert [r["id"] for r in rows(lab)] == [1]


@pytest.mark.parametrize("with_schemas", [False, True])
def test_the_newest_event_is_sent_again_with_a_change(lab: Lab, with_schemas: bool) -> None:
    """It is known by its content, as it was before the change."""
    a, b, fresh = ColumnSpec("a", "int"), ColumnSpec("b", "int"), ColumnSpec("s", "varchar", False, "x")
    story = Story([ID, a, b], with_schemas)
    story.insert(id=1, a=5, b=6)
    lab.write(story.records)
    lab.catch_up()
    story.records[:] = story.records[-1:]
    story.define(
        "ALTER TABLE orders DROP a, RENAME COLUMN b TO a, ADD s VARCHAR(200) NOT NULL DEFAULT 'x' FIRST",
        [fresh, ID, a],
    )
    story.insert(s="y", id=2, a=7)
    lab.write(story.records)
    assert lab.catch_up().summary().paused == {}
    assert rows(lab) == [{"s": "x", "id": 1, "a": 6}, {"s": "y", "id": 2, "a": 7}]
    assert [(r["id"], r["a__dropped"], r["a"]) for r in changelog(lab)] == [(1, 5, 6), (2, None, 7)]


@ways
def test_a_column_that_was_added_takes_the_name_of_another(lab: Lab, cut: str, with_schemas: bool) -> None:
    """Rows from before have what the source filled it with, under its present name."""
    a, e = ColumnSpec("a", "varchar"), ColumnSpec("e", "int", False, "7")
    story = Story([ID, a], with_schemas)
    story.insert(id=1, a="x")
    story.define("ALTER TABLE orders ADD COLUMN e INT NOT NULL DEFAULT 7", [ID, a, e])
    story.insert(id=2, a="y", e=8)
    renamed = ColumnSpec("a", "int", False, "7")
    story.define("ALTER TABLE orders DROP COLUMN a, RENAME COLUMN e TO a", [ID, renamed])
    story.insert(id=3, a=9)
    play(lab, story, cut)
    assert rows(lab) == [{"id": 1, "a": 7}, {"id": 2, "a": 8}, {"id": 3, "a": 9}]


@ways
def test_two_columns_of_one_name_that_went(lab: Lab, cut: str, with_schemas: bool) -> None:
    """The changelog keeps them apart."""
    a, b, c = ColumnSpec("a", "datetime"), ColumnSpec("b", "int"), ColumnSpec("c", "int")
    story = Story([ID, a, b, c], with_schemas)
    story.insert(id=1, a=0, b=5, c=1)
    renamed = ColumnSpec("a", "int")
    story.define("ALTER TABLE orders DROP COLUMN a, RENAME COLUMN b TO a", [ID, renamed, c])
    story.insert(id=2, a=6, c=2)
    story.define("ALTER TABLE orders DROP COLUMN a", [ID, c])
    story.insert(id=3, c=3)
    play(lab, story, cut)
    assert rows(lab) == [{"id": 1, "c": 1}, {"id": 2, "c": 2}, {"id": 3, "c": 3}]
    found = [(r["id"], r["a__dropped"], r["a"]) for r in changelog(lab)]
    assert found == [(1, EPOCH, 5), (2, None, 6), (3, None, None)]


@pytest.mark.parametrize("with_schemas", [False, True])
def test_a_change_behind_the_newest_event_is_followed_with_it(lab: Lab, with_schemas: bool) -> None:
    """The next event may be long in coming."""
    story = Story([ID, ColumnSpec("n", "int")], with_schemas)
    story.insert(id=1, n=5)
    fresh = ColumnSpec("s", "varchar", False, "x")
    story.define(
        "ALTER TABLE orders ADD s VARCHAR(200) NOT NULL DEFAULT 'x'", [ID, ColumnSpec("n", "int"), fresh]
    )
    lab.write(story.records)
    assert lab.catch_up().summary().paused == {}
    assert rows(lab) == [{"id": 1, "n": 5, "s": "x"}]
    story.records.clear()
    story.insert(id=2, n=6, s="y")
    story.define("DROP TABLE orders", [], kind="DROP")
    lab.write(story.records)
    assert lab.catch_up().summary().paused == {}
    assert len(rows(lab)) == 2
    assert state(lab).gone == "dropped in the source"


def test_changes_without_events_are_followed_too(lab: Lab) -> None:
    """Conversions, fills and the end of a table, while another table has events."""
    others = [other_table("others", "CREATE", 100, columns=[ID]), row_of("others", 110, id=1)]
    story = Story([ID, ColumnSpec("n", "int")], with_schemas=False)
    story.insert(id=1, n=5)
    lab.write([*others, *story.records])
    mirror = lab.catch_up()
    story.records.clear()
    fresh = ColumnSpec("s", "varchar", False, "x")
    story.define(
        "ALTER TABLE orders MODIFY n VARCHAR(200), ADD s VARCHAR(200) NOT NULL DEFAULT 'x'",
        [ID, ColumnSpec("n", "varchar"), fresh],
    )
    lab.write([*story.records, row_of("others", 900, id=2)])
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert rows(lab) == [{"id": 1, "n": "5", "s": "x"}]
    story.records.clear()
    story.define("DROP TABLE orders", [], kind="DROP")
    lab.write([*story.records, row_of("others", 910, id=3)])
    for _ in range(2):
        assert lab.catch_up().summary().paused == {}
    assert rows(lab) == [{"id": 1, "n": "5", "s": "x"}]
    assert state(lab).gone == "dropped in the source"
    found = {t.table: t for t in read_status(lab.config()).tables}
    assert (found["shop.orders"].state, found["shop.others"].state) == ("gone", "current")
    assert [c for n in found["shop.orders"].schema_changes for c in n.changes] == [
        "change type of column n from INT to VARCHAR(200)",
        "add column s string",
        "dropped in the source",
    ]
    story.records.clear()
    story.define("CREATE TABLE orders (...)", [ID], kind="CREATE")
    lab.write([*story.records, row_of("others", 920, id=4)])
    assert lab.catch_up().summary().paused == {}
    assert rows(lab) == []
    assert state(lab).gone is None
