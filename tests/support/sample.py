"""Choose one case of each parametrized test, for a run that must end soon.

A case of a test that starts Spark or needs the real stack takes seconds to minutes. `pytest --one-case` runs one case
of each such test. The name of the test decides which case: it is the same in every run, and among all tests there are
all strategies, encodings and orders of events. `make test-long` runs all cases. A test that needs all its cases, or
whose cases take little time, has the mark `every_case`.
"""

import zlib
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")


def one_case(test: str, cases: Sequence[Case]) -> Case:
    """Return the case that stands for all `cases` of `test`."""
    return cases[zlib.crc32(test.encode()) % len(cases)]
