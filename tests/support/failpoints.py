"""Simulate power cuts inside this process, at the points named in `replicator.failpoints`."""

from collections.abc import Iterator
from contextlib import contextmanager

from replicator import failpoints


class PowerCut(BaseException):
    """Ends a batch at once; no code may catch it."""


@contextmanager
def power_cut(at: int, point: str | None = None) -> Iterator[None]:
    """Raise an error at the `at`-th failpoint that is reached; with `point`, only those of that name count."""
    reached = 0

    def reach(reached_point: str) -> None:
        nonlocal reached
        reached += point in (None, reached_point)
        if reached == at:
            raise PowerCut

    with failpoints.on_reach(reach):
        yield
