"""`drop` on real lakes, written by PyIceberg or by an earlier version of the engine; no Java is started."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator import failpoints
from replicator.config import CATALOG_NAME, Config
from replicator.errors import CommitConflict, LakeUnavailable, UsageError
from replicator.lake.folders import TableFolders
from replicator.lake.properties import CREATED_KEY, PAUSED_KEY, PURGING_KEY, RETRYING_KEY
from replicator.lake.purge_records import purge_record
from replicator.lake.reader import open_catalog, sqlalchemy_uri
from replicator.locks import FileLock
from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY
from replicator.model.verified import CHECKS_KEY, VERIFIED_KEY
from replicator.operations.check.lake import check_lake
from replicator.operations.check.result import CheckResult
from replicator.operations.drop import DropReport, deletion_problem, drop, plan_drop
from replicator.operations.status.read import read_status
from tests.support.config import minimal_config
from tests.support.golden import FOLDER
from tests.support.lake_schemas import validate_properties
from tests.support.packed_lake import unpack

RECORDS = (PAUSED_KEY, RETRYING_KEY, VERIFIED_KEY, CHECKS_KEY)
PROGRAM = """
import sys
from pathlib import Path
from replicator.config import load
from replicator.operations.drop import drop, plan_drop
config = load(Path(sys.argv[1]))
drop(config, plan_drop(config, "shop.orders", purge=True))
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "lake").mkdir()
    return minimal_config(tmp_path, source={"tables": ["shop.*"], "exclude": ["shop.log"]})


@pytest.fixture
def lake(config: Config) -> Iterator[SqlCatalog]:
    """A lake with the tables of shop.orders and shop.log, open for writing."""
    uri = sqlalchemy_uri(config.lake.uri or "")
    catalog = SqlCatalog(CATALOG_NAME, uri=uri, warehouse=f"file://{config.lake.warehouse}")
    for namespace in ("shop", "shop_changes", "shop_ops"):
        catalog.create_namespace(namespace)
    for name in ("orders", "log"):
        write(catalog, "shop", name)
        write(catalog, "shop_changes", name)
    yield catalog
    catalog.close()


def write(
    lake: SqlCatalog,
    namespace: str,
    name: str,
    *,
    source: str | None = "",
    mirror: str = "shop",
    location: str | None = None,
    **properties: str,
) -> None:
    """Write a table with two commits; `source` is shop.NAME by default, and None means that it is not recorded."""
    progress = {f"p.shop.{name}": {0: PartitionProgress(1)}}
    marker = CommitMarker(mirror, 1, 1, progress, None, None, 1)
    recorded = {} if source is None else {SOURCE_KEY: source or f"shop.{name}"}
    rows = pa.table({"id": [1, 2]})
    table = lake.create_table(
        (namespace, name),
        rows.schema,
        location=location,
        properties={MARKER_KEY: marker.to_json(), **recorded, **properties},
    )
    table.append(rows)
    table.append(rows)


def names(lake: SqlCatalog) -> set[str]:
    return {".".join(name) for space in ("shop", "shop_changes") for name in lake.list_tables(space)}


def ops(lake: SqlCatalog) -> dict[str, str]:
    return {
        k: v for k, v in lake.load_namespace_properties("shop_ops").items() if k.startswith("replicator.")
    }


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def folder_of(config: Config, namespace: str, name: str) -> Path:
    return Path(config.lake.warehouse or "") / namespace / name


def run(config: Config, source: str = "shop.orders", *, purge: bool = True) -> DropReport:
    return drop(config, plan_drop(config, source, purge=purge))


# What is dropped.


def test_drop_unregisters_mirror_and_changelog_and_leaves_the_files(config: Config, lake: SqlCatalog) -> None:
    report = run(config, purge=False)
    folders = tuple(f"file://{folder_of(config, space, 'orders')}" for space in ("shop_changes", "shop"))
    assert report.dropped == ("shop_changes.orders", "shop.orders")
    assert (report.left, report.purged, report.files) == (folders, (), 0)
    assert names(lake) == {"shop.log", "shop_changes.log"}
    assert len(files(folder_of(config, "shop", "orders"))) == 9


