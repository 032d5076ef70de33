"""Tables keep their rows if they are renamed or exchange their names."""

from itertools import chain

import pytest

from replicator.errors import SchemaError, UnloggedChange, UnsupportedChange
from replicator.model.table import TableId
from replicator.runner.archive_run import apply_archive
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.oracle.model import Record
from tests.support.exchanged_tables import (
    A,
    B,
    after_exchange,
    assert_exchanged,
    before_exchange,
    exchange_of,
)
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, other_table, row_of, rows


@pytest.mark.parametrize("new", ["bills", "orders_new"])
@pytest.mark.parametrize("together", [True, False])
def test_renamed_table_keeps_its_rows(lake: LakeHarness, together: bool, new: str) -> None:
    columns = [ID, ColumnSpec("a", "int")]
    first = [other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)]
    renamed = other_table(new, "ALTER", 300, old="orders", columns=columns)
    later = [renamed, row_of(new, 400, id=2, a=2)]
    anew = [other_table("orders", "CREATE", 500, columns=columns), row_of("orders", 600, id=3, a=3)]
    for records in [first + later + anew] if together else [first, later, anew]:
        lake.write(records)
        for _ in range(2):
            mirror = lake.mirror()
            apply_archive(mirror)
            assert mirror.summary().paused == {}
    assert rows(lake, new) == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert len(lake.rows(new, "shop_changes")) == 2
    assert rows(lake) == [{"id": 3, "a": 3}]
    assert len(lake.rows("orders", "shop_changes")) == 1


def test_renamed_table_continues_when_only_the_new_topic_is_unread(lake: LakeHarness) -> None:
    """All events of the old topic are in the lake; only the new topic has unread events."""
    columns = [ID, ColumnSpec("a", "int")]
    lake.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)])
    apply_archive(lake.mirror())
    renamed = other_table("bills", "ALTER", 300, old="orders", columns=columns)
    lake.write([renamed, row_of("bills", 400, id=2, a=2)])
    apply_archive(lake.mirror())
    assert rows(lake, "bills") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    lake.write([other_table("bills", "ALTER", 500, columns=[*columns, ColumnSpec("b", "int")])])
    apply_archive(lake.mirror())
    assert rows(lake, "bills")[0] == {"id": 1, "a": 1, "b": None}


@pytest.mark.parametrize("at", [1, 2])
def test_rename_is_completed_after_a_crash(lake: LakeHarness, at: int) -> None:
    """Crash between the renames of mirror and changelog, and after both."""
    columns = [ID, ColumnSpec("a", "int")]
    lake.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)])
    lake.catch_up()
    renamed = other_table("bills", "ALTER", 300, old="orders", columns=columns)
    lake.write([renamed, row_of("bills", 400, id=2, a=2)])
    with pytest.raises(PowerCut), power_cut(at):
        lake.catch_up()
    assert lake.catch_up().summary().paused == {}
    assert rows(lake, "bills") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert len(lake.rows("bills", "shop_changes")) == 2
    with lake.catalog() as catalog:
        for namespace in ("shop", "shop_changes"):
            assert {name for _, name in catalog.list_tables(namespace)} == {"bills"}


def test_table_of_the_old_name_is_not_created_again_after_a_rename(lake: LakeHarness) -> None:
    """Its topic stays in the log; a start before the first event under the new name must not read it again."""
    columns = [ID, ColumnSpec("a", "int")]
    lake.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)])
    lake.catch_up()
    lake.write(
        [
            other_table("orders_new", "ALTER", 300, old="orders", columns=columns),
            other_table("orders_newer", "ALTER", 400, old="orders_new", columns=columns),
        ]
    )
    for _ in range(3):
        lake.catch_up()
    with lake.catalog() as catalog:
        assert {name for _, name in catalog.list_tables("shop")} == {"orders_newer"}
        assert {name for _, name in catalog.list_tables("shop_changes")} == {"orders_newer"}
    lake.write([row_of("orders_newer", 500, id=2, a=2)])
    lake.catch_up()
    assert rows(lake, "orders_newer") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_column_changes_under_the_old_name_apply_to_the_renamed_table(
    lake: LakeHarness, together: bool, between: bool
) -> None:
    """Fills, renames and type changes under the old name apply under the new one."""
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
        lake.write(records)
        assert lake.catch_up().summary().paused == {}
    wanted = [{"id": 1, "c": "1", "b": 2, "z": 7}, {"id": 3, "c": "5", "b": 6, "z": 8}]
    if between:
        wanted.insert(1, {"id": 2, "c": "3", "b": 4, "z": 7})
    assert rows(lake, "orders_new") == wanted


def test_table_keeps_its_rows_when_an_excluded_copy_replaces_it(lake: LakeHarness) -> None:
    a, b = ColumnSpec("a", "int"), ColumnSpec("b", "int")
    lake.write([other_table("orders", "CREATE", 100, columns=[ID, a]), row_of("orders", 200, id=1, a=1)])
    lake.catch_up()
    copy = schema_change_event(
        Place(1, 310),
        "_orders_gho",
        [ID, b],
        ["id"],
        kind="ALTER",
        ddl="ALTER TABLE _orders_gho CHANGE a b INT",
    )
    cut_over = "RENAME TABLE orders TO _orders_del, _orders_gho TO orders"
    lake.write(
        [
            other_table("_orders_gho", "CREATE", 300, columns=[ID, a]),
            Record("shop", 0, None, copy),
            other_table("_orders_del", "ALTER", 400, ddl=cut_over, columns=[ID, a]),
            other_table("orders", "ALTER", 400, ddl=cut_over, columns=[ID, b]),
            row_of("orders", 500, id=2, b=2),
        ]
    )
    mirror = lake.catch_up(lake.config(source={"tables": ["shop.*"], "exclude": ["shop._*"]}))
    assert mirror.summary().paused == {}
    assert rows(lake) == [{"id": 1, "b": 1}, {"id": 2, "b": 2}]


