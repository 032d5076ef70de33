"""Keep Java's loaded classes between starts in a file in Java's in-memory format (class-data sharing).

Reading and verifying about 20,000 classes takes most of the first seconds of a new Java process. The first process
with these libraries writes the file when it ends; later ones map it. Java itself rejects a file that was written
by another Java or with other libraries, and then starts without it.
"""

import contextlib
import hashlib
import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from replicator.jvm.jars import default_cache

_PATIENCE_S: Final = 120.0
_WRITTEN_S: Final = 3600.0
"""Java takes some seconds to write the file when it ends."""

_KEPT: Final = 5
"""Each environment has a file of its own, of about 200 MB."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The file at `path`; if it did not exist, this process `writes` it."""

    path: Path
    writes: bool

    @property
    def _unfinished(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}")

    def java_options(self) -> tuple[str, ...]:
        """Return the options to use the file, or to write it when Java ends; quoted as Spark requires."""
        quiet = ("-Xlog:disable", "-Xlog:all=error:stderr")
        if not self.writes:
            with contextlib.suppress(OSError):
                self.path.touch()
            return (shlex.quote(f"-XX:SharedArchiveFile={self.path}"), *quiet)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _tidy(self.path.parent)
        return (shlex.quote(f"-XX:ArchiveClassesAtExit={self._unfinished}"), *quiet)

    def keep(self, java: "subprocess.Popen[bytes]") -> None:
        """End `java`, which was started with these options, wait for the file that it writes, and keep that file.

        Does nothing if the file already existed.
        """
        if not self.writes:
            return
        try:
            if java.stdin is not None:
                java.stdin.close()
            if java.wait(_PATIENCE_S) == 0:
                self._unfinished.replace(self.path)
        except (OSError, subprocess.TimeoutExpired):
            # The next process tries again; without the file, it only starts more slowly.
            pass
        finally:
            self._unfinished.unlink(missing_ok=True)


def _tidy(folder: Path) -> None:
    """Remove unfinished files of killed processes, and all but the files that were used last."""
    with contextlib.suppress(OSError):
        used = {file: file.stat().st_mtime for file in folder.iterdir()}
        archives = sorted((file for file in used if file.suffix == ".jsa"), key=used.__getitem__)
        unfinished = [file for file in used.keys() - archives if time.time() - used[file] > _WRITTEN_S]
        for file in [*archives[: 1 - _KEPT], *unfinished]:
            file.unlink(missing_ok=True)


def class_archive(java: Path, libraries: list[Path], cache: Path | None = None) -> ClassArchive:
    """Return the archive for a program with `libraries` on `java`; it is specific to the Java and the libraries."""
    parts = [java.resolve(), *libraries]
    stamps = [f"{part} {part.stat().st_mtime_ns} {part.stat().st_size}" for part in parts]
    name = hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:16]
    path = (cache or default_cache()) / "classes" / f"{name}.jsa"
    return ClassArchive(path, writes=not path.exists())