def test_drop_with_purge_deletes_the_files_of_these_tables_only(config: Config, lake: SqlCatalog) -> None:
    shown: list[tuple[str, int, int]] = []
    report = drop(config, plan_drop(config, "shop.orders", purge=True), lambda *step: shown.append(step))
    assert (report.files, report.left) == (18, ())
    assert not folder_of(config, "shop", "orders").exists()
    assert not folder_of(config, "shop_changes", "orders").exists()
    assert len(lake.load_table(("shop", "log")).scan().to_arrow()) == 4
    assert shown[-1] == ("deleting shop.orders", 18, 18)
    assert [done for _, done, _ in shown] == sorted(done for _, done, _ in shown)
    assert ops(lake) == {}


def test_drop_reports_what_programs_need(config: Config, lake: SqlCatalog) -> None:
    assert run(config).to_json() == {
        "version": 1,
        "table": "shop.orders",
        "dropped": ["shop_changes.orders", "shop.orders"],
        "purged": [f"file://{folder_of(config, space, 'orders')}" for space in ("shop_changes", "shop")],
        "deleted_files": 18,
        "remaining_folders": [],
        "quarantined": 0,
        "selected": True,
    }


def test_plan_shows_the_totals_of_each_table(config: Config, lake: SqlCatalog) -> None:
    changelog, mirror = plan_drop(config, "shop.orders", purge=False).tables
    assert (changelog.name, mirror.name) == ("shop_changes.orders", "shop.orders")
    assert (mirror.rows, mirror.files, mirror.bytes > 0) == (4, 2, True)


def test_plan_says_whether_the_mirror_would_create_the_table_again(config: Config, lake: SqlCatalog) -> None:
    assert plan_drop(config, "shop.orders", purge=False).selected
    assert not plan_drop(config, "shop.log", purge=False).selected


@pytest.mark.parametrize("source", ["shop.none", "crm.orders", "orders.shop"])
def test_plan_is_empty_when_the_lake_has_no_such_table(config: Config, lake: SqlCatalog, source: str) -> None:
    assert not plan_drop(config, source, purge=True)


def test_plan_is_empty_when_there_is_no_lake(config: Config) -> None:
    assert not plan_drop(config, "shop.orders", purge=True)


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
    assert run(config, "a.b.c").files == 18


def test_drop_finds_older_tables_by_their_topics(config: Config, lake: SqlCatalog) -> None:
    write(lake, "shop", "old", source=None)
    assert run(config, "shop.old").dropped == ("shop.old",)


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


def test_drop_counts_the_quarantined_events_that_stay(config: Config, lake: SqlCatalog) -> None:
    events = pa.table(
        {"table": ["shop.orders", "shop.orders", "shop.log", None], "state": [None, "replayed", None, None]}
    )
    lake.create_table(("shop_ops", "quarantine"), events.schema).append(events)
    assert run(config).quarantined == 1
    assert len(lake.load_table(("shop_ops", "quarantine")).scan().to_arrow()) == 4


def test_drop_works_on_a_lake_that_java_wrote(tmp_path: Path) -> None:
    unpack(FOLDER / "lakes" / "0.1.0.tar.xz", tmp_path)
    config = minimal_config(tmp_path)
    table = next(t for t in read_status(config).tables if t.changes is not None)
    report = run(config, table.source)
    assert report.dropped == (f"shop_changes.{table.table.removeprefix('shop.')}", table.table)
    assert (report.files or 0) > 10
    left = read_status(config)
    assert table.table not in {found.table for found in left.tables}
    assert all(found.rows is not None for found in left.tables)
    assert table.source not in left.paused


# What must not be deleted.


