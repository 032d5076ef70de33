"""What `status` and `check` say of the maintenance of lake tables. PyIceberg writes the lake instead of Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.maintenance import table_reader
from replicator.maintenance.history import MAINTAINED_KEY, StepRun, runs_to_json
from replicator.maintenance.plan import Step
from replicator.operations.check.lake import check_lake
from replicator.operations.status.mirror_status import TableMaintenance
from replicator.operations.status.read import read_status
from tests.support.marked_lake import marker, write


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
