"""Define named crash points at which tests kill the process, as a power failure would.

`REPLICATOR_CRASH_AT="before-commit:3"` kills the process the third time that it reaches this point. If the variable is
unset, as always outside tests, reaching a point costs one comparison.
"""

import itertools
import os
import signal
from typing import Final

_PLAN: Final = os.environ.get("REPLICATOR_CRASH_AT", "")
_POINT, _, _TIMES = _PLAN.partition(":")
_counter = itertools.count(1)


def reach(point: str) -> None:
    """Kill the process without any clean-up if the environment names this point."""
    if _PLAN and point == _POINT and next(_counter) == int(_TIMES or 1):
        os.kill(os.getpid(), signal.SIGKILL)
