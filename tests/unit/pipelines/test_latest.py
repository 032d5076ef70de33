"""Which changes of a result need not be read: those of its newest commit, if the reader lacks no others."""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from replicator.model.commit_marker import CommitMarker
from replicator.pipelines.inputs.latest import LatestChanges

ROWS = pa.table({"id": [1]})
SIXTH = CommitMarker("shop", 6, 0, {}, committed_ms=1_000)


@dataclass
class Log:
    """What is asked of a changelog."""

    present: CommitMarker | None
    uuid: str = "a"

    def marker(self) -> CommitMarker | None:
        return self.present


def after(present: Any, commit: int, *, uuid: str = "a", noted: pa.Table | None = ROWS) -> pa.Table | None:
    latest, log = LatestChanges(), Log(present, uuid)
    latest.note(Log(None), SIXTH, ROWS)  # type: ignore[arg-type]
    latest.note(Log(None), SIXTH, noted)  # type: ignore[arg-type]
    return latest.after(log, commit)  # type: ignore[arg-type]


def test_changes_of_the_newest_commit_are_held_for_those_that_have_all_others() -> None:
    assert after(SIXTH, 5) is ROWS
    assert after(SIXTH, 4) is None, "it lacks those of the fifth, too"
    assert after(SIXTH, 6) is None, "it has them"


def test_changes_of_another_commit_or_table_are_not_held() -> None:
    assert after(replace(SIXTH, sequence=7), 5) is None
    assert after(replace(SIXTH, committed_ms=2_000), 5) is None, "written by others after a rollback"
    assert after(None, 5) is None
    assert after(SIXTH, 5, uuid="b") is None, "the changelog was made again"
    assert after(SIXTH, 5, noted=None) is None, "too many for the driver"
