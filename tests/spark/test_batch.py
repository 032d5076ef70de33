"""Batches on a real lake: partitions, write strategies, unusual names, fills, counts."""

import json
from typing import Any

import pytest

from replicator.model.commit_marker import MARKER_KEY
from replicator.model.table import lake_names
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    schema_change_event,
)
from tests.oracle.model import Record, Source
from tests.support.config import STRATEGIES
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS, DEFINITION, ORDERS, assert_equal, created, event, half


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write", "equality"])
@pytest.mark.parametrize("partition", [("bucket(3, id)", "truncate(2, `a name`)"), ("days(seen)",)])
@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_partitioned_mirror_equals_the_source(
    lake: LakeHarness, strategy: str, partition: tuple[str, ...], driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    source = Source(11, truncates=False)
    source.start(["bigint"], rows=15)
    source.run(40)
    lake.write(source.delivered(1))
    (table,) = source.tables
    config = lake.config(
        table=[{"name": f"shop.{table.name}", "partition": list(partition), "strategy": strategy}]
    )
    mirror = lake.mirror(config)
    _, ends = mirror.context.log.offsets()
    mirror.advance(half(ends))
    mirror.advance(ends)
    assert_equal(lake, source.tables)
    with lake.catalog() as catalog:
        found = catalog.load_table(("shop", table.name))
        assert len(found.spec().fields) == len(partition)
        summary = found.metadata.snapshots[-1].summary
        assert summary is not None
        deletes = int(summary.additional_properties["total-delete-files"])
    assert (deletes > 0) is (strategy != "copy-on-write")


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write", "equality"])
def test_columns_with_reserved_or_unusual_names_are_mirrored(lake: LakeHarness, strategy: str) -> None:
    """Names reserved by Iceberg, used by the engine, or hard to quote."""
    names = [
        *("_file", "_pos", "_spec_id", "_partition", "_deleted", "file_path", "pos", "_change"),
        *("offset", "partition", "op", "bad", "before", "after", "place", "log_key", "k0", "row"),
        *("a.b", "a`b", 'a"b', "a b", "größe"),
    ]
    columns = [ColumnSpec("k1", "bigint", False), *(ColumnSpec(n, "int") for n in names)]
    rows = [{"k1": i} | {n: i * 100 + j for j, n in enumerate(names)} for i in range(4)]
    changed = rows[1] | dict.fromkeys(names, 7)
    events: list[tuple[str, dict[str, Any]]] = [
        *(("c", {"after": row}) for row in rows),
        ("u", {"before": rows[1], "after": changed}),
        ("d", {"before": rows[2]}),
    ]
    lake.write(
        [Record("shop", 0, None, schema_change_event(Place(1, 4), "orders", columns, ["k1"], kind="CREATE"))]
    )
    lake.write(
        [
            Record(ORDERS, 0, None, change_event(op, Place(1, 10 + i), "orders", **images))
            for i, (op, images) in enumerate(events)
        ]
    )
    mirror = lake.mirror(lake.config(apply={"strategy": strategy}))
    mirror.advance({ORDERS: {0: 4}})
    mirror.advance({ORDERS: {0: 6}})
    assert mirror.summary().paused == {}
    in_lake = lake_names(rows[0])
    wanted = [{in_lake[name]: value for name, value in row.items()} for row in (rows[0], changed, rows[3])]
    assert in_lake["_file"] == "_file_"
    assert sorted(lake.rows("orders"), key=lambda r: r["k1"]) == wanted
    assert len(lake.rows("orders", "shop_changes")) == 7


def test_batch_without_net_changes_commits_only_its_marker(lake: LakeHarness) -> None:
    gone = event("d", 300, before={"id": 1, "name": "new"})
    lake.write([DEFINITION, created(1), gone, Record(ORDERS, 0, gone.key, None), created(1), gone])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 2}})
    with lake.catalog() as catalog:
        before = catalog.load_table(("shop", "orders"))
    mirror.advance({ORDERS: {0: 5}})
    with lake.catalog() as catalog:
        after = catalog.load_table(("shop", "orders"))
    assert after.metadata.current_snapshot_id == before.metadata.current_snapshot_id
    progress = json.loads(after.properties[MARKER_KEY])["topics"][ORDERS]["0"]
    assert progress["next"] == 5
    assert lake.rows("orders") == []


@pytest.mark.parametrize(
    ("strategy", "format_version"), [pair for pair in STRATEGIES if pair[0] != "copy-on-write"]
)
@pytest.mark.parametrize("crash", [0, 4, 5])
def test_added_columns_are_filled_with_or_without_a_crash(
    lake: LakeHarness, strategy: str, format_version: int, crash: int
) -> None:
    lake.format_version = format_version
    newer = [*COLUMNS, ColumnSpec("state", "varchar", False, "it's new"), ColumnSpec("note", "int")]
    altered = schema_change_event(Place(1, 500), "orders", newer, ["id"], kind="ALTER")
    lake.write([DEFINITION, created(1), created(2)])
    lake.catch_up(lake.config(apply={"strategy": strategy}))
    row = {"id": 2, "name": "new", "state": "it's new", "note": None}
    lake.write([Record("shop", 0, None, altered), event("u", 600, before=row, after=row | {"note": 5})])
    if crash:
        with pytest.raises(PowerCut), power_cut(crash):
            lake.catch_up(lake.config(apply={"strategy": strategy}))
    lake.catch_up(lake.config(apply={"strategy": strategy}))
    assert sorted(lake.rows("orders"), key=lambda r: r["id"]) == [
        {"id": 1, "name": "new", "state": "it's new", "note": None},
        row | {"note": 5},
    ]
    assert len(lake.rows("orders", "shop_changes")) == 4


def test_batch_report_counts_the_events_of_all_chunks(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *map(created, range(9))])
    mirror = lake.mirror(lake.config(apply={"max_events": 4}))
    report = mirror.advance({ORDERS: {0: 9}})
    assert report is not None
    assert (report.events, dict(report.rows)) == (9, {"INSERT": 9})
