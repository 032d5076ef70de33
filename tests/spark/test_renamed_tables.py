"""Tables keep their rows if they are renamed; tables that take over names are read again."""

from dataclasses import replace

import pytest

from replicator.errors import UnknownPast, UnloggedChange, UnsupportedChange
from replicator.lake.catalog.exact_commit import set_properties
from replicator.model.table import TableId
from replicator.runner.archive_run import apply_archive
from replicator.schema.evolution.changes import SCHEMA_KEY
from tests.oracle.compare import applied_order, folded
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.oracle.model import Record
from tests.support.exchanged_tables import (
    A,
    B,
    after_exchange,
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


def test_changelog_of_a_renamed_table_has_one_order(lake: LakeHarness) -> None:
    """Offsets begin at 0 again in the topic of the new name."""
    columns = [ID, ColumnSpec("a", "int")]
    first = [other_table("orders", "CREATE", 100, columns=columns)]
    first += [row_of("orders", 200 + n, id=n % 2, a=n) for n in range(6)]
    renamed = [other_table("bills", "ALTER", 300, old="orders", columns=columns)]
    for records in (first, [*renamed, row_of("bills", 400, id=0, a=40)], [row_of("bills", 500, id=1, a=50)]):
        lake.write(records)
        apply_archive(lake.mirror())
    changes = lake.rows("bills", "shop_changes")
    assert rows(lake, "bills") == [{"id": 0, "a": 40}, {"id": 1, "a": 50}]
    assert sorted(folded(changes).values(), key=lambda row: row["id"]) == rows(lake, "bills")
    commits = [row["_change"]["commit"] for row in sorted(changes, key=applied_order)]
    assert commits == sorted(commits)
    assert len(set(commits)) == 3


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
    third = [ID, ColumnSpec("c", "bigint"), ColumnSpec("b", "int"), ColumnSpec("z", "int", False, "7")]
    alter = schema_change_event(
        Place(1, 300),
        "orders",
        second,
        ["id"],
        kind="ALTER",
        ddl="ALTER TABLE orders RENAME COLUMN a TO c",
    )
    rename = "ALTER TABLE orders RENAME TO orders_new, MODIFY c BIGINT, ADD z INT NOT NULL DEFAULT 7"
    before = [other_table("orders", "CREATE", 100, columns=first), row_of("orders", 200, id=1, a=1, b=2)]
    changed = [Record("shop", 0, None, alter)]
    if between:
        changed.append(row_of("orders", 400, id=2, c=3, b=4))
    renamed = [
        other_table("orders_new", "ALTER", 500, ddl=rename, columns=third),
        row_of("orders_new", 600, id=3, c=5, b=6, z=8),
    ]
    for records in [before + changed + renamed] if together else [before, changed, renamed]:
        lake.write(records)
        assert lake.catch_up().summary().paused == {}
    wanted = [{"id": 1, "c": 1, "b": 2, "z": 7}, {"id": 3, "c": 5, "b": 6, "z": 8}]
    if between:
        wanted.insert(1, {"id": 2, "c": 3, "b": 4, "z": 7})
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
    mirror.tables.on_pause(lambda _table, cause: causes.append(cause))
    mirror.advance(mirror.context.log.offsets()[1])
    assert [type(cause) for cause in causes] == errors
    assert all("RENAME TABLE `bills` TO `orders` changed rows at" in str(cause) for cause in causes)
    before = [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert rows(lake) == (before if errors else [*before, {"id": 9, "a": 9}])


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_tables_that_exchange_their_names_are_both_read_again(
    lake: LakeHarness, together: bool, divided: bool
) -> None:
    """Only the source tells for certain which rows a name has then."""
    exchange = [*exchange_of(300, [ID, B], [ID, A], divided=divided), *after_exchange()]
    for step in [[*before_exchange(), *exchange]] if together else [before_exchange(), exchange]:
        lake.write(step)
        mirror = lake.mirror()
        mirror.advance(mirror.context.log.offsets()[1])
    paused = mirror.tables.paused
    assert {table.name for table in paused} == {"orders", "bills"}
    assert all("RENAME TABLE" in reason for reason in paused.values())
    assert rows(lake) == [{"id": 1, "a": 1}]
    assert rows(lake, "bills") == [{"id": 2, "b": "two"}, {"id": 3, "b": "three"}]


def test_tables_are_read_again_if_one_statement_renames_a_table_and_gives_its_name_to_another_one(
    lake: LakeHarness,
) -> None:
    """The lake has the rows of neither name for certain, and no row is lost or mixed."""
    lake.write(before_exchange())
    lake.catch_up()
    swap = "RENAME TABLE orders TO orders_old, bills TO orders"
    lake.write(
        [
            other_table("orders_old", "ALTER", 300, ddl=swap, columns=[ID, A]),
            other_table("orders", "ALTER", 300, ddl=swap, columns=[ID, B]),
            row_of("orders", 400, id=4, b="four"),
            row_of("orders_old", 410, id=5, a=5),
        ]
    )
    mirror = lake.mirror()
    causes: dict[str, type[Exception]] = {}
    mirror.tables.on_pause(lambda table, cause: causes.update({table.name: type(cause)}))
    mirror.advance(mirror.context.log.offsets()[1])
    assert causes["orders"] is UnloggedChange
    assert rows(lake) == [{"id": 1, "a": 1}]
    # Once `orders` was read again, the lake has its new rows under the old name of `orders_old`.
    mirror.tables.resume(TableId("shop", "orders"))
    present = mirror.context.lake.load("shop", "orders")
    state = None if present is None else present.schema_state()
    assert present is not None
    assert state is not None
    at = mirror.context.schemas.history(TableId("shop", "orders")).versions[-1].at
    for namespace in ("shop", "shop_changes"):
        table = mirror.context.lake.load(namespace, "orders")
        assert table is not None
        set_properties(table, {SCHEMA_KEY: replace(state, at=at).to_json()})
    mirror.context.ledger.forget_all()
    mirror.advance({"shop.shop.orders_old": {0: 1}})
    assert causes["orders_old"] is UnknownPast
    assert "orders_old" not in set(mirror.context.lake.tables("shop"))
