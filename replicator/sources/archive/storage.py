"""The folder of an archive: on this machine's disks, or in an object store.

A file of an archive is either complete or does not exist: on a disk it is renamed when it is durable, and an object
store shows an object once it is uploaded as a whole. Names are relative to the folder, with slashes.
"""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replicator.errors import ArchiveError
from replicator.locks import FileLock, LockHeld

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_LOCK_NAME: Final = ".lock"
_READ_ATTEMPTS: Final = 5


class LocalStorage:
    """A folder on this machine's disks. The lock excludes every other writer.

    Attributes:
        location: the folder, as the operator named it; for messages.
        writer_suffix: a text that makes the names of a writer's files unique, if several could write at a time.
    """

    writer_suffix = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = str(folder)

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises OSError; FileNotFoundError if it does not exist."""
        return (self.folder / name).read_bytes()

    def sizes(self, folder: str) -> dict[str, int]:
        """Return name → size in bytes of the files that are directly in a folder. Raises OSError."""
        sizes: dict[str, int] = {}
        with os.scandir(self.folder / folder) as entries:
            for entry in entries:
                # A writer renames its temporary file meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    sizes[f"{folder}/{entry.name}"] = entry.stat().st_size
        return sizes

    def write(self, name: str, content: bytes) -> None:
        """Replace or create a file so that it is complete or unchanged, and durable on return. Raises OSError."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(file.name + ".tmp")
        try:
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
            _sync_directory(file.parent)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def lock(self) -> FileLock:
        """Create the folder if needed, and lock it for this writer. Raises LockHeld, or OSError."""
        return FileLock(self.folder / _LOCK_NAME, wait=False)


class ObjectStorage:
    """A folder in an object store.

    Object stores have no locks. Writers of this machine exclude each other by a file in the cache; a writer on another
    machine is detected when it has replaced the manifest, see `ArchiveWriter`.
    """

    def __init__(self, location: str, files: "FileSystem", folder: str, locks: Path) -> None:
        self.location = location
        self.writer_suffix = f"-{secrets.token_hex(4)}"
        self._files = files
        self._folder = folder.rstrip("/")
        self._locks = locks

    def read(self, name: str) -> bytes:
        address, content = self._address(name), b""
        for _ in range(_READ_ATTEMPTS):
            with self._files.open_input_stream(address) as stream:
                content = stream.read()
            # The client asks for the size first. If the object is replaced by a longer one then, it is read in part.
            if len(content) == self._files.get_file_info(address).size:
                break
        return content

    def sizes(self, folder: str) -> dict[str, int]:
        # Slow to import, and not needed for a folder on the disks.
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        selector = FileSelector(self._address(folder), allow_not_found=True)
        return {
            f"{folder}/{info.base_name}": int(info.size)
            for info in self._files.get_file_info(selector)
            if info.type is FileType.File
        }

    def write(self, name: str, content: bytes) -> None:
        # Without an open folder: closing the stream completes the upload, and only that makes the object visible.
        with self._files.open_output_stream(self._address(name)) as stream:
            stream.write(content)

    def lock(self) -> FileLock:
        key = hashlib.sha256(self.location.rstrip("/").encode()).hexdigest()[:16]
        return FileLock(self._locks / f"archive-{key}.lock", wait=False)

    def _address(self, name: str) -> str:
        return f"{self._folder}/{name}"


Storage = LocalStorage | ObjectStorage
"""The folder of one archive; see `LocalStorage` for the attributes and methods."""


def open_storage(location: str | Path, options: Callable[[], Mapping[str, str]] = dict) -> Storage:
    """Return the folder at `location`: a path, or a URL such as ``s3://bucket/folder``.

    `options` returns PyIceberg's settings of object stores, as in `lake.options`: ``s3.endpoint``, ``s3.region`` and so
    on; it is called only if they are needed. Without them, the environment variables of the store's client apply.

    Raises:
        ArchiveError: the store is of an unknown kind.
    """
    text = str(location)
    if text.startswith("file:"):
        return LocalStorage(Path(re.sub(r"^file:(//[^/]*)?", "", text)))
    if not _SCHEME.match(text):
        return LocalStorage(Path(text))
    # Slow to import, and not needed for a folder on the disks.
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415

    io = PyArrowFileIO(dict(options()))
    try:
        scheme, host, path = io.parse_location(text, io.properties)
        return ObjectStorage(text, io.fs_by_scheme(scheme, host), path, _locks())
    except (ValueError, ImportError, OSError) as error:
        raise ArchiveError(
            f"{text} cannot be opened: {error}", "Give a folder, or a URL such as s3://bucket/folder."
        ) from error


def locked(storage: Storage) -> FileLock:
    """Return the writer's lock. Raises ArchiveError if it is not free, or if the folder cannot be created."""
    try:
        return storage.lock()
    except LockHeld as error:
        raise ArchiveError(
            f"another process is writing to {storage.location}", "Stop it, or record into another directory."
        ) from error
    except OSError as error:
        raise ArchiveError(
            f"cannot write an archive to {storage.location}: {error.strerror or error}"
        ) from error


def _locks() -> Path:
    """Return the folder of locks: in the cache, as downloads (`jvm.jars.default_cache`, of the same layer)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("REPLICATOR_CACHE") or Path(cache) / "replicator") / "locks"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
