"""Read the folders of all lake tables, and remove those of dropped tables, without Java.

A deletion that was interrupted can be repeated.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from replicator import failpoints
from replicator.config import LakeConfig
from replicator.errors import LakeUnavailable
from replicator.lake.reading.folders import TableFolders, local_path
from replicator.lake.reading.reader import open_catalog

_PATHS: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path")
_PARALLEL_LOADS: Final = 8


def read_folders(lake: LakeConfig) -> tuple[TableFolders, ...]:
    """Return the folders of every table in the catalog, also of tables that belong to no mirror.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    with open_catalog(lake) as catalog, ThreadPoolExecutor(_PARALLEL_LOADS) as pool:
        names = [name for namespace in _namespaces(catalog, ()) for name in _tables(catalog, namespace)]
        return tuple(found for found in pool.map(lambda name: _folders(catalog, name), names) if found)


def _namespaces(catalog: Catalog, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    try:
        listed = catalog.list_namespaces(parent)
    except NoSuchNamespaceError:
        return
    for found in listed:
        namespace = tuple(found)
        # A catalog without nested namespaces may return all of them again.
        if len(namespace) > len(parent) and namespace[: len(parent)] == parent:
            yield namespace
            yield from _namespaces(catalog, namespace)


def _tables(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    try:
        return [tuple(name) for name in catalog.list_tables(namespace)]
    except NoSuchNamespaceError:
        return []


def _folders(catalog: Catalog, name: tuple[str, ...]) -> TableFolders | None:
    try:
        table: Table = catalog.load_table(name)
    except NoSuchTableError:
        # Dropped since it was listed, or not an Iceberg table.
        return None
    return TableFolders(".".join(name), str(table.metadata.table_uuid), table_folders(table))


def table_folders(table: Table) -> tuple[str, ...]:
    """Return the location of a table, and further folders that its properties name."""
    paths = [path for key in _PATHS if (path := table.properties.get(key)) is not None]
    return (table.location(), *paths)


_THREADS: Final = 16
"""Deleting a file waits for the disk or the network, on a machine with two cores too: of 100,000 files on a disk, one
thread deletes 2,000 to 5,000 in a second, four 8,000 to 14,000, sixteen 13,000 to 18,000."""
_CHUNK: Final = 500
"""Number of files that a thread deletes at once; after it, the progress is shown."""
_WAITING: Final = 2 * _THREADS
"""Maximum number of chunks whose names are kept in memory."""

OnDone = Callable[[int], None]
"""Called with a number of steps that were just completed."""


def open_purge(location: str, properties: Mapping[str, str]) -> "Purge":
    """Prepare the deletion of a folder; one that does not exist counts as empty.

    `properties` are PyIceberg's settings, for access to a folder that is not on this machine's disks.

    Raises:
        LakeUnavailable: the folder cannot be listed.
    """
    with purge_errors(location):
        path = local_path(location)
        return LocalPurge(path) if path is not None else StorePurge(*_store(location, properties))


@contextmanager
def purge_errors(location: str) -> Iterator[None]:
    """Translate an OSError to LakeUnavailable."""
    try:
        yield
    except OSError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LakeUnavailable(
            f"the files in {location} cannot be deleted: {reason}",
            "fix the cause, then run the same command again; it deletes the files that are left",
        ) from error


class LocalPurge:
    """The deletion of a folder on this machine's disks, with one step for each file.

    Symbolic links are deleted and never followed; PyArrow's file system would list what they point to.
    """

    def __init__(self, folder: Path) -> None:
        self._folders: list[str] = []
        self.files: int | None = 0
        if os.path.lexists(folder):
            self._folders.append(str(folder))
        # The list grows while it is read, so parents come before their children.
        for known in self._folders:
            with _opened(known) as handle, os.scandir(handle) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        self._folders.append(os.path.join(known, entry.name))  # noqa: PTH118 - 100,000 of them
                    else:
                        self.files += 1
        self.steps = self.files

    def run(self, on_done: OnDone) -> None:
        """Delete all files, several at a time, and then the folders."""
        waiting: deque[Future[int]] = deque()

        def await_one() -> None:
            on_done(waiting.popleft().result())
            failpoints.reach("during-purge")

        with ThreadPoolExecutor(_THREADS, "purge") as pool:
            for folder, names in self._chunks():
                waiting.append(pool.submit(_delete_files, folder, names))
                if len(waiting) > _WAITING:
                    await_one()
            while waiting:
                await_one()
        for folder in reversed(self._folders):
            with suppress(FileNotFoundError):
                os.rmdir(folder)  # noqa: PTH106 - faster than Path.rmdir, for 100,000 folders

    def _chunks(self) -> Iterator[tuple[str, list[str]]]:
        for folder in self._folders:
            with _opened(folder) as handle, os.scandir(handle) as entries:
                # All names first: some file systems skip entries if others are deleted meanwhile.
                names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
            for start in range(0, len(names), _CHUNK):
                yield folder, names[start : start + _CHUNK]


def _delete_files(folder: str, names: list[str]) -> int:
    with _opened(folder) as handle:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
    return len(names)


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Open a folder. Raises OSError if it is a symbolic link."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


class StorePurge:
    """The deletion of a folder in an object store, with one step for each entry of the folder.

    The client of the store lists each entry once, and deletes its files in bulk: in S3, a thousand with one request.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._entries = files.get_file_info(FileSelector(folder, allow_not_found=True))
        self.steps = len(self._entries)
        self.files: int | None = None

    def run(self, on_done: OnDone) -> None:
        """Delete all entries at the same time, and then the folder."""
        with ThreadPoolExecutor(_THREADS, "purge") as pool:
            for future in as_completed([pool.submit(self._delete, entry) for entry in self._entries]):
                future.result()
                on_done(1)
                failpoints.reach("during-purge")
        if self._files.get_file_info(self._folder).type is FileType.Directory:
            self._files.delete_dir(self._folder)

    def _delete(self, entry: FileInfo) -> None:
        if entry.type is FileType.Directory:
            self._files.delete_dir(entry.path)
        else:
            self._files.delete_file(entry.path)


Purge = LocalPurge | StorePurge
"""The deletion of one folder: number of `steps`, for a progress bar, and of `files`, None if they were not counted."""


def _store(location: str, properties: Mapping[str, str]) -> tuple[FileSystem, str]:
    """Return the file system of a location, and the folder's path in it."""
    io = PyArrowFileIO(dict(properties))
    scheme, host, path = io.parse_location(location, io.properties)
    try:
        return io.fs_by_scheme(scheme, host), path
    except (ValueError, ImportError) as error:
        raise LakeUnavailable(
            f"the files in {location} cannot be deleted: {error}",
            "delete the folder with the tools of the store",
        ) from error
