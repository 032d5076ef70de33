"""Which changes of a changelog need not be read: those of its newest commits, if this process made all of them."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from replicator.lake.commit import Staged
from replicator.lake.recent_changes import RecentChanges
from replicator.model.commit_marker import CommitMarker


@dataclass
class Log:
    """What is asked of a changelog."""

    present: CommitMarker | None = None
    uuid: str = "a"
    schema_id: int = 0

    def marker(self) -> CommitMarker | None:
        return self.present


def marker(sequence: int, committed_ms: int = 1_000) -> CommitMarker:
    return CommitMarker("shop", sequence, 0, {}, committed_ms=committed_ms)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


class Changes:
    """Commits to one changelog."""

    def __init__(self) -> None:
        self.recent = RecentChanges()
        self.since(Log(), 1)

    def commit(self, sequence: int, *ids: int, base: CommitMarker | None = None, **facts: Any) -> None:
        staged = facts.pop("staged", None) or (Staged(["file"], rows=rows(*ids)) if ids else Staged())
        new = marker(sequence, facts.pop("committed_ms", 1_000))
        self.recent.committed(Log(**facts), base or marker(sequence - 1), new, staged)  # type: ignore[arg-type]

    def since(self, log: Log, first: int) -> list[int] | None:
        found = self.recent.since(log, first)  # type: ignore[arg-type]
        return None if found is None else found.column("id").to_pylist()


@pytest.fixture
def changes() -> Changes:
    """Three commits."""
    found = Changes()
    for sequence in (6, 7, 8):
        found.commit(sequence, sequence * 10, sequence * 10 + 1)
    return found


def test_changes_are_those_from_a_commit_on(changes: Changes) -> None:
    assert changes.since(Log(marker(8)), 7) == [70, 71, 80, 81]
    assert changes.since(Log(marker(8)), 9) == []
    assert changes.since(Log(marker(7)), 6) == [60, 61, 70, 71], "a table that was loaded earlier"
    assert changes.since(Log(marker(8)), 5) is None, "the fifth was not noted"
    assert changes.since(Log(marker(9)), 9) is None, "another process made the newest"
    assert changes.since(Log(marker(8, 2_000)), 8) is None, "another one with this number, after a rollback"
    assert changes.since(Log(None), 1) is None


def test_changes_of_another_table_or_with_other_columns_are_read(changes: Changes) -> None:
    assert changes.since(Log(marker(8), uuid="b"), 8) is None, "the changelog was made again"
    assert changes.since(Log(marker(8), schema_id=1), 8) is None
    changes.commit(9, 90, schema_id=1)
    assert changes.since(Log(marker(9), schema_id=1), 9) == [90]
    assert changes.since(Log(marker(9), schema_id=1), 8) is None


def test_commits_on_top_of_others_begin_anew(changes: Changes) -> None:
    changes.commit(8, 1, committed_ms=2_000)
    assert changes.since(Log(marker(8, 2_000)), 8) == [1]
    assert changes.since(Log(marker(8, 2_000)), 7) is None, "the seventh came before the former eighth"
    changes.commit(10, 100, base=marker(9))
    assert changes.since(Log(marker(10)), 10) == [100]
    assert changes.since(Log(marker(10)), 9) is None


def test_commits_without_rows_are_followed_and_those_with_unknown_ones_are_not(changes: Changes) -> None:
    changes.commit(9, staged=Staged())
    assert changes.since(Log(marker(9)), 8) == [80, 81]
    changes.commit(10, staged=Staged(["file"]))
    assert changes.since(Log(marker(10)), 10) is None
    changes.commit(11, *range(60_000))
    assert changes.since(Log(marker(11)), 11) is None, "too many for the driver"


def test_of_many_changes_the_newest_are_held(changes: Changes) -> None:
    changes.commit(9, *range(49_999))
    assert changes.since(Log(marker(9)), 9) == [*range(49_999)]
    assert changes.since(Log(marker(9)), 8) is None


def test_few_commits_are_held_however_small_they_are(changes: Changes) -> None:
    for sequence in range(9, 209):
        changes.commit(sequence, *([sequence] if sequence % 2 else []), staged=None)
    assert changes.since(Log(marker(208)), 108) is None
    assert changes.since(Log(marker(208)), 109) == list(range(109, 208, 2))


def test_only_what_a_reader_asked_for_is_held() -> None:
    recent = RecentChanges()
    for sequence in (1, 2):
        log: Any = Log(marker(sequence))
        recent.committed(log, marker(sequence - 1), marker(sequence), Staged(["file"], rows=rows(sequence)))
        assert (recent.since(log, sequence) is None) is (sequence == 1)
