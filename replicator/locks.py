"""Lock files, by which one process at a time does something on this machine and the others see which one it is.

The system releases a lock when its process ends, however it ends. The library filelock is not used: its locks of the
system do not record who holds them, which is half of this module.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_LONGEST: Final = 20
"""Maximum length of a process id, digits."""


class LockHeld(Exception):  # noqa: N818 -- callers translate it to an error of what the lock protects
    """Another process holds the lock: `holder` is its process id, or None if it is unknown."""

    def __init__(self, path: Path, holder: int | None) -> None:
        super().__init__(f"{path} is locked by process {holder or '?'}")
        self.holder = holder


class FileLock:
    """An exclusive lock on the file at `path`, held from creation until `release`. The file is never deleted.

    Two locks exclude each other also within one process. With `wait`, it waits until the lock is free.

    Raises:
        LockHeld: without `wait`, if the lock is not free.
        OSError: the folder or the file cannot be created.
    """

    def __init__(self, path: Path, *, wait: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(0)
            self._file.write(str(os.getpid()))
            self._file.flush()
        except BlockingIOError:
            holder = self._holder()
            self._file.close()
            raise LockHeld(path, holder) from None
        except BaseException:
            self._file.close()
            raise

    def release(self) -> None:
        """Release the lock; repeated calls have no effect."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _holder(self) -> int | None:
        self._file.seek(0)
        text = self._file.read(_LONGEST)
        return int(text) if text.isdecimal() else None
