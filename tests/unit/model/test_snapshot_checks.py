"""What is kept of the snapshots that a mirror has noticed."""

import pytest

from replicator.model.commit_marker import CommitMarker
from replicator.model.position import SourcePosition
from replicator.model.snapshot import SnapshotRead
from replicator.model.snapshot_checks import (
    AWAITED_KEY,
    CLOCK_SKEW_MS,
    KNOWN_KEY,
    Awaited,
    SnapshotChecks,
    checks_in,
)
from replicator.model.table import TableId

AT = SourcePosition("binlog.000005", 50)
CHECKS = SnapshotChecks(9, {TableId("shop", "a"): Awaited(3, None), TableId("a.b", "c"): Awaited(0, 7)})


def test_checks_are_read_as_they_were_written() -> None:
    assert checks_in(CHECKS.properties() | {"owner": "x"}) == CHECKS
    assert checks_in({}) is None


def test_only_changes_are_written() -> None:
    assert CHECKS.changes(None) == CHECKS.properties()
    assert CHECKS.changes(CHECKS) == {}
    settled = SnapshotChecks(12, {TableId("shop", "a"): Awaited(3, None)})
    assert settled.changes(CHECKS) == {KNOWN_KEY: "12", f"{AWAITED_KEY}a.b.c": None}


@pytest.mark.parametrize(
    ("before_ms", "position", "ts_ms", "expected"),
    [
        (None, AT, 1_000_000, True),
        (None, AT, 1_000_000 - CLOCK_SKEW_MS, True),
        (None, AT, 1_000_000 - CLOCK_SKEW_MS - 1, False),
        (None, SourcePosition("binlog.000005", 51), 1_000_000, False),
        # The rows that the mirror had before, and those of another server, whose clock may differ.
        (5000, AT, 5000, False),
        (5000, AT, 4000, True),
        (5000, SourcePosition("binlog.000004", 50), 1_000_000, False),
    ],
)
def test_rows_of_a_snapshot_are_known_by_position_and_time(
    before_ms: int | None, position: SourcePosition, ts_ms: int, *, expected: bool
) -> None:
    marker = CommitMarker("shop", 1, 1, snapshot=SnapshotRead(position, ts_ms, {0: 0}))
    assert Awaited(0, before_ms).has_rows(marker, AT, 1_000_000) is expected


def test_mirror_that_read_no_snapshot_has_no_rows_of_one() -> None:
    assert not Awaited(0, None).has_rows(CommitMarker("shop", 1, 1), AT, 0)
