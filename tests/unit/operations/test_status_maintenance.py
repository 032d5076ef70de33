"""What `status` and `check` say of the maintenance of lake tables. PyIceberg writes the lake instead of Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.lake.reading.reader import open_catalog
from replicator.maintenance import table_reader
from replicator.maintenance.history import MAINTAINED_KEY, StepRun, runs_to_json
from replicator.maintenance.plan import Step
from replicator.maintenance.table_reader import mirror_tables, read_conditions, read_namespaces
from replicator.operations.check.lake import _maintenance, check_lake
from replicator.operations.status.mirror_status import TableMaintenance
from replicator.operations.status.read import read_status
from tests.support.marked_lake import marker, write


def test_check_lake_warns_of_a_table_when_it_has_many_small_files(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_changes", "orders"), {"id": [1]}, marker(10))
    for _ in range(20):
        lake.load_table(("shop", "orders")).append(pa.table({"id": [2]}))
    settings = config.maintenance.model_copy(update={"merge_files": 2})
    found = [r for r in check_lake(config.model_copy(update={"maintenance": settings})) if r.status != "ok"]
    assert [(r.name, r.status) for r in found] == [("lake: files", "warn")]
    assert found[0].found.endswith(": shop.orders")
    assert found[0].next_step == "run: replicator maintain -c FILE"
    assert all(result.status == "ok" for result in check_lake(config))


def with_maintenance(config: Config, **settings: Any) -> Config:
    changed = config.maintenance.model_copy(update=settings)
    return config.model_copy(update={"maintenance": changed})


def append(lake: SqlCatalog, name: tuple[str, str], count: int = 1, **summary: str) -> None:
    properties = {key.replace("_", "."): value for key, value in summary.items()}
    with lake.load_table(name).transaction() as commits:
        for _ in range(count):
            commits.append(pa.table({"id": [2]}), snapshot_properties=properties)


def maintenance(config: Config) -> dict[str, TableMaintenance]:
    return {found.table: found for found in read_status(config).maintenance}


def test_status_has_the_maintenance_of_mirrors_changelogs_and_quarantine(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_changes", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_ops", "quarantine"), {"table": ["shop.orders"]}, None)
    write(lake, ("shop", "by_hand"), {"id": [1]}, None)
    append(lake, ("shop", "orders"), 2)
    found = maintenance(with_maintenance(config, merge_files=3))
    assert list(found) == ["shop.orders", "shop_changes.orders", "shop_ops.quarantine"]
    orders, table = found["shop.orders"], lake.load_table(("shop", "orders"))
    assert (orders.data_files, orders.delete_files, orders.snapshots) == (3, 0, 3)
    assert (orders.equality_delete_files, orders.equality_deletes) == (0, 0)
    file = Path(table.metadata_location.removeprefix("file://"))
    assert orders.metadata_bytes == file.stat().st_size
    assert orders.bytes == sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert (orders.maintained_ms, orders.steps) == (None, {})
    assert (orders.due, orders.overdue) == (("merge data files",), ())
    assert found["shop_changes.orders"].due == ()


def test_status_counts_only_the_files_since_the_last_merge(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 3)
    append(lake, ("shop", "orders"), 1, replicator_maintenance="merge data files")
    append(lake, ("shop", "orders"), 2)
    settings = with_maintenance(config, merge_files=3)
    merged = lake.load_table(("shop", "orders")).metadata.snapshots[4]
    found = maintenance(settings)["shop.orders"]
    assert (found.data_files, found.due) == (7, ())
    assert (found.maintained_ms, found.steps) == (
        merged.timestamp_ms,
        {"merge data files": merged.timestamp_ms},
    )
    append(lake, ("shop", "orders"))
    assert maintenance(settings)["shop.orders"].due == ("merge data files",)


def test_status_has_maintenance_whose_snapshots_were_deleted(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    runs = {Step.EXPIRE: StepRun(5_000, 4, 0), Step.MERGE_DATA: StepRun(4_000, 4, 0)}
    with lake.load_table(("shop", "orders")).transaction() as change:
        change.set_properties({MAINTAINED_KEY: runs_to_json(runs)})
    found = maintenance(config)["shop.orders"]
    assert (found.maintained_ms, found.steps) == (
        5_000,
        {"delete snapshots": 5_000, "merge data files": 4_000},
    )


def test_snapshots_with_a_tag_are_not_due_for_deletion(config: Config, lake: SqlCatalog) -> None:
    settings = with_maintenance(config, max_snapshots=1)
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 2)
    assert maintenance(settings)["shop.orders"].overdue == ("delete snapshots",)
    table = lake.load_table(("shop", "orders"))
    for number, snapshot in enumerate(table.metadata.snapshots[:2]):
        table.manage_snapshots().create_tag(snapshot.snapshot_id, f"kept{number}").commit()
    found = maintenance(settings)["shop.orders"]
    assert (found.snapshots, found.due) == (3, ())


def test_snapshots_are_not_due_for_deletion_when_the_table_forbids_it(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 2)
    with lake.load_table(("shop", "orders")).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    assert maintenance(with_maintenance(config, max_snapshots=1))["shop.orders"].due == ()


def warnings(config: Config) -> dict[str, tuple[str, str]]:
    return {r.name: (r.found, r.next_step) for r in check_lake(config) if r.status != "ok"}


def test_check_lake_names_the_tables_and_the_command_for_each_kind_of_due_work(
    config: Config, lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A commit makes a manifest; a hundred commits take many seconds.
    monkeypatch.setattr(table_reader, "MOST_MANIFESTS", 9)
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_changes", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 4)
    append(lake, ("shop_changes", "orders"), 10)
    with lake.load_table(("shop_changes", "orders")).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    settings = with_maintenance(config, enabled=False, merge_files=3, max_snapshots=3)
    command = "run: replicator maintain -c FILE"
    expected = {
        "lake: files": (
            "many small files, which are slow to read: shop.orders, shop_changes.orders",
            command,
        ),
        "lake: snapshots": (
            "older or more snapshots than [maintenance] permits, which occupy storage: shop.orders",
            command,
        ),
        "lake: manifests": (
            "more than 100 manifests, which make each read plan slowly: shop_changes.orders",
            command,
        ),
    }
    assert warnings(settings) == expected


def test_check_lake_warns_of_many_deleted_rows(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    with open_catalog(config.lake) as catalog:
        (condition,) = read_conditions(config, list(mirror_tables(config, read_namespaces(config, catalog))))
    # PyIceberg writes no delete files.
    (result,) = _maintenance(config, [replace(condition, overdue=(Step.FOLD_DELETES,))])
    assert (result.name, result.status) == ("lake: deleted rows", "warn")
    assert result.found.endswith(", which each read must skip: shop.orders")
    assert result.next_step == "run: replicator maintain -c FILE"


def test_check_lake_leaves_to_the_mirror_what_it_does_between_its_batches(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 18)
    assert warnings(with_maintenance(config, merge_files=2)) == {}
    assert list(warnings(with_maintenance(config, merge_files=2, enabled=False))) == ["lake: files"]
    append(lake, ("shop", "orders"))
    assert list(warnings(with_maintenance(config, merge_files=2))) == ["lake: files"]


def test_status_counts_the_snapshots_of_a_mirror(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    lake.load_table(("shop", "orders")).append(pa.table({"id": [2]}))
    assert read_status(config).to_json()["tables"][0]["snapshots"] == 2
