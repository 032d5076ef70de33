"""Capture what the engine logs."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog
from structlog.testing import capture_logs


@contextmanager
def captured_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Capture the entries of the block at every level, also if tests drop all but critical ones."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        with capture_logs() as entries:
            yield entries
    finally:
        structlog.configure(wrapper_class=before)