@pytest.mark.parametrize("exchanged", [True, False])
@pytest.mark.parametrize(
    ("policy", "errors"), [("reread", [UnloggedChange]), ("keep", []), ("pause", [UnsupportedChange])]
)
def test_table_is_read_again_when_another_one_that_is_not_mirrored_takes_its_name(
    lake: LakeHarness, policy: str, errors: list[type[Exception]], exchanged: bool
) -> None:
    columns = [ID, A]
    lake.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)])
    config = lake.config(source={"tables": ["shop.orders"]}, schema_changes={"unlogged": policy})
    lake.catch_up(config)
    swap = (
        exchange_of(300, columns, columns, divided=False)
        if exchanged
        else [other_table("orders", "ALTER", 300, old="bills", columns=columns)]
    )
    lake.write([row_of("orders", 250, id=2, a=2), *swap, row_of("orders", 400, id=9, a=9)])
    mirror = lake.mirror(config)
    causes: list[Exception] = []
    mirror.tables.on_pause = lambda _table, cause: causes.append(cause)
    mirror.advance(mirror.context.log.offsets()[1])
    assert [type(cause) for cause in causes] == errors
    assert all("RENAME TABLE `bills` TO `orders` changed rows at" in str(cause) for cause in causes)
    before = [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert rows(lake) == (before if errors else [*before, {"id": 9, "a": 9}])


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("cuts", ["together", "apart", "each"])
def test_tables_keep_their_rows_when_they_exchange_names(lake: LakeHarness, cuts: str, divided: bool) -> None:
    exchange = exchange_of(300, [ID, B], [ID, A], divided=divided)
    steps = [before_exchange(), exchange, *([record] for record in after_exchange())]
    if cuts == "together":
        steps = [list(chain(*steps))]
    elif cuts == "apart":
        steps = [list(chain(*steps[:2])), list(chain(*steps[2:]))]
    for step in steps:
        lake.write(step)
        for _ in range(2):
            summary = lake.catch_up().summary()
            assert (summary.paused, summary.quarantined) == ({}, 0)
    assert_exchanged(lake)


def test_tables_keep_their_rows_when_names_are_exchanged_twice(lake: LakeHarness) -> None:
    lake.write([*before_exchange(), *exchange_of(300, [ID, B], [ID, A], divided=True), *after_exchange()])
    lake.write(
        [
            *exchange_of(500, [ID, A], [ID, B], divided=True),
            row_of("orders", 600, id=6, a=6),
            row_of("bills", 610, id=7, b="seven"),
        ]
    )
    for _ in range(2):
        assert lake.catch_up().summary().paused == {}
    assert rows(lake) == [{"id": 1, "a": 1}, {"id": 5, "a": 5}, {"id": 6, "a": 6}]
    assert rows(lake, "bills") == [{"id": 2, "b": "four"}, {"id": 3, "b": "three"}, {"id": 7, "b": "seven"}]


def test_table_keeps_its_rows_when_it_exchanges_names_with_an_empty_one(lake: LakeHarness) -> None:
    lake.write([r for r in before_exchange() if r.topic != "shop.shop.bills"])
    lake.write([*exchange_of(300, [ID, B], [ID, A], divided=True), *after_exchange()])
    for _ in range(2):
        assert lake.catch_up().summary().paused == {}
    assert rows(lake) == [{"id": 2, "b": "four"}]
    assert rows(lake, "bills") == [{"id": 1, "a": 1}, {"id": 5, "a": 5}]


def test_table_waits_for_the_table_that_it_exchanges_names_with(lake: LakeHarness) -> None:
    """It waits until the other table has all events from before the exchange, so that no rows are mixed."""
    lake.write(before_exchange()[:4])
    lake.catch_up()
    lake.write([*exchange_of(300, [ID, B], [ID, A], divided=True), after_exchange()[0]])
    mirror = lake.mirror()
    mirror.tables.pause(TableId("shop", "bills"), SchemaError("a reason"))
    mirror.advance(mirror.context.log.offsets()[1])
    assert rows(lake) == [{"id": 1, "a": 1}]
    lake.write([before_exchange()[4], after_exchange()[1]])
    assert lake.catch_up().summary().paused == {}
    assert_exchanged(lake)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 6, 7, 9, 11, 13, 15])
def test_exchange_of_names_is_completed_after_a_crash(lake: LakeHarness, at: int) -> None:
    """Two namespaces, each with two tables to update and three renames."""
    lake.write(before_exchange())
    lake.catch_up()
    lake.write([*exchange_of(300, [ID, B], [ID, A], divided=True), *after_exchange()])
    with pytest.raises(PowerCut), power_cut(at):
        lake.catch_up()
    for _ in range(2):
        summary = lake.catch_up().summary()
        assert (summary.paused, summary.quarantined) == ({}, 0)
    assert_exchanged(lake)
