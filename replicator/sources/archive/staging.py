"""Copies of an object store's container files on this machine, from which Spark reads them.

PySpark has no client of its own for object stores, and the engine reads each file once anyway, for its checksum.
"""

import contextlib
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from replicator.errors import ArchiveError
from replicator.sources.archive.reader import ArchiveReader

KEPT_BYTES: Final = 4 << 30
"""Files that were not used for the longest time are deleted above this size: a batch needs about 100 MB of them."""


class StagedFiles:
    """The copies, in `folder`, which is emptied at the start. Safe for several threads."""

    def __init__(self, reader: ArchiveReader, folder: Path, kept_bytes: int = KEPT_BYTES) -> None:
        self._reader = reader
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._sizes: dict[str, int] = {}
        """Name → size in bytes, in the order of the last use."""
        self._lock = threading.Lock()
        self.close()

    def paths(self, names: Sequence[str]) -> list[str]:
        """Return the copies of these files. Raises ArchiveError."""
        with self._lock:
            for name in names:
                if name in self._sizes:
                    self._sizes[name] = self._sizes.pop(name)
                else:
                    self._sizes[name] = self._copy(name)
            self._delete_unused(set(names))
            return [str(self._folder / name) for name in names]

    def follow(self, reader: ArchiveReader) -> None:
        """Copy later files from `reader`, of the same archive after it has grown."""
        with self._lock:
            self._reader = reader

    def close(self) -> None:
        """Delete all copies."""
        self._sizes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _copy(self, name: str) -> int:
        content = self._reader.content(name)
        file = self._folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_bytes(content)
        except OSError as error:
            raise ArchiveError(
                f"cannot copy {name} to {self._folder}: {error.strerror}",
                "Free some space, or choose another folder with mirror.state_dir.",
            ) from error
        return len(content)

    def _delete_unused(self, needed: set[str]) -> None:
        total = sum(self._sizes.values())
        for name in [name for name in self._sizes if name not in needed]:
            if total <= self._kept_bytes:
                return
            total -= self._sizes.pop(name)
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
