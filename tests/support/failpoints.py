"""Power cuts inside this process, at the places that `replicator.failpoints` names."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


class PowerCut(BaseException):
    """Ends a batch where it stands; nothing may catch it."""


@contextmanager
def power_cut(at: int) -> Iterator[None]:
    """Let the `at`-th place where a process may die be where it does."""
    reached = 0

    def reach(_point: str) -> None:
        nonlocal reached
        reached += 1
        if reached == at:
            raise PowerCut

    with patch("replicator.failpoints.reach", reach):
        yield
