"""`drop` on real lakes, written by PyIceberg or by an earlier version of the engine; no Java is started."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.errors import CommitConflict, UsageError
from replicator.locks import FileLock
from replicator.operations.drop import drop, plan_drop
from replicator.operations.status.read import read_status
from tests.support.config import minimal_config
from tests.support.dropped_lake import RECORDS, files, folder_of, names, ops, run, write
from tests.support.golden import FOLDER
from tests.support.packed_lake import unpack


def test_drop_unregisters_mirror_and_changelog_and_leaves_the_files(config: Config, lake: SqlCatalog) -> None:
    report = run(config, purge=False)
    folders = tuple(f"file://{folder_of(config, space, 'orders')}" for space in ("shop_changes", "shop"))
    assert report.dropped == ("shop_changes.orders", "shop.orders")
    assert (report.remaining_folders, report.purged, report.deleted_files) == (folders, (), 0)
    assert names(lake) == {"shop.log", "shop_changes.log"}
    assert len(files(folder_of(config, "shop", "orders"))) == 9


def test_drop_with_purge_deletes_the_files_of_these_tables_only(config: Config, lake: SqlCatalog) -> None:
    shown: list[tuple[str, int, int]] = []
    report = drop(config, plan_drop(config, "shop.orders", purge=True), lambda *step: shown.append(step))
    assert (report.deleted_files, report.remaining_folders) == (18, ())
    assert not folder_of(config, "shop", "orders").exists()
    assert not folder_of(config, "shop_changes", "orders").exists()
    assert len(lake.load_table(("shop", "log")).scan().to_arrow()) == 4
    assert shown[-1] == ("deleting shop.orders", 18, 18)
    assert [done for _, done, _ in shown] == sorted(done for _, done, _ in shown)
    assert ops(lake) == {}


def test_drop_reports_what_programs_need(config: Config, lake: SqlCatalog) -> None:
    assert json.loads(json.dumps(run(config).to_json())) == {
        "version": 1,
        "table": "shop.orders",
        "dropped": ["shop_changes.orders", "shop.orders"],
        "purged": [f"file://{folder_of(config, space, 'orders')}" for space in ("shop_changes", "shop")],
        "deleted_files": 18,
        "remaining_folders": [],
        "quarantined": 0,
        "selected": True,
    }


@pytest.mark.parametrize("source", ["shop.none", "crm.orders", "orders.shop"])
def test_plan_is_empty_when_the_lake_has_no_such_table(config: Config, lake: SqlCatalog, source: str) -> None:
    assert not plan_drop(config, source, purge=True)


@pytest.mark.parametrize("source", ["orders", "shop.", ".orders", ""])
def test_plan_refuses_what_is_not_a_table(config: Config, source: str) -> None:
    with pytest.raises(UsageError, match="is not a table"):
        plan_drop(config, source, purge=False)


def test_drop_finds_names_with_dots(config: Config, lake: SqlCatalog) -> None:
    write(lake, "shop", "c", source="a.b.c")
    write(lake, "shop_changes", "b.c", source="a.b.c")
    assert [table.name for table in plan_drop(config, "a.b.c", purge=False).tables] == [
        "shop_changes.b.c",
        "shop.c",
    ]
    assert run(config, "a.b.c").deleted_files == 18


def test_drop_refuses_the_tables_of_another_mirror(config: Config, lake: SqlCatalog) -> None:
    write(lake, "shop", "crm", mirror="crm")
    with pytest.raises(UsageError, match=r"shop\.crm belongs to the mirror crm"):
        plan_drop(config, "shop.crm", purge=False)


def test_drop_refuses_while_the_mirror_runs(config: Config, lake: SqlCatalog) -> None:
    plan = plan_drop(config, "shop.orders", purge=True)
    with FileLock(config.mirror.state_dir / "lock", wait=False):
        with pytest.raises(UsageError, match="already running"):
            plan_drop(config, "shop.orders", purge=True)
        with pytest.raises(UsageError, match="already running"):
            drop(config, plan)
    assert "shop.orders" in names(lake)


def test_drop_refuses_when_the_table_was_written_since_the_plan(config: Config, lake: SqlCatalog) -> None:
    plan = plan_drop(config, "shop.orders", purge=True)
    lake.load_table(("shop", "orders")).append(pa.table({"id": [3]}))
    with pytest.raises(CommitConflict, match="changed meanwhile"):
        drop(config, plan)
    assert len(lake.load_table(("shop", "orders")).scan().to_arrow()) == 5


def test_drop_removes_the_notes_about_the_table_only(config: Config, lake: SqlCatalog) -> None:
    notes = {key + name: "{}" for key in RECORDS for name in ("shop.orders", "shop.log")}
    lake.update_namespace_properties("shop_ops", updates=notes)
    run(config, purge=False)
    assert ops(lake).keys() == {key + "shop.log" for key in RECORDS}


def test_drop_works_on_a_lake_that_java_wrote(tmp_path: Path) -> None:
    unpack(FOLDER / "lakes" / "0.1.0.tar.xz", tmp_path)
    config = minimal_config(tmp_path)
    table = next(t for t in read_status(config).tables if t.changes is not None)
    report = run(config, table.source)
    assert report.dropped == (f"shop_changes.{table.table.removeprefix('shop.')}", table.table)
    assert (report.deleted_files or 0) > 10
    left = read_status(config)
    assert table.table not in {found.table for found in left.tables}
    assert all(found.rows is not None for found in left.tables)
    assert table.source not in left.paused
