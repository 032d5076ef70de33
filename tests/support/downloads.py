"""Reports of downloads."""

from collections.abc import Iterator
from contextlib import contextmanager

from replicator.jvm.jars import report_downloads


@contextmanager
def reported_downloads() -> Iterator[list[str]]:
    """Collect the lines that are reported about downloads while the block runs."""
    lines: list[str] = []
    report_downloads(lines.append)
    try:
        yield lines
    finally:
        report_downloads(lambda _: None)
