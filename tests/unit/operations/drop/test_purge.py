"""Which files `drop --purge` must not delete."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.errors import LakeUnavailable, UsageError
from replicator.lake.properties import CREATED_KEY, purge_record
from replicator.operations.drop import deletion_problem, plan_drop
from tests.support.config import minimal_config
from tests.support.dropped_lake import files, folder_of, run, write


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
    assert report.remaining_folders == (elsewhere,)
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
