"""The lock that keeps a second process on this machine from running the same mirror."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from replicator.config import Config
from replicator.errors import UsageError


@contextlib.contextmanager
def only_one(config: Config) -> Iterator[None]:
    """Hold the mirror's lock on this machine while the block runs.

    Raises:
        UsageError: another process holds it.
    """
    folder = config.mirror.state_dir
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"mirror {config.mirror.name!r} is already running, as process {file.read().strip() or '?'}",
                "stop that process first, or give this mirror another name and namespace",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
