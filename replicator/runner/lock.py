"""The lock that keeps a second process on this machine from running the same mirror."""

import contextlib
from collections.abc import Iterator

from replicator.config import Config
from replicator.errors import MirrorRuns
from replicator.locks import FileLock, LockHeld


@contextlib.contextmanager
def only_one(config: Config, next_step: str = "stop that process first") -> Iterator[None]:
    """Hold the mirror's lock on this machine while the block runs.

    `next_step` is what the operator is told if another process holds it.

    Raises:
        MirrorRuns: another process holds it.
    """
    folder = config.mirror.state_dir
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lock = FileLock(folder / "lock", wait=False)
    except LockHeld as held:
        raise MirrorRuns(
            f"mirror {config.mirror.name!r} is already running, as process {held.holder or '?'}",
            next_step,
        ) from None
    with lock:
        yield