def refused(config: Config, source: str = "shop.orders") -> str:
    """Return why purging is refused. The tables stay, and dropping them without their files is not refused."""
    with pytest.raises(UsageError) as raised:
        plan_drop(config, source, purge=True)
    assert "without --purge" in (raised.value.hint or "")
    assert run(config, source, purge=False).dropped
    return raised.value.message


def test_purge_is_refused_when_another_table_has_the_same_folder(config: Config, lake: SqlCatalog) -> None:
    lake.rename_table(("shop", "orders"), ("shop", "orders_2024"))
    write(lake, "shop", "orders")
    assert "shop.orders_2024 has files in the same folder" in refused(config)
    assert len(lake.load_table(("shop", "orders_2024")).scan().to_arrow()) == 4


def test_purge_is_refused_when_another_table_has_the_same_folder_through_a_link(
    config: Config, lake: SqlCatalog, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lake", target_is_directory=True)
    write(lake, "shop", "copy", location=f"file://{tmp_path}/link/shop/orders")
    assert "shop.copy has files in the same folder" in refused(config)


def test_purge_is_refused_when_another_table_was_registered_from_the_same_metadata(
    config: Config, lake: SqlCatalog
) -> None:
    lake.create_namespace("other")
    lake.register_table(("other", "copy"), lake.load_table(("shop", "orders")).metadata_location)
    assert "other.copy has files in the same folder" in refused(config)


def test_purge_is_refused_when_the_folder_has_the_catalog(
    config: Config, lake: SqlCatalog, tmp_path: Path
) -> None:
    for table in ("shop.orders", "shop_changes.orders", "shop.log", "shop_changes.log"):
        lake.drop_table(table)
    write(lake, "shop", "orders", location=f"file://{tmp_path}")
    assert f"{tmp_path} contains {tmp_path}/lake" in refused(config)
    assert (tmp_path / "lake" / "catalog.db").exists()


def test_purge_is_refused_when_the_folder_has_the_archive_that_kafka_continues(
    config: Config, lake: SqlCatalog
) -> None:
    folder = folder_of(config, "shop", "orders")
    log = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "p", "archive": str(folder / "past")}
    source = {"url": "mysql://u@h/shop", "tables": ["shop.*"]}
    base = folder.parents[2]
    assert f"contains {folder}/past" in refused(minimal_config(base, source=source, log=log))


def test_purge_is_refused_when_the_folder_is_a_link(config: Config, lake: SqlCatalog, tmp_path: Path) -> None:
    folder = folder_of(config, "shop", "orders")
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved", target_is_directory=True)
    assert "is a symbolic link" in refused(config)
    assert len(files(tmp_path / "moved")) == 9


