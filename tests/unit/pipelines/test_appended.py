"""Whether the rows that were appended to a log table are all that changed since a snapshot."""

import pytest

from replicator.pipelines.inputs.appended import LogSnapshot, Since, since_in

A, B, C, D = (
    LogSnapshot(1, None, "append"),
    LogSnapshot(2, 1, "append"),
    LogSnapshot(3, 2, "replace"),
    LogSnapshot(4, 3, "delete"),
)


@pytest.mark.parametrize(
    ("line", "snapshot", "found"),
    [
        ([C, B, A], 1, Since()),
        ([C, B, A], 3, Since()),
        ([A], None, Since()),
        ([B, A], None, Since()),
        # The snapshot itself has expired, and none after it.
        ([C, B], 1, Since()),
        ([C], 1, Since(is_known=False)),
        ([C], None, Since(is_known=False)),
        ([D, C, B], 2, Since(deleted=True)),
        ([D, C, B], 4, Since()),
        ([D], 1, Since(is_known=False, deleted=True)),
        ([], 1, Since(is_known=False)),
        ([LogSnapshot(9, 3, "overwrite"), C], 3, Since(deleted=True)),
    ],
)
def test_what_happened_since_a_snapshot(line: list[LogSnapshot], snapshot: int | None, found: Since) -> None:
    assert since_in(line, snapshot) == found
