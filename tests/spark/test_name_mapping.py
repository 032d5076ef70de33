"""Tables whose data files have no field ids, so that Iceberg finds columns by a name mapping, as in migrated tables."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replicator.runner.scheduler import Scheduler
from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import changes, ends, images, state_after, table, write
from tests.support.orders_table import ORDERS
from tests.support.scenario import ID, Scenario, rows

MAPPING = "schema.name-mapping.default"
STRATEGIES = {
    "split": 10_000,
    "split with Spark": 0,
    "merge": 10_000,
    "copy-on-write": 10_000,
    "equality": 10_000,
}


def migrate(lake: LakeHarness, mirror: Scheduler, name: str = "orders", namespace: str = "shop") -> None:
    """Replace the data files of a table by files with the same rows that have no field ids."""
    sql = mirror.context.spark.sql
    found = sql(f"SELECT * FROM lake.{namespace}.{name}").toArrow()
    plain = pa.table(found.columns, names=found.column_names)
    folder = lake.folder / f"migrated-{namespace}-{name}"
    folder.mkdir()
    pq.write_table(plain, folder / "part-0.parquet", store_schema=False)
    assert b"PARQUET:field_id" not in str(pq.read_schema(folder / "part-0.parquet").metadata).encode()
    sql(f"DELETE FROM lake.{namespace}.{name}").collect()
    source = f"`parquet`.`{folder}`"
    sql(f"CALL lake.system.add_files(table => '{namespace}.{name}', source_table => '{source}')").collect()
    with lake.catalog() as catalog:
        assert MAPPING in catalog.load_table((namespace, name)).properties


@pytest.mark.parametrize("new_process", [True, False], ids=["new process", "same process"])
@pytest.mark.parametrize("way", STRATEGIES)
def test_migrated_table_stays_exact(lake: LakeHarness, way: str, new_process: bool) -> None:
    batches = changes(21, batches=8)
    lake.driver_max_events = STRATEGIES[way]
    config = lake.config(apply={"strategy": way.split(maxsplit=1)[0]}, maintenance={"enabled": False})
    write(lake, batches)
    mirror = lake.mirror(config)
    for number, end in enumerate(ends(batches)):
        mirror.advance({ORDERS: {0: end}})
        assert mirror.summary().paused == {}
        if number == 3:
            migrate(lake, mirror)
            migrate(lake, mirror, namespace="shop_changes")
            mirror = lake.mirror(config) if new_process else mirror
    found = lake.rows("orders")
    assert len(found) == len({row["id"] for row in found})
    assert {row["id"]: row["name"] for row in found} == state_after(batches)
    logged = [(r["_change"]["offset"], r["_change"]["kind"]) for r in lake.rows("orders", "shop_changes")]
    assert len(logged) == len(set(logged)) == sum(2 if i["op"] == "u" else 1 for i in images(batches))


def migrated(lake: LakeHarness, *columns: ColumnSpec) -> Scenario:
    """Return the log of a table of three rows, all of whose lake tables are migrated."""
    scenario = Scenario([ID, *columns], with_schemas=False)
    for number in (1, 2, 3):
        scenario.insert(id=number, **{c.name: number for c in columns})
    lake.write(scenario.records)
    mirror = lake.catch_up()
    migrate(lake, mirror)
    migrate(lake, mirror, namespace="shop_changes")
    scenario.records.clear()
    return scenario


NEW: dict[str, tuple[list[str], list[list[ColumnSpec]], list[tuple[int, int, int | None]]]] = {
    "added again": (
        ["ALTER TABLE orders DROP COLUMN b", "ALTER TABLE orders ADD COLUMN b INT"],
        [[ID, ColumnSpec("a", "int")], [ID, ColumnSpec("a", "int"), ColumnSpec("b", "int")]],
        [(1, 1, None), (2, 2, None), (3, 3, None)],
    ),
    "exchanged": (
        ["ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a"],
        [[ID, ColumnSpec("b", "int"), ColumnSpec("a", "int")]],
        [(1, 1, 1), (2, 2, 2), (3, 3, 3)],
    ),
}


@pytest.mark.parametrize("change", NEW)
@pytest.mark.long
def test_migrated_table_pauses_if_a_name_gets_another_meaning(lake: LakeHarness, change: str) -> None:
    """Iceberg would read the values of the earlier column from files without field ids."""
    statements, columns, expected = NEW[change]
    scenario = migrated(lake, ColumnSpec("a", "int"), ColumnSpec("b", "int"))
    for statement, defined in zip(statements, columns, strict=True):
        scenario.define(statement, defined)
    lake.write(scenario.records)
    # A table without new events follows when it has some.
    scenario.records.clear()
    scenario.insert(id=4, a=4, b=4)
    lake.write(scenario.records)
    mirror = lake.catch_up()
    (reason,) = mirror.summary().paused.values()
    assert "data files without field ids" in reason
    rewrite = "CALL lake.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))"
    for name in ("shop.orders", "shop_changes.orders"):
        mirror.context.spark.sql(rewrite.format(name)).collect()
        mirror.context.spark.sql(f"ALTER TABLE lake.{name} UNSET TBLPROPERTIES ('{MAPPING}')").collect()
    assert lake.catch_up().summary().paused == {}
    assert [(r["id"], r["a"], r["b"]) for r in rows(lake)] == [*expected, (4, 4, 4)]
    assert MAPPING not in table(lake).properties
