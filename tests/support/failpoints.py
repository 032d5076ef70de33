"""Power cuts inside this process, at the places that `replicator.failpoints` names."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

PLACES_OF_REACH = (
    "replicator.batch.changelog.reach",
    "replicator.batch.order.reach",
    "replicator.batch.lake_names.reach",
    "replicator.apply.publish.reach",
    "replicator.apply.strategy.reach",
    "replicator.apply.evolve.reach",
)


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

    with ExitStack() as patches:
        for name in PLACES_OF_REACH:
            patches.enter_context(patch(name, reach))
        yield
