"""Tables that take another name, or another table's, keep their rows."""

import pytest

from replicator.follow import go_through
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.oracle.model import Record
from tests.spark.conftest import Lab
from tests.spark.stories import ID, other_table, row_of, rows
from tests.support.failpoints import PowerCut, power_cut


@pytest.mark.parametrize("new", ["bills", "orders_new"])
@pytest.mark.parametrize("together", [True, False])
def test_a_table_that_is_renamed_keeps_its_rows(lab: Lab, together: bool, new: str) -> None:
    columns = [ID, ColumnSpec("a", "int")]
    first = [other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)]
    renamed = other_table(new, "ALTER", 300, old="orders", columns=columns)
    later = [renamed, row_of(new, 400, id=2, a=2)]
    anew = [other_table("orders", "CREATE", 500, columns=columns), row_of("orders", 600, id=3, a=3)]
    for records in [first + later + anew] if together else [first, later, anew]:
        lab.write(records)
        for _ in range(2):
            mirror = lab.mirror()
            go_through(mirror, None)
            assert mirror.summary().paused == {}
    assert rows(lab, new) == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert len(lab.rows(new, "shop_changes")) == 2
    assert rows(lab) == [{"id": 3, "a": 3}]
    assert len(lab.rows("orders", "shop_changes")) == 1


def test_an_archive_that_grew_by_a_rename_alone(lab: Lab) -> None:
    """The lake has all of the old topic, and what is left to read is the new one's."""
    columns = [ID, ColumnSpec("a", "int")]
    lab.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)])
    go_through(lab.mirror(), None)
    renamed = other_table("bills", "ALTER", 300, old="orders", columns=columns)
    lab.write([renamed, row_of("bills", 400, id=2, a=2)])
    go_through(lab.mirror(), None)
    assert rows(lab, "bills") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    lab.write([other_table("bills", "ALTER", 500, columns=[*columns, ColumnSpec("b", "int")])])
    go_through(lab.mirror(), None)
    assert rows(lab, "bills")[0] == {"id": 1, "a": 1, "b": None}


@pytest.mark.parametrize("at", [1, 2])
def test_a_power_cut_in_a_rename(lab: Lab, at: int) -> None:
    """Between the two tables, and before it is known that both are renamed."""
    columns = [ID, ColumnSpec("a", "int")]
    lab.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)])
    lab.catch_up()
    renamed = other_table("bills", "ALTER", 300, old="orders", columns=columns)
    lab.write([renamed, row_of("bills", 400, id=2, a=2)])
    with pytest.raises(PowerCut), power_cut(at):
        lab.catch_up()
    assert lab.catch_up().summary().paused == {}
    assert rows(lab, "bills") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert len(lab.rows("bills", "shop_changes")) == 2
    with lab.catalog() as catalog:
        for namespace in ("shop", "shop_changes"):
            assert {name for _, name in catalog.list_tables(namespace)} == {"bills"}


def test_the_old_name_does_not_come_back(lab: Lab) -> None:
    """Its topic stays in the log; a start before the first event under the new name must not read it anew."""
    columns = [ID, ColumnSpec("a", "int")]
    lab.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)])
    lab.catch_up()
    lab.write(
        [
            other_table("orders_new", "ALTER", 300, old="orders", columns=columns),
            other_table("orders_newer", "ALTER", 400, old="orders_new", columns=columns),
        ]
    )
    for _ in range(3):
        lab.catch_up()
    with lab.catalog() as catalog:
        assert {name for _, name in catalog.list_tables("shop")} == {"orders_newer"}
        assert {name for _, name in catalog.list_tables("shop_changes")} == {"orders_newer"}
    lab.write([row_of("orders_newer", 500, id=2, a=2)])
    lab.catch_up()
    assert rows(lab, "orders_newer") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_changes_of_columns_beside_a_rename(lab: Lab, together: bool, between: bool) -> None:
    """What a table went through under its old name counts under the new one: fills, names, types."""
    first = [ID, ColumnSpec("a", "int"), ColumnSpec("b", "int")]
    second = [ID, ColumnSpec("c", "int"), ColumnSpec("b", "int")]
    third = [ID, ColumnSpec("c", "varchar"), ColumnSpec("b", "int"), ColumnSpec("z", "int", False, "7")]
    alter = schema_change_event(
        Place(1, 300),
        "orders",
        second,
        ["id"],
        kind="ALTER",
        ddl="ALTER TABLE orders RENAME COLUMN a TO c",
    )
    rename = "ALTER TABLE orders RENAME TO orders_new, MODIFY c VARCHAR(20), ADD z INT NOT NULL DEFAULT 7"
    before = [other_table("orders", "CREATE", 100, columns=first), row_of("orders", 200, id=1, a=1, b=2)]
    changed = [Record("shop", 0, None, alter)]
    if between:
        changed.append(row_of("orders", 400, id=2, c=3, b=4))
    renamed = [
        other_table("orders_new", "ALTER", 500, ddl=rename, columns=third),
        row_of("orders_new", 600, id=3, c="5", b=6, z=8),
    ]
    for records in [before + changed + renamed] if together else [before, changed, renamed]:
        lab.write(records)
        assert lab.catch_up().summary().paused == {}
    wanted = [{"id": 1, "c": "1", "b": 2, "z": 7}, {"id": 3, "c": "5", "b": 6, "z": 8}]
    if between:
        wanted.insert(1, {"id": 2, "c": "3", "b": 4, "z": 7})
    assert rows(lab, "orders_new") == wanted


def test_a_copy_that_takes_a_tables_place_has_its_rows(lab: Lab) -> None:
    a, b = ColumnSpec("a", "int"), ColumnSpec("b", "int")
    lab.write([other_table("orders", "CREATE", 100, columns=[ID, a]), row_of("orders", 200, id=1, a=1)])
    lab.catch_up()
    copy = schema_change_event(
        Place(1, 310),
        "_orders_gho",
        [ID, b],
        ["id"],
        kind="ALTER",
        ddl="ALTER TABLE _orders_gho CHANGE a b INT",
    )
    cut_over = "RENAME TABLE orders TO _orders_del, _orders_gho TO orders"
    lab.write(
        [
            other_table("_orders_gho", "CREATE", 300, columns=[ID, a]),
            Record("shop", 0, None, copy),
            other_table("_orders_del", "ALTER", 400, ddl=cut_over, columns=[ID, a]),
            other_table("orders", "ALTER", 400, ddl=cut_over, columns=[ID, b]),
            row_of("orders", 500, id=2, b=2),
        ]
    )
    mirror = lab.catch_up(lab.config(source={"tables": ["shop.*"], "exclude": ["shop._*"]}))
    assert mirror.summary().paused == {}
    assert rows(lab) == [{"id": 1, "b": 1}, {"id": 2, "b": 2}]


def test_tables_that_exchange_their_names_stop(lab: Lab) -> None:
    columns = [ID]
    lab.write([other_table(name, "CREATE", 100, columns=columns) for name in ("orders", "bills")])
    lab.write([row_of("orders", 200, id=1), row_of("bills", 210, id=2)])
    lab.catch_up()
    exchange = "RENAME TABLE orders TO tmp, bills TO orders, tmp TO bills"
    lab.write(
        [
            other_table("orders", "ALTER", 300, ddl=exchange, columns=columns),
            other_table("bills", "ALTER", 300, ddl=exchange, columns=columns),
            row_of("orders", 400, id=3),
            row_of("bills", 410, id=4),
        ]
    )
    paused = lab.catch_up().summary().paused
    assert set(paused) == {"shop.orders", "shop.bills"}
    assert all("was renamed to" in reason for reason in paused.values())
