"""Other writers of the same tables: a second mirror is fenced, and maintenance is allowed."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import functions as F

from replicator.errors import CommitConflict
from replicator.lake.catalog.exact_commit import set_properties
from replicator.lake.files.data_files import cast_to_table, matching_positions, stage_data
from replicator.lake.files.spark_tables import rows_of_snapshot
from replicator.lake.rows.locations import ReadCost, RowLocationCache
from replicator.model.commit_marker import COMMIT_KEY, MARKER_KEY, CommitMarker
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, created, event


def test_rows_are_located_again_when_a_compaction_moves_them(lake: LakeHarness) -> None:
    """A process keeps the row locations in memory; a compaction in between moves the rows."""
    updates = [
        event("u", 200 + n, before={"id": n, "name": "new"}, after={"id": n, "name": "2"}) for n in (1, 2)
    ]
    gone = [event("d", 300 + n, before={"id": n, "name": "2"}) for n in (1, 2)]
    again = event("c", 400, after={"id": 1, "name": "again"})
    lake.write([DEFINITION, created(1), created(2), *updates, *gone, again])
    mirror = lake.mirror()
    for end in range(1, 8):
        mirror.advance({ORDERS: {0: end}})
        assert len({r["id"] for r in lake.rows("orders")}) == len(lake.rows("orders"))
        if end in (2, 5):
            mirror.context.spark.sql(
                "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
            ).collect()
    assert lake.rows("orders") == [{"id": 1, "name": "again"}]


def test_small_batches_search_only_keys_without_known_row_locations(lake: LakeHarness) -> None:
    """The process knows the locations of rows that it wrote, so it searches older files for other keys only."""
    searched: list[int] = []

    def search(rows: Any, names: Any, keys: Any) -> Any:
        searched.append(keys.count())
        return matching_positions(rows, names, keys)

    updates = [
        event("u", pos, before={"id": 1, "name": "new"}, after={"id": 1, "name": "2"}) for pos in (150, 170)
    ]
    lake.write([DEFINITION, created(1), created(2), updates[0], created(60), updates[1]])
    never = ReadCost(constant=float("inf"), few=-1)
    lake.adapt = lambda context: replace(context, row_locations=RowLocationCache(cost=never))
    lake.mirror().advance({ORDERS: {0: 2}})
    mirror = lake.mirror()
    with patch("replicator.lake.rows.search.matching_positions", search):
        for end in (3, 4, 5):
            mirror.advance({ORDERS: {0: end}})
    assert searched == [1, 1], "key 1 in the base, the new key 60, and then key 1 is known"
    assert sorted(r["id"] for r in lake.rows("orders")) == [1, 2, 60]


@pytest.mark.parametrize("version", [2, 3])
def test_snapshot_is_read_with_the_current_columns_whatever_is_committed(
    lake: LakeHarness, version: int
) -> None:
    """Spark's time travel has the columns of that time; a table of a catalog is read again when the query runs."""
    lake.format_version = version
    row = {"id": 1, "name": "new"}
    lake.write([DEFINITION, created(1), event("d", 150, before=row), event("c", 160, after={**row, "id": 2})])
    mirror = lake.mirror(lake.config(maintenance={"enabled": False}))
    tables, spark, frames = mirror.context.lake, mirror.context.spark, []
    for end in (1, 2, 3):
        mirror.advance({ORDERS: {0: end}})
    spark.sql("ALTER TABLE lake.shop.orders RENAME COLUMN name TO title")
    spark.sql("ALTER TABLE lake.shop.orders ADD COLUMN note string FIRST")
    table = tables.load("shop", "orders")
    assert table is not None
    for snapshot in sorted(table.java.snapshots(), key=lambda s: int(s.sequenceNumber())):
        rows = rows_of_snapshot(tables, table, int(snapshot.snapshotId()))
        assert rows.columns[:3] == ["note", "id", "title"]
        frames.append(rows.where("title = 'new'").select("id", "title", "_pos", F.col("_file").isNotNull()))
    spark.sql("DELETE FROM lake.shop.orders")
    spark.sql("ALTER TABLE lake.shop.orders DROP COLUMN title")
    table.refresh()
    found = [[tuple(row) for row in rows.collect()] for rows in frames]
    assert found == [[(1, "new", 0, True)], [], [(2, "new", 0, True)]]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("version", [2, 3])
def test_staged_files_are_in_no_snapshot(lake: LakeHarness, version: int, partitioned: bool) -> None:
    lake.format_version = version
    lake.write([DEFINITION, created(1)])
    rules = [{"name": "shop.orders", "partition": ["bucket(3, id)"]}] if partitioned else []
    mirror = lake.catch_up(lake.config(table=rules))
    tables = mirror.context.lake
    table = tables.load("shop", "orders")
    assert table is not None
    rows = mirror.context.spark.createDataFrame([(i, "staged") for i in range(10)], "id long, name string")
    files = stage_data(tables, table, cast_to_table(rows, table.columns()))
    assert sum(file.recordCount() for file in files) == 10
    now = tables.load("shop", "orders")
    assert now is not None
    assert now.snapshot_id == table.snapshot_id
    assert now.java.operations().current().metadataFileLocation() == (
        table.java.operations().current().metadataFileLocation()
    )
    assert [row["id"] for row in lake.rows("orders")] == [1]


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write", "equality"])
def test_commit_writes_its_number_to_the_iceberg_snapshot(lake: LakeHarness, strategy: str) -> None:
    """Tools that read a table's history read Iceberg snapshots; properties have only the newest marker."""
    lake.write([DEFINITION, created(1), created(2), event("d", 150, before={"id": 1, "name": "new"})])
    mirror = lake.mirror(lake.config(apply={"strategy": strategy}))
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 3}})
    with lake.catalog() as catalog:
        table = catalog.load_table(("shop", "orders"))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert MARKER_KEY not in snapshot.summary.additional_properties
        assert snapshot.summary[COMMIT_KEY] == str(
            CommitMarker.from_json(table.properties[MARKER_KEY]).sequence
        )
    assert [r["id"] for r in lake.rows("orders")] == [2]


def test_facts_of_a_table_are_those_after_its_commit_or_refresh(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1), created(2)])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}})
    tables = mirror.context.lake
    table, other = tables.load("shop", "orders"), tables.load("shop", "orders")
    assert table is not None
    assert other is not None
    before = table.snapshot_id, table.total_rows, table.property("a"), table.columns()
    set_properties(table, {"a": "b"})
    assert table.property("a") == "b"
    mirror.context.ledger.forget_all()
    mirror.advance({ORDERS: {0: 2}})
    mirror.context.spark.sql("ALTER TABLE lake.shop.orders ADD COLUMN note string")
    assert (other.snapshot_id, other.total_rows, other.property("a"), other.columns()) == before
    with pytest.raises(CommitConflict):
        set_properties(other, {"a": "c"})
    for found in (table, other):
        found.refresh()
        assert found.snapshot_id != before[0]
        assert (found.total_rows, found.property("a"), list(found.columns())) == (
            2,
            "b",
            ["id", "name", "note"],
        )
