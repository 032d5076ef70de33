"""Which maintenance steps of a table are due."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from replicator.config import MaintenanceConfig
from replicator.maintenance.plan import (
    FEW_BYTES,
    MergedFiles,
    Step,
    TableFacts,
    due_steps,
    expire_before,
    levels,
    overdue_steps,
)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
SETTINGS = MaintenanceConfig.model_validate(
    {"merge_files": 10, "max_snapshots": 100, "snapshot_age": "1 day", "delete_ratio": 0.3}
)


def facts(
    data_files: int = 0,
    delete_files: int = 0,
    rows: int = 1000,
    deleted_rows: int = 0,
    snapshot_ms: Sequence[int] = (NOW_MS,),
) -> TableFacts:
    return TableFacts(data_files, delete_files, rows, deleted_rows, 10 * FEW_BYTES, snapshot_ms)


def test_merge_is_due_if_enough_files_were_added_since_the_last_one() -> None:
    assert due_steps(facts(data_files=9), MergedFiles(), SETTINGS, NOW_MS) == ()
    assert due_steps(facts(data_files=10), MergedFiles(), SETTINGS, NOW_MS) == (Step.MERGE_DATA,)
    assert due_steps(facts(data_files=59), MergedFiles(data_files=50), SETTINGS, NOW_MS) == ()
    found = due_steps(facts(data_files=60, delete_files=10), MergedFiles(data_files=50), SETTINGS, NOW_MS)
    assert found == (Step.MERGE_DATA, Step.MERGE_DELETES)


def test_equality_deletes_are_applied_instead_of_merged() -> None:
    files = replace(facts(data_files=3, delete_files=10), equality_deletes=40)
    assert due_steps(files, MergedFiles(), SETTINGS, NOW_MS) == (Step.APPLY_EQUALITY,)
    assert due_steps(files, MergedFiles(3, 1), SETTINGS, NOW_MS) == ()
    assert due_steps(replace(files, equality_deletes=0), MergedFiles(), SETTINGS, NOW_MS) == (
        Step.MERGE_DELETES,
    )


def test_deleted_rows_are_removed_if_their_share_is_above_the_ratio() -> None:
    assert due_steps(facts(delete_files=1, deleted_rows=300), MergedFiles(), SETTINGS, NOW_MS) == ()
    found = due_steps(facts(delete_files=1, deleted_rows=301), MergedFiles(), SETTINGS, NOW_MS)
    assert found == (Step.FOLD_DELETES,)


def test_few_bytes_of_deleted_rows_stay_whatever_their_share() -> None:
    small = replace(facts(delete_files=1, rows=200, deleted_rows=100), bytes=2 * FEW_BYTES)
    assert due_steps(small, MergedFiles(), SETTINGS, NOW_MS) == ()
    assert due_steps(replace(small, bytes=2 * FEW_BYTES + 2), MergedFiles(), SETTINGS, NOW_MS) == (
        Step.FOLD_DELETES,
    )


def test_snapshots_expire_if_they_are_too_many_with_a_tenth_of_slack() -> None:
    times = tuple(NOW_MS - 110 + i for i in range(110))
    assert expire_before(facts(snapshot_ms=times), SETTINGS, NOW_MS, slack=True) is None
    times = (*times, NOW_MS)
    assert due_steps(facts(snapshot_ms=times), MergedFiles(), SETTINGS, NOW_MS) == (Step.EXPIRE,)
    before = expire_before(facts(snapshot_ms=times), SETTINGS, NOW_MS)
    assert before is not None
    assert sum(at >= before for at in times) == 100


def test_snapshots_expire_if_they_are_too_old_but_the_newest_is_kept() -> None:
    assert expire_before(facts(snapshot_ms=(NOW_MS - 1000 * HOUR_MS,)), SETTINGS, NOW_MS) is None
    times = (NOW_MS - 27 * HOUR_MS, NOW_MS - 25 * HOUR_MS, NOW_MS - HOUR_MS)
    assert expire_before(facts(snapshot_ms=times), SETTINGS, NOW_MS) == NOW_MS - 24 * HOUR_MS


@given(st.integers(1, 10**13))
def test_levels_ascend_to_the_target(target: int) -> None:
    found = list(levels(target))
    assert found == sorted(set(found))
    assert found[-1] <= max(1, 0.75 * target)
    assert len(found) < 12


def test_overdue_steps_are_those_that_the_mirror_does_not_do_soon_by_itself() -> None:
    due = (Step.MERGE_DATA, Step.FOLD_DELETES, Step.EXPIRE, Step.MANIFESTS)
    assert overdue_steps(due, 99, SETTINGS) == (Step.EXPIRE, Step.MANIFESTS)
    assert overdue_steps(due, 100, SETTINGS) == due
    assert overdue_steps(due, 0, SETTINGS.model_copy(update={"enabled": False})) == due
    assert overdue_steps((), 1000, SETTINGS) == ()
