"""Named places where tests make the process die, as a power cut would.

`REPLICATOR_CRASH_AT="before-commit:3"` kills the process the third time that place is reached. Unset, which is always
so outside tests, reaching a place costs one comparison.
"""

import itertools
import os
import signal
from typing import Final

_PLAN: Final = os.environ.get("REPLICATOR_CRASH_AT", "")
_POINT, _, _TIMES = _PLAN.partition(":")
_counter = itertools.count(1)


def reach(point: str) -> None:
    """Die here, without any clean-up, where the environment says so."""
    if _PLAN and point == _POINT and next(_counter) == int(_TIMES or 1):
        os.kill(os.getpid(), signal.SIGKILL)
