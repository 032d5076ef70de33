"""The lock that keeps a second process on this machine from running the same mirror."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from replicator.config import Config
from replicator.errors import ConfigError, MirrorRuns
from replicator.locks import FileLock, LockHeld


@contextlib.contextmanager
def only_one(config: Config, next_step: str = "stop that process first") -> Iterator[None]:
    """Hold the mirror's lock on this machine while the block runs.

    There are two files: one in the state folder, and one outside, because the folder may be deleted while a process
    holds the lock. `next_step` is what the operator is told if another process holds it.

    Raises:
        MirrorRuns: another process holds it.
        ConfigError: the state folder cannot be written.
    """
    folder = config.mirror.state_dir
    with contextlib.ExitStack() as locks:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            locks.enter_context(FileLock(folder / "lock", wait=False))
            outside = _file_outside(folder)
            if outside is not None:
                locks.enter_context(FileLock(outside, wait=False))
        except LockHeld as held:
            raise MirrorRuns(
                f"mirror {config.mirror.name!r} is already running, as process {held.holder or '?'}",
                next_step,
            ) from None
        except OSError as error:
            raise ConfigError(
                f"the state folder {folder} cannot be written: {error.strerror}",
                "correct the owner of the folder, or set mirror.state_dir to another one",
            ) from error
        yield


def _file_outside(folder: Path) -> Path | None:
    """Return a file for the second lock of a state folder; None if this user has no folder for temporary files."""
    own = Path(tempfile.gettempdir()) / f"replicator-{os.getuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
    except OSError:
        return None
    # Others may write there, and may have taken the name.
    if own.is_symlink() or found.st_uid != os.getuid() or not os.access(own, os.W_OK):
        return None
    return own / f"{sha256(str(folder.resolve()).encode()).hexdigest()[:24]}.lock"
