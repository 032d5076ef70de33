"""Columns that others add to lake tables stay with their values; other changes of columns pause the table."""

from collections import Counter
from typing import Any

import pytest
from pyiceberg.types import LongType

from replicator.config import Config
from replicator.errors import ForeignColumns, UnsupportedChange
from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.operations.status.read import read_status
from replicator.runner.scheduler import Scheduler
from tests.oracle.events import ColumnSpec
from tests.oracle.model import SourceTable
from tests.spark.test_keyless import DEFINITION as VISITS_DEFINITION
from tests.spark.test_keyless import VISITS, A, B
from tests.spark.test_keyless import event as visit
from tests.spark.test_rebuild import rebuild
from tests.support.lake_harness import LakeHarness
from tests.support.lake_schemas import validate_lake
from tests.support.orders_table import DEFINITION, ORDERS, snapshot_read
from tests.support.reread_lake import LakeReread
from tests.support.scenario import ID, Scenario, changelog, rows

NAME = ColumnSpec("name", "varchar")
A_INT = ColumnSpec("a", "int")
TABLES = {"mirror": "shop.orders", "changelog": "shop_changes.orders"}
WAYS = {
    "split": ("split", 10_000),
    "split with Spark": ("split", 0),
    "merge": ("merge", 10_000),
    "copy-on-write": ("copy-on-write", 10_000),
    "equality": ("equality", 10_000),
}
ways = pytest.mark.parametrize("way", WAYS)


class Orders:
    """A table `orders` with the columns id and name, whose log is written and applied step by step."""

    def __init__(self, lake: LakeHarness, way: str = "split", *columns: ColumnSpec) -> None:
        strategy, lake.driver_max_events = WAYS[way]
        self.lake = lake
        self.settings: Config = lake.config(apply={"strategy": strategy}, maintenance={"enabled": False})
        self.scenario = Scenario(columns or (ID, NAME), with_schemas=False)
        self.mirror: Scheduler
        self.causes: list[Exception] = []

    def insert(self, **row: Any) -> None:
        self.scenario.insert(**row)

    def update(self, before: dict[str, Any], **after: Any) -> None:
        self.scenario.change("u", before=before, after=before | after)

    def define(self, ddl: str, *columns: ColumnSpec) -> None:
        self.scenario.define(ddl, columns)

    def sql(self, statement: str) -> None:
        self.mirror.context.spark.sql(statement).collect()

    def apply(self) -> None:
        """Apply what was not applied yet, in a new process."""
        self.lake.write(self.scenario.records)
        self.scenario.records.clear()
        self.mirror = self.lake.mirror(self.settings)
        self.mirror.tables.on_pause(lambda _table, cause: self.causes.append(cause))
        self.mirror.advance(self.mirror.context.log.offsets()[1])

    def applied(self) -> None:
        self.apply()
        found = read_status(self.settings)
        assert (found.paused, found.retrying) == ({}, {})

    def paused(self) -> str:
        """Apply what was not applied yet, which pauses the table; return the reason."""
        self.apply()
        (reason,) = self.mirror.summary().paused.values()
        assert isinstance(self.causes[-1], ForeignColumns | UnsupportedChange)
        assert self.causes[-1].hint
        return reason


@ways
def test_values_of_a_users_column_stay_with_their_rows(lake: LakeHarness, way: str) -> None:
    orders = Orders(lake, way)
    for number in (1, 2, 3, 4):
        orders.insert(id=number, name="new")
    orders.applied()
    orders.sql("ALTER TABLE lake.shop.orders ADD COLUMN note string FIRST")
    orders.sql("UPDATE lake.shop.orders SET note = concat('n', id)")
    orders.sql("ALTER TABLE lake.shop_changes.orders ADD COLUMN note string")
    orders.update({"id": 1, "name": "new"}, name="changed")
    orders.scenario.change("d", before={"id": 2, "name": "new"})
    orders.insert(id=5, name="new")
    orders.applied()
    orders.define("ALTER TABLE orders ADD COLUMN a INT", ID, NAME, A_INT)
    orders.update({"id": 3, "name": "new", "a": None}, a=7)
    orders.applied()
    orders.define("ALTER TABLE orders DROP COLUMN name, MODIFY a BIGINT", ID, ColumnSpec("a", "bigint"))
    orders.update({"id": 3, "a": 7}, a=8)
    orders.applied()
    assert rows(lake) == [
        {"note": "n1", "id": 1, "a": None},
        {"note": "n3", "id": 3, "a": 8},
        {"note": "n4", "id": 4, "a": None},
        {"note": None, "id": 5, "a": None},
    ]
    assert [(r["id"], r["note"]) for r in changelog(lake)][:4] == [(n, None) for n in (1, 2, 3, 4)]
    assert len(changelog(lake)) == 4 + 4 + 2 + 2
    with lake.catalog() as catalog:
        assert validate_lake(catalog, "shop") == 2


