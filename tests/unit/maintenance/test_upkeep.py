"""When the tables of a mirror are maintained."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicator.config import MaintenanceConfig
from replicator.errors import CommitConflict
from replicator.maintenance.plan import MergedFiles, Step, TableFacts
from replicator.maintenance.reports import StepReport
from replicator.maintenance.upkeep import LakeTableId, TableMaintainer, TimeShare, Upkeep, Visit, carry_out
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from tests.support.config import minimal_config

ORDERS, USERS = TableId("shop", "orders"), TableId("shop", "users")
LEFT = MergedFiles(3, 2)


class Maintainer:
    """Records which tables were maintained; `answers` is table → what maintaining it returns or raises."""

    def __init__(self) -> None:
        self.done: list[tuple[LakeTableId, MergedFiles]] = []
        self.merged: list[LakeTableId] = []
        self.answers: dict[TableId, Visit | Exception] = {}

    def __call__(self, table: LakeTableId, merged: MergedFiles, _deadline: float) -> Visit:
        self.done.append((table, merged))
        answer = self.answers.get(table[0], Visit(LEFT))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def merge_small(self, table: LakeTableId) -> None:
        self.merged.append(table)
        answer = self.answers.get(table[0])
        if isinstance(answer, Exception):
            raise answer

    def names(self) -> list[str]:
        """Return the mirrors that were maintained since the last call, in order."""
        found = [source.name for (source, role), _ in self.done if role is LakeRole.MIRROR]
        self.done = []
        return found


@pytest.fixture
def maintainer() -> Maintainer:
    return Maintainer()


def upkeep(tmp_path: Path, maintainer: Maintainer, **sections: Any) -> Upkeep:
    maintenance = {"merge_files": 3} | sections.pop("maintenance", {})
    config = minimal_config(
        tmp_path, **{"source": {"tables": ["shop.*"]}, "maintenance": maintenance, **sections}
    )
    return Upkeep(config, cast("TableMaintainer", maintainer))


def run(upkeep: Upkeep, *tables: TableId, lag_seconds: float | None = 0.5) -> None:
    """Report one batch of these tables, and run a slice."""
    upkeep.committed(tables)
    upkeep.run_slice(lag_seconds)


def test_upkeep_inspects_a_table_after_its_first_batch_and_then_after_enough_commits(
    tmp_path: Path, maintainer: Maintainer
) -> None:
    tables = upkeep(tmp_path, maintainer)
    run(tables, ORDERS)
    assert [table for table, _ in maintainer.done] == [
        (ORDERS, LakeRole.CHANGELOG),
        (ORDERS, LakeRole.MIRROR),
    ]
    assert maintainer.names() == ["orders"]
    for expected in ([], [], ["orders"], [], [], ["orders"]):
        run(tables, ORDERS)
        assert maintainer.names() == expected


def test_upkeep_continues_after_the_other_tables_when_a_slice_was_too_short(
    tmp_path: Path, maintainer: Maintainer
) -> None:
    tables = upkeep(tmp_path, maintainer)
    maintainer.answers[ORDERS] = Visit(LEFT, complete=False)
    run(tables, ORDERS)
    run(tables, USERS)
    assert maintainer.names() == ["orders", "users", "orders"]


def test_upkeep_begins_with_the_table_with_the_most_commits(tmp_path: Path, maintainer: Maintainer) -> None:
    tables = upkeep(tmp_path, maintainer)
    run(tables, ORDERS, USERS)
    maintainer.names()
    for batch in ([USERS], [USERS], [ORDERS], [ORDERS]):
        tables.committed(batch)
    run(tables, ORDERS, USERS)
    assert maintainer.names() == ["orders", "users"]
    for batch in ([USERS], [USERS], [USERS], [ORDERS], [ORDERS], [ORDERS]):
        tables.committed(batch)
    run(tables, USERS)
    assert maintainer.names() == ["users", "orders"]


def test_upkeep_stops_at_the_deadline(tmp_path: Path, maintainer: Maintainer) -> None:
    tables = upkeep(tmp_path, maintainer, maintenance={"slice_time": "0.000000001 ms"})
    run(tables, ORDERS, USERS)
    assert len(maintainer.done) <= 1


def test_upkeep_waits_longer_when_the_mirror_is_behind(tmp_path: Path, maintainer: Maintainer) -> None:
    tables = upkeep(tmp_path, maintainer, maintenance={"max_lag": "1 minute"})
    for _ in range(29):
        run(tables, ORDERS, lag_seconds=61)
    assert maintainer.names() == []
    run(tables, ORDERS, lag_seconds=61)
    assert maintainer.names() == ["orders"]


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def slice_of(share: TimeShare, clock: Clock, seconds: float) -> float:
    """Use some time, and return how much there was."""
    began = clock.now
    deadline = share.begin()
    clock.now += seconds
    share.end()
    return deadline - began


def test_maintenance_takes_at_most_its_share_of_the_time() -> None:
    clock = Clock()
    share = TimeShare(0.25, 10, clock)
    assert slice_of(share, clock, 10) == 10
    used = 0.0
    for _ in range(100):
        clock.now += 6
        left = slice_of(share, clock, 2)
        assert left == pytest.approx(2)
        used += 2
    assert used / (clock.now - 110) == pytest.approx(0.25)


def test_upkeep_tries_again_after_further_commits_when_maintenance_failed(
    tmp_path: Path, maintainer: Maintainer
) -> None:
    tables = upkeep(tmp_path, maintainer)
    maintainer.answers[ORDERS] = CommitConflict("another commit was made")
    run(tables, ORDERS, USERS)
    assert maintainer.names() == ["orders", "users"]
    for expected in ([], [], ["orders"]):
        run(tables, ORDERS)
        assert maintainer.names() == expected


def test_small_files_of_both_lake_tables_are_merged_even_if_one_fails(
    tmp_path: Path, maintainer: Maintainer
) -> None:
    maintainer.answers[ORDERS] = CommitConflict("another commit was made")
    upkeep(tmp_path, maintainer).merge_small(ORDERS)
    assert set(maintainer.merged) == {(ORDERS, LakeRole.CHANGELOG), (ORDERS, LakeRole.MIRROR)}


def test_small_files_are_not_merged_without_maintenance(tmp_path: Path, maintainer: Maintainer) -> None:
    upkeep(tmp_path, maintainer, maintenance={"enabled": False}).merge_small(ORDERS)
    assert maintainer.merged == []


class Work:
    """A table with ten data files in which merging finds nothing, and too many snapshots; each step takes 0.6 s."""

    def __init__(self, clock: Clock, rewritten: int) -> None:
        self.clock, self.rewritten, self.deadline = clock, rewritten, clock.now + 0.5
        self.table = SimpleNamespace(namespace="shop", name="orders")
        self.settings = MaintenanceConfig(max_snapshots=2)
        self.ran: list[Step] = []

    def run(self, step: Step) -> StepReport:
        self.ran.append(step)
        self.clock.now += 0.6
        return StepReport(step, self.rewritten)


@pytest.mark.parametrize(
    ("rewritten", "ran", "visit"),
    [
        (0, [Step.MERGE_DATA, Step.EXPIRE], Visit(MergedFiles(11, 0))),
        (4, [Step.MERGE_DATA], Visit(MergedFiles(11, 0), complete=False)),
    ],
)
def test_step_that_takes_long_to_find_nothing_does_not_keep_the_others_from_their_turn(
    monkeypatch: pytest.MonkeyPatch, rewritten: int, ran: list[Step], visit: Visit
) -> None:
    clock = Clock()
    facts = TableFacts(12, 0, 100, 0, 10_000, [2**42] * 9)
    monkeypatch.setattr("replicator.maintenance.upkeep.time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr("replicator.maintenance.upkeep.table_facts", lambda _: facts)
    work: Any = Work(clock, rewritten)
    assert carry_out(work, MergedFiles(), lambda: MergedFiles(1, 0)) == visit
    assert work.ran == ran
    # What a complete merge left is not due again.
    again: Any = Work(clock, rewritten)
    carry_out(again, visit.merged, lambda: MergedFiles(1, 0))
    assert again.ran == [Step.EXPIRE]


def test_files_count_as_merged_only_after_a_merge() -> None:
    left = MergedFiles(8, 7)
    assert MergedFiles(2, 9).after(left, frozenset({Step.EXPIRE})) == MergedFiles(2, 7)
    assert MergedFiles(2, 9).after(left, frozenset({Step.MERGE_DATA})) == MergedFiles(8, 7)
    assert MergedFiles(2, 3).after(left, frozenset({Step.MERGE_DELETES})) == MergedFiles(2, 7)
