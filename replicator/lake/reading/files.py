"""Open files of the lake: those on this machine's disks directly, others with PyIceberg."""

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


class LocalFiles:
    """Files on this machine's disks."""

    def open(self, location: str) -> BinaryIO:
        return _path(location).open("rb")

    def size(self, location: str) -> int:
        return _path(location).stat().st_size


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


def files_beside(lake: LakeConfig, location: str) -> Files:
    """Return what opens the files of a table whose metadata is at a location, in a lake that is a folder."""
    if local_path(location) is not None:
        return LocalFiles()
    # PyIceberg takes half a second to import, and few lakes have tables outside of their folder.
    from pyiceberg.io import load_file_io  # noqa: PLC0415

    from replicator.lake.reading.settings import catalog_properties  # noqa: PLC0415

    return StoreFiles(load_file_io(catalog_properties(lake), location))


def _path(location: str) -> Path:
    return local_path(location) or Path(location)