def test_purge_leaves_folders_outside_of_the_location(
    config: Config, lake: SqlCatalog, tmp_path: Path
) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    write(lake, "shop", "split", **{"write.data.path": elsewhere})
    report = run(config, "shop.split")
    assert report.left == (elsewhere,)
    assert len(files(tmp_path / "elsewhere")) == 2


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of another person, outside of the warehouse."""
    folder = tmp_path / "home" / "alice"
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("mine")
    return folder


@pytest.mark.parametrize("location", ["file://{home}", "file://{warehouse}/shop/../../home/alice", "{link}"])
def test_purge_is_refused_where_a_table_was_not_created(
    config: Config, lake: SqlCatalog, home: Path, location: str
) -> None:
    """`SET LOCATION` may name any folder."""
    link = Path(config.lake.warehouse or "") / "link"
    link.symlink_to(home, target_is_directory=True)
    folder = location.format(home=home, warehouse=config.lake.warehouse, link=link)
    write(lake, "shop", "moved", location=folder, **{CREATED_KEY: f"{config.lake.warehouse}/shop/moved"})
    assert "the files of shop.moved cannot be deleted" in refused(config, "shop.moved")
    assert (home / "thesis.tex").read_text() == "mine"


def test_purge_deletes_where_a_table_was_created(config: Config, lake: SqlCatalog, home: Path) -> None:
    folder = f"file://{home}/moved"
    write(lake, "shop", "moved", location=folder)
    with pytest.raises(UsageError, match="nor where the table was created") as raised:
        plan_drop(config, "shop.moved", purge=True)
    hint = f"ALTER TABLE shop.moved SET TBLPROPERTIES ('{CREATED_KEY}'='{folder}')"
    assert (raised.value.hint or "").endswith(hint)
    with lake.load_table("shop.moved").transaction() as change:
        change.set_properties({CREATED_KEY: folder})
    assert run(config, "shop.moved").purged == (folder,)
    assert [path.name for path in home.iterdir()] == ["thesis.tex"]


def test_purge_is_refused_when_a_record_names_a_folder_of_others(
    config: Config, lake: SqlCatalog, home: Path
) -> None:
    lake.update_namespace_properties(
        "shop_ops", updates=dict([purge_record("shop.orders", f"file://{home}")])
    )
    assert f"the folder is file://{home}" in refused(config)
    assert (home / "thesis.tex").read_text() == "mine"


def test_purge_is_refused_when_the_folders_of_other_tables_are_unknown(
    config: Config, lake: SqlCatalog
) -> None:
    broken = Path(lake.load_table(("shop", "log")).metadata_location.removeprefix("file://"))
    broken.write_text("{")
    with pytest.raises(LakeUnavailable, match="the folders of the other tables are unknown"):
        plan_drop(config, "shop.orders", purge=True)
    assert run(config, purge=False).dropped == ("shop_changes.orders", "shop.orders")


@pytest.mark.parametrize(
    "folder",
    ["/", "file:///lake", "s3://bucket", "s3://bucket/", "file:lake/orders", "lake/orders", "/lake/../etc/x"],
)
def test_deletion_problem_refuses_folders_that_are_not_one_table_s(folder: str) -> None:
    assert (
        deletion_problem(folder, [folder], [], []) == f"{folder} is not a folder that only one table can have"
    )


def test_deletion_problem_is_none_for_a_folder_of_its_own() -> None:
    other = TableFolders("shop.log", "b", ("s3://bucket/shop/orders_old",))
    for folder in ("s3://bucket/shop/orders", "/lake/orders", "file:/lake/shop/orders"):
        assert (
            deletion_problem(folder, [folder], [other], ["s3://bucket", "/lake", "/lake/catalog.db"]) is None
        )


# Interruptions.


@pytest.mark.parametrize(
    ("point", "registered", "recorded"),
    [
        ("before-unregister", 2, 2),
        ("after-unregister", 1, 2),
        ("after-unregister:2", 0, 2),
        ("during-purge", 0, 2),
        ("during-purge:30", 0, 2),
        ("after-purge", 0, 2),
    ],
)
def test_killed_drop_is_finished_by_the_same_command(
    config: Config, lake: SqlCatalog, tmp_path: Path, point: str, registered: int, recorded: int
) -> None:
    for number in range(60):
        # More folders than the command deletes at the same time.
        part = folder_of(config, "shop", "orders") / f"data/p={number}"
        part.mkdir()
        (part / "0.parquet").touch()
    left = killed_at(point, config, tmp_path)
    assert left < 78 or point in ("before-unregister", "after-unregister", "after-unregister:2")
    assert len(names(lake)) == registered + 2
    assert len(ops(lake)) == recorded
    validate_properties("namespace", ops(lake))
    report = run(config)
    assert (len(report.dropped), report.files) == (registered, left)
    assert (names(lake), ops(lake)) == ({"shop.log", "shop_changes.log"}, {})
    assert not folder_of(config, "shop", "orders").exists()
    assert not folder_of(config, "shop_changes", "orders").exists()
    assert not plan_drop(config, "shop.orders", purge=True)


def killed_at(point: str, config: Config, tmp_path: Path) -> int:
    """Run the command in a process that is killed at a crash point. Return the number of files that are left."""
    file = tmp_path / "replicator.toml"
    file.write_text(
        '[mirror]\nname = "shop"\nstate_dir = "state"\n[source]\ntables = ["shop.*"]\n'
        '[log]\nkind = "archive"\npath = "archive"\n'
        '[lake]\ncatalog = "jdbc"\nuri = "jdbc:sqlite:lake/catalog.db"\nwarehouse = "lake"\nnamespace = "shop"\n'
    )
    environment = os.environ | {"REPLICATOR_CRASH_AT": point}
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], env=environment, check=False)
    assert ended.returncode == -9
    return sum(len(files(folder_of(config, space, "orders"))) for space in ("shop", "shop_changes"))


def interrupted(config: Config) -> None:
    """Interrupt a drop of shop.orders before it deletes files."""

    def stop(point: str) -> None:
        if point == "during-purge":
            raise KeyboardInterrupt

    with failpoints.on_reach(stop), pytest.raises(KeyboardInterrupt):
        run(config)


def test_interrupted_purge_also_deletes_the_table_that_the_mirror_created_since(
    config: Config, lake: SqlCatalog
) -> None:
    interrupted(config)
    write(lake, "shop", "orders")
    plan = plan_drop(config, "shop.orders", purge=True)
    assert ([table.name for table in plan.tables], len(plan.recorded)) == (["shop.orders"], 2)
    assert drop(config, plan).dropped == ("shop.orders",)
    assert not folder_of(config, "shop", "orders").exists()


def test_check_names_a_table_whose_purge_was_interrupted(config: Config, lake: SqlCatalog) -> None:
    def dropped() -> list[CheckResult]:
        return [result for result in check_lake(config) if result.name == "lake: dropped tables"]

    assert dropped() == []
    interrupted(config)
    (result,) = dropped()
    assert result.status == "warn"
    assert result.found == "a drop did not delete all files of shop.orders"
    assert result.next_step == "run: replicator drop shop.orders --purge -c FILE"
    run(config)
    assert dropped() == []


def test_interrupted_purge_spares_a_table_that_took_the_folder(config: Config, lake: SqlCatalog) -> None:
    interrupted(config)
    write(lake, "shop", "other", location=f"file://{folder_of(config, 'shop', 'orders')}")
    with pytest.raises(UsageError, match=r"shop\.other has files in the same folder"):
        plan_drop(config, "shop.orders", purge=True)
    report = run(config, purge=False)
    assert (report.dropped, len(report.left)) == ((), 2)
    assert ops(lake) == {}
    assert len(lake.load_table(("shop", "other")).scan().to_arrow()) == 4


def test_records_of_other_tables_are_not_touched(config: Config, lake: SqlCatalog) -> None:
    other = {PURGING_KEY + "x": json.dumps({"table": "shop.other", "folder": "/lake/shop/other"})}
    lake.update_namespace_properties("shop_ops", updates=other)
    interrupted(config)
    assert len(ops(lake)) == 3
    run(config)
    assert ops(lake) == other


def test_failed_purge_says_how_to_continue(config: Config, lake: SqlCatalog) -> None:
    folder = folder_of(config, "shop", "orders")
    plan = plan_drop(config, "shop.orders", purge=True)

    def add_file(point: str) -> None:
        if point == "during-purge" and (folder / "data").exists():
            (folder / "data" / "late").touch()

    with failpoints.on_reach(add_file), pytest.raises(LakeUnavailable) as raised:
        drop(config, plan)
    assert (
        raised.value.hint
        == "fix the cause, then run the same command again; it deletes the files that are left"
    )
    assert run(config).files == 1
    assert not folder.exists()


def test_purge_needs_no_folder(config: Config, lake: SqlCatalog) -> None:
    plan = plan_drop(config, "shop.orders", purge=True)
    shutil.rmtree(folder_of(config, "shop_changes", "orders") / "data")
    assert drop(config, plan).files == 16


def test_dropped_table_is_not_in_the_status(config: Config, lake: SqlCatalog) -> None:
    run(config)
    assert [table.source for table in read_status(config).tables] == ["shop.log"]
    with open_catalog(config.lake) as catalog:
        assert not catalog.table_exists(("shop", "orders"))