CHANGED = {
    "renamed": (["RENAME COLUMN name TO title"], "renamed name to title"),
    "dropped": (["DROP COLUMN name"], "dropped name"),
    "dropped and added": (["DROP COLUMN name", "ADD COLUMN name string"], "dropped name"),
    "exchanged": (
        ["RENAME COLUMN name TO tmp", "RENAME COLUMN a TO name", "RENAME COLUMN tmp TO a"],
        "renamed name to a, a to name",
    ),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("change", CHANGED)
def test_table_pauses_if_its_columns_were_changed(lake: LakeHarness, change: str, table: str) -> None:
    statements, told = CHANGED[change]
    orders = Orders(lake, "split", ID, NAME, ColumnSpec("a", "varchar"))
    orders.insert(id=1, name="new", a="a1")
    orders.applied()
    for statement in statements:
        orders.sql(f"ALTER TABLE lake.{TABLES[table]} {statement}")
    orders.insert(id=2, name="new", a="a2")
    assert orders.paused() == f"others changed the columns of {TABLES[table]}: {told}"
    assert [r["id"] for r in rows(lake)] == [1]
    assert len(changelog(lake)) == 1


def test_table_continues_once_a_column_has_its_name_again(lake: LakeHarness) -> None:
    orders = Orders(lake)
    orders.insert(id=1, name="new")
    orders.applied()
    orders.sql("ALTER TABLE lake.shop.orders RENAME COLUMN name TO title")
    orders.define("ALTER TABLE orders RENAME COLUMN name TO title", ID, ColumnSpec("title", "varchar"))
    orders.insert(id=2, title="new")
    orders.paused()
    hint = orders.causes[-1].hint  # type: ignore[attr-defined]  # an error of the engine
    (statement,) = [part for part in hint.split("; ") if part.startswith("ALTER TABLE")]
    assert statement == "ALTER TABLE `lake`.`shop`.`orders` RENAME COLUMN `title` TO `name`"
    orders.sql(statement)
    orders.applied()
    assert rows(lake) == [{"id": 1, "title": "new"}, {"id": 2, "title": "new"}]


def test_source_column_with_the_name_of_a_users_column_pauses(lake: LakeHarness) -> None:
    orders = Orders(lake)
    orders.insert(id=1, name="new")
    orders.applied()
    orders.sql("ALTER TABLE lake.shop.orders ADD COLUMN Note string")
    orders.sql("UPDATE lake.shop.orders SET Note = 'mine'")
    orders.define("ALTER TABLE orders ADD COLUMN note INT", ID, NAME, ColumnSpec("note", "int"))
    orders.insert(id=2, name="new", note=5)
    assert "note" in orders.paused()
    orders.sql("ALTER TABLE lake.shop.orders RENAME COLUMN Note TO remark")
    orders.applied()
    found = [(r["id"], r["note"], r["remark"]) for r in rows(lake)]
    assert found == [(1, None, "mine"), (2, 5, None)]


@ways
@pytest.mark.long
def test_widened_types_stay_and_values_are_exact(lake: LakeHarness, way: str) -> None:
    orders = Orders(lake, way, ColumnSpec("id", "int", False), A_INT)
    for number in (1, 2, 3):
        orders.insert(id=number, a=number)
    orders.applied()
    for table in TABLES.values():
        orders.sql(f"ALTER TABLE lake.{table} ALTER COLUMN id TYPE bigint")
        orders.sql(f"ALTER TABLE lake.{table} ALTER COLUMN a TYPE bigint")
    orders.update({"id": 1, "a": 1}, a=10)
    orders.scenario.change("d", before={"id": 2, "a": 2})
    orders.applied()
    orders.define("ALTER TABLE orders ADD COLUMN name VARCHAR(9)", *orders.scenario.columns, NAME)
    orders.update({"id": 3, "a": 3, "name": None}, a=30)
    orders.applied()
    assert rows(lake) == [{"id": 1, "a": 10, "name": None}, {"id": 3, "a": 30, "name": None}]
    assert len(changelog(lake)) == 3 + 3 + 2
    with lake.catalog() as catalog:
        types = [f.field_type for f in catalog.load_table(("shop", "orders")).schema().fields]
    assert types[:2] == [LongType(), LongType()]


@pytest.mark.parametrize("kind", ["map<string, string>", "struct<a: int>"])
@pytest.mark.parametrize("table", TABLES)
def test_column_of_a_type_that_is_not_written_pauses(lake: LakeHarness, table: str, kind: str) -> None:
    orders = Orders(lake)
    orders.insert(id=1, name="new")
    orders.applied()
    orders.sql(f"ALTER TABLE lake.{TABLES[table]} ADD COLUMN extra {kind}")
    orders.insert(id=2, name="new")
    assert "extra" in orders.paused()
    orders.sql(f"ALTER TABLE lake.{TABLES[table]} DROP COLUMN extra")
    orders.applied()
    assert [r["id"] for r in rows(lake)] == [1, 2]


@pytest.mark.parametrize("column", ["extra", "name"])
@pytest.mark.long
def test_required_column_pauses(lake: LakeHarness, column: str) -> None:
    orders = Orders(lake)
    orders.insert(id=1, name="new")
    orders.applied()
    table = orders.mirror.context.lake.load("shop", "orders")
    assert table is not None
    update = table.java.updateSchema().allowIncompatibleChanges()
    if column == "extra":
        update.addRequiredColumn("extra", table.classes.types.fromPrimitiveString("string"))
    else:
        update.requireColumn("name")
    update.commit()
    orders.insert(id=2, name=None)
    assert f"required {column}" in orders.paused()


@pytest.mark.long
def test_comments_identifier_fields_and_nullability_are_not_undone(lake: LakeHarness) -> None:
    orders = Orders(lake, "split", ID, NAME, A_INT)
    orders.insert(id=1, name="new", a=1)
    orders.applied()
    orders.sql("ALTER TABLE lake.shop.orders WRITE ORDERED BY id")
    orders.sql("ALTER TABLE lake.shop.orders ALTER COLUMN a COMMENT 'mine'")
    orders.sql("ALTER TABLE lake.shop.orders DROP IDENTIFIER FIELDS id")
    orders.sql("ALTER TABLE lake.shop.orders ALTER COLUMN id DROP NOT NULL")
    orders.define("ALTER TABLE orders DROP COLUMN name, MODIFY a BIGINT", ID, ColumnSpec("a", "bigint"))
    orders.update({"id": 1, "a": 1}, a=2)
    orders.insert(id=2, a=3)
    orders.applied()
    assert rows(lake) == [{"id": 1, "a": 2}, {"id": 2, "a": 3}]
    with lake.catalog() as catalog:
        table = catalog.load_table(("shop", "orders"))
    assert table.schema().identifier_field_ids == []
    assert not table.schema().find_field("id").required
    assert table.schema().find_field("a").doc == "mine"
    assert [field.source_id for field in table.sort_order().fields] == [1]


@pytest.mark.long
def test_table_that_is_sorted_by_a_dropped_column_pauses(lake: LakeHarness) -> None:
    orders = Orders(lake)
    orders.insert(id=1, name="new")
    orders.applied()
    for table in TABLES.values():
        orders.sql(f"ALTER TABLE lake.{table} WRITE ORDERED BY name")
    orders.define("ALTER TABLE orders DROP COLUMN name", ID)
    orders.insert(id=2)
    assert "sorted by column name" in orders.paused()
    orders.sql("ALTER TABLE lake.shop.orders WRITE UNORDERED")
    orders.applied()
    assert rows(lake) == [{"id": 1}, {"id": 2}]
    assert [(r["id"], r["name"]) for r in changelog(lake)] == [(1, "new"), (2, None)]


@pytest.mark.long
def test_rows_of_a_table_without_a_key_keep_their_values(lake: LakeHarness) -> None:
    """A deleted row is one of several equal ones, and a user may have written other values to each."""
    lake.write([VISITS_DEFINITION, visit("c", 10, after=A), visit("c", 20, after=B)])
    mirror = lake.catch_up()
    mirror.context.spark.sql("ALTER TABLE lake.shop.visits ADD COLUMN note string").collect()
    mirror.context.spark.sql("UPDATE lake.shop.visits SET note = page").collect()
    lake.write([visit("c", 30, after=A)])
    assert lake.catch_up().summary().paused == {}
    lake.write([visit("u", 40, A, B)])
    (reason,) = lake.catch_up().summary().paused.values()
    assert "column note" in reason
    assert Counter(r["note"] for r in lake.rows("visits")) == {"a": 1, "b": 1, None: 1}
    mirror.context.spark.sql("ALTER TABLE lake.shop.visits DROP COLUMN note").collect()
    again = lake.mirror()
    again.advance({VISITS: {0: 4}})
    assert again.summary().paused == {}
    assert Counter(r["page"] for r in lake.rows("visits")) == {"a": 1, "b": 2}


@pytest.mark.parametrize("has_changelog", [True, False])
def test_repeated_snapshot_does_not_remove_values(lake: LakeHarness, has_changelog: bool) -> None:
    config = lake.config(apply={"changelog": has_changelog})
    lake.write([DEFINITION, snapshot_read(1, 100, "first_in_data_collection"), snapshot_read(2, 100, "last")])
    mirror = lake.catch_up(config)
    mirror.context.spark.sql("ALTER TABLE lake.shop.orders ADD COLUMN note string").collect()
    mirror.context.spark.sql("UPDATE lake.shop.orders SET note = 'mine'").collect()
    lake.write(
        [
            snapshot_read(1, 200, "first_in_data_collection", name="anew"),
            snapshot_read(3, 200, "last_in_data_collection", name="anew"),
        ]
    )
    (reason,) = lake.catch_up(config).summary().paused.values()
    assert "column note" in reason
    assert [r["note"] for r in lake.rows("orders")] == ["mine", "mine"]


def test_rebuild_refuses_to_remove_values(lake: LakeHarness) -> None:
    orders = Orders(lake)
    orders.insert(id=1, name="new")
    orders.applied()
    for table in TABLES.values():
        orders.sql(f"ALTER TABLE lake.{table} ADD COLUMN note string")
    orders.sql("UPDATE lake.shop.orders SET note = 'mine'")
    with pytest.raises(ForeignColumns, match="column note"):
        rebuild(lake, orders.mirror)
    assert rows(lake) == [{"id": 1, "name": "new", "note": "mine"}]
    rebuild(lake, orders.mirror, to="then")
    assert lake.rows("orders", "then") == [{"id": 1, "name": "new"}]
    orders.sql("ALTER TABLE lake.shop.orders DROP COLUMN note")
    (report,) = rebuild(lake, orders.mirror)
    assert report.rows == 1
    orders.sql("ALTER TABLE lake.shop_changes.orders RENAME COLUMN name TO title")
    with pytest.raises(ForeignColumns, match="renamed name to title"):
        rebuild(lake, orders.mirror)


@pytest.mark.parametrize("action", ["users column", "dropped column"])
def test_reread_keeps_values_and_restores_a_dropped_column(lake: LakeHarness, action: str) -> None:
    lake.write([DEFINITION, snapshot_read(1, 100), snapshot_read(2, 100)])
    mirror = lake.catch_up()
    statements = {
        "users column": ["ADD COLUMN note string"],
        "dropped column": ["ADD COLUMN note string", "DROP COLUMN name"],
    }[action]
    for statement in statements:
        mirror.context.spark.sql(f"ALTER TABLE lake.shop.orders {statement}").collect()
    mirror.context.spark.sql("UPDATE lake.shop.orders SET note = concat('n', id)").collect()
    values = {(n,): {"id": n, "name": "healed"} for n in (1, 3)}
    source = SourceTable("orders", ("id",), [ID, NAME], values)
    request = new_request(TableId("shop", "orders"), "heal")
    began = ("mysql-bin.000001", 100, 1_700_000_000_100)
    reread = LakeReread(lake.mirror(), source, request, began)
    reread.read([source])
    reread.complete()
    assert reread.publish() == 3
    found = sorted(lake.rows("orders"), key=lambda r: r["id"])
    assert [(r["id"], r["name"], r["note"]) for r in found] == [(1, "healed", "n1"), (3, "healed", None)]
    following = lake.mirror()
    following.advance({ORDERS: {0: 2}})
    assert following.summary().paused == {}
