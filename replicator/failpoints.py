"""Define named crash points at which tests kill the process, as a power failure would.

`REPLICATOR_CRASH_AT="before-commit:3"` kills the process the third time that it reaches this point. If the variable is
unset, as always outside tests, reaching a point costs a call and a comparison. Tests within the process use `on_reach`.
"""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

Hook = Callable[[str], None]

_PLAN: Final = os.environ.get("REPLICATOR_CRASH_AT", "")
_POINT, _, _TIMES = _PLAN.partition(":")
_counter = itertools.count(1)


def reach(point: str) -> None:
    """Report that a crash point was reached. Kills the process without any clean-up if the environment names it."""
    _hook(point)


@contextmanager
def on_reach(hook: Hook) -> Iterator[None]:
    """Call `hook` instead with the name of each point that any thread reaches while the block runs."""
    global _hook  # noqa: PLW0603 - crash points are of the process
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def _kill_as_planned(point: str) -> None:
    if _PLAN and point == _POINT and next(_counter) == int(_TIMES or 1):
        os.kill(os.getpid(), signal.SIGKILL)


_hook: Hook = _kill_as_planned
