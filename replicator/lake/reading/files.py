"""Open files of the lake: those on this machine's disks directly, others with PyIceberg."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from replicator.config import LakeConfig
from replicator.lake.reading.folders import local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


class Files(Protocol):
    """Opens files by their locations. Threads may share one."""

    def open(self, location: str) -> BinaryIO:
        """Open a file for reading. Raises FileNotFoundError and other OSErrors."""
        ...

    def size(self, location: str) -> int:
        """Return the size of a file in bytes. Raises OSError."""
        ...


class StoreFiles:
    """Files that PyIceberg opens."""

    def __init__(self, io: "FileIO") -> None:
        self._io = io

    def open(self, location: str) -> BinaryIO:
        return cast("BinaryIO", self._io.new_input(location).open())

    def size(self, location: str) -> int:
        return len(self._io.new_input(location))


def is_folder(lake: LakeConfig) -> bool:
    """Return whether the warehouse is a folder on this machine, whose files are opened without PyIceberg."""
    return "py-io-impl" not in lake.options and (
        lake.warehouse is None or local_path(lake.warehouse) is not None
    )


class LakeFiles:
    """The files of a lake in a folder. Tables elsewhere are opened with PyIceberg."""

    def __init__(self, lake: LakeConfig) -> None:
        self._lake = lake
        self._stores: dict[str, StoreFiles] = {}
        self._lock = threading.Lock()

    def open(self, location: str) -> BinaryIO:
        path = self._local(location)
        return self._store(location).open(location) if path is None else path.open("rb")

    def size(self, location: str) -> int:
        path = self._local(location)
        return self._store(location).size(location) if path is None else path.stat().st_size

    def _local(self, location: str) -> Path | None:
        return local_path(location) if is_folder(self._lake) else None

    def _store(self, location: str) -> StoreFiles:
        """Return what opens files of a store: one client for each kind, since each has to log in."""
        scheme = location.partition(":")[0]
        with self._lock:
            if scheme not in self._stores:
                # PyIceberg takes half a second to import, and most lakes are folders.
                from pyiceberg.io import load_file_io  # noqa: PLC0415

                from replicator.lake.reading.settings import catalog_properties  # noqa: PLC0415

                self._stores[scheme] = StoreFiles(load_file_io(catalog_properties(self._lake), location))
            return self._stores[scheme]
