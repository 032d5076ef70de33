"""Folders of lake tables: of one table or of two, and their removal."""

from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest
from pyarrow.fs import FileSystem, FileType, FSSpecHandler, PyFileSystem

from replicator import failpoints
from replicator.errors import LakeUnavailable
from replicator.lake.reading.folder_reader import LocalPurge, StorePurge, open_purge
from replicator.lake.reading.folders import TableFolders, sharing

ORDERS = TableFolders("shop.orders", "a", ("s3://lake/shop/orders",))


def test_sharing_finds_nothing_when_each_table_has_its_own_folder() -> None:
    others = [
        TableFolders("shop.orders_old", "b", ("s3://lake/shop/orders_old",)),
        TableFolders("shop.o", "c", ("s3://lake/shop/o", "s3://other/data")),
    ]
    assert sharing("a", "s3://lake/shop/orders", [ORDERS, *others]) is None


@pytest.mark.parametrize(
    "folder",
    [
        "s3://lake/shop/orders",
        "s3a://lake/shop/orders/",
        "s3://lake/shop//orders",
        "s3://lake/shop/orders/inner",
        "s3://lake/shop",
    ],
)
def test_sharing_names_the_table_when_a_folder_is_equal_or_inside_the_other(folder: str) -> None:
    other = TableFolders("shop.before", "b", ("s3://elsewhere/x", folder))
    assert sharing("a", "s3://lake/shop/orders", [ORDERS, other]) == "shop.before"


def test_sharing_names_a_table_that_was_registered_from_the_same_metadata() -> None:
    copy = TableFolders("copy.orders", "a", ORDERS.folders)
    assert sharing("a", "s3://lake/shop/orders", [ORDERS, copy]) == "copy.orders"


FILES = 1_203
"""More than two chunks."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table's folder, next to a folder whose name begins with its name."""
    for name in ("orders", "orders_old"):
        for part in ("data/p=1", "data/p=2/q=3", "data/p=4", "metadata"):
            (tmp_path / name / part).mkdir(parents=True)
        (tmp_path / name / "metadata" / ".v1.json.crc").write_text("1")
        (tmp_path / name / "data" / "p=2" / "q=3" / "0.parquet").write_text("1")
    for number in range(FILES):
        (tmp_path / "orders" / "data" / "p=1" / f"{number}.parquet").touch()
    return tmp_path / "orders"


def test_local_purge_deletes_everything_and_reports_each_file(folder: Path) -> None:
    done: list[int] = []
    purge = open_purge(f"file://{folder}", {})
    assert (purge.files, purge.steps) == (FILES + 2, FILES + 2)
    purge.run(done.append)
    assert (sum(done), len(done) > 4) == (FILES + 2, True)
    assert [path.name for path in folder.parent.iterdir()] == ["orders_old"]
    assert len([path for path in (folder.parent / "orders_old").rglob("*") if path.is_file()]) == 2


def test_local_purge_deletes_links_and_not_what_they_point_to(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "data" / "folder-link").symlink_to(outside, target_is_directory=True)
    (folder / "data" / "file-link").symlink_to(outside / "kept")
    (folder / "data" / "broken-link").symlink_to(tmp_path / "nowhere")
    purge = LocalPurge(folder)
    assert purge.files == FILES + 5
    purge.run(lambda _: None)
    assert not folder.exists()
    assert (outside / "kept").exists()


def test_purge_refuses_a_folder_that_is_a_link(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder, target_is_directory=True)
    with pytest.raises(LakeUnavailable, match="cannot be deleted"):
        open_purge(str(link), {})
    assert (folder / "data" / "p=1" / "0.parquet").exists()


def test_local_purge_does_not_enter_a_folder_that_was_replaced_by_a_link(
    folder: Path, tmp_path: Path
) -> None:
    purge = LocalPurge(folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (folder / "data" / "p=4").rmdir()
    (folder / "data" / "p=4").symlink_to(tmp_path / "other", target_is_directory=True)
    with pytest.raises(OSError, match="p=4"):
        purge.run(lambda _: None)
    assert (tmp_path / "other" / "kept").exists()


def test_local_purge_fails_when_a_file_appears_and_can_be_repeated(folder: Path) -> None:
    purge = LocalPurge(folder)
    with (
        failpoints.on_reach(lambda _: (folder / "data" / "late").touch()),
        pytest.raises(OSError, match="data"),
    ):
        purge.run(lambda _: None)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["late"]
    LocalPurge(folder).run(lambda _: None)
    assert not folder.exists()


def test_local_purge_tolerates_files_that_another_process_deletes(folder: Path) -> None:
    purge = LocalPurge(folder)

    def delete_one(_: str) -> None:
        (folder / "metadata" / ".v1.json.crc").unlink(missing_ok=True)

    with failpoints.on_reach(delete_one):
        purge.run(lambda _: None)
    assert not folder.exists()


def memory(name: str, *files: str) -> tuple[FileSystem, str]:
    """Return a store in this process, and a folder in it with `files`."""
    store = fsspec.filesystem("memory")
    for file in files:
        store.pipe_file(f"/bucket/{name}/{file}", b"1")
    return PyFileSystem(FSSpecHandler(store)), f"/bucket/{name}"


def test_store_purge_deletes_the_folder_and_leaves_others() -> None:
    files, folder = memory("orders", "data/p=1/0", "data/p=1/1", "data/2", "metadata/v1.json", "loose")
    memory("orders_old", "data/0")
    done: list[int] = []
    purge = StorePurge(files, folder)
    assert (purge.steps, purge.files) == (3, None)
    purge.run(done.append)
    assert done == [1, 1, 1]
    assert files.get_file_info(folder).type is FileType.NotFound
    assert files.get_file_info("/bucket/orders_old/data/0").type is FileType.File


@pytest.mark.parametrize("location", ["ftp://host/lake/orders", "mem://bucket/orders"])
def test_purge_of_an_unknown_store_names_the_next_step(location: str) -> None:
    with pytest.raises(LakeUnavailable) as raised:
        open_purge(location, {})
    assert raised.value.hint == "delete the folder with the tools of the store"
