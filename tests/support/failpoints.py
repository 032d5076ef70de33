"""Simulate power cuts inside this process, at the points named in `replicator.failpoints`."""

from collections.abc import Iterator
from contextlib import contextmanager

from replicator import failpoints


class PowerCut(BaseException):
    """Ends a batch at once; no code may catch it."""


@contextmanager
def power_cut(at: int) -> Iterator[None]:
    """Raise an error at the `at`-th failpoint that is reached."""
    reached = 0

    def reach(_point: str) -> None:
        nonlocal reached
        reached += 1
        if reached == at:
            raise PowerCut

    with failpoints.on_reach(reach):
        yield
