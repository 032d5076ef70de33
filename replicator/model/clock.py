"""Read the wall clock."""

import time


def now_ms() -> int:
    """Return the current time in milliseconds since 1970-01-01 00:00 UTC."""
    return time.time_ns() // 1_000_000
