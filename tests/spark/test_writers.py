"""Other writers of the same tables: a second mirror is fenced, and maintenance is allowed."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from replicator.lake.files.data_files import matching_positions
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

    def search(tables: Any, table: Any, snapshot_id: int, names: Any, keys: Any) -> Any:
        searched.append(keys.count())
        return matching_positions(tables, table, snapshot_id, names, keys)

    updates = [
        event("u", pos, before={"id": 1, "name": "new"}, after={"id": 1, "name": "2"}) for pos in (150, 170)
    ]
    lake.write([DEFINITION, created(1), created(2), updates[0], created(60), updates[1]])
    never = ReadCost(constant=float("inf"))
    lake.adapt = lambda context: replace(context, row_locations=RowLocationCache(cost=never))
    lake.mirror().advance({ORDERS: {0: 2}})
    mirror = lake.mirror()
    with patch("replicator.lake.rows.search.matching_positions", search):
        for end in (3, 4, 5):
            mirror.advance({ORDERS: {0: end}})
    assert searched == [1, 1], "key 1 in the base, the new key 60, and then key 1 is known"
    assert sorted(r["id"] for r in lake.rows("orders")) == [1, 2, 60]


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
