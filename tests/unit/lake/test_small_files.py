"""What a process remembers of the small files that it wrote."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from replicator.lake.catalog import LakeTable
from replicator.lake.data_files import DataFileRef, FilePositions, WrittenDeletes
from replicator.lake.driver_files import WrittenData
from replicator.lake.small_files import SMALL_BYTES, SMALL_DELETES, SmallFileLog, SmallFiles


def table(snapshot_id: int | None) -> LakeTable:
    return cast("LakeTable", SimpleNamespace(namespace="shop", name="orders", snapshot_id=snapshot_id))


def data(path: str, size: int = 10) -> WrittenData:
    return WrittenData(object(), path, size)


def deletes(**positions: Any) -> WrittenDeletes:
    found = [FilePositions(DataFileRef(path), np.array(at, np.int64)) for path, at in positions.items()]
    return WrittenDeletes(object(), found)


def committed(log: SmallFileLog, before: int | None, head: int, *files: WrittenData, by: Any = ()) -> None:
    log.committed(table(head), before, files, by, head)


def known(log: SmallFileLog, snapshot_id: int) -> SmallFiles:
    found = log.of(table(snapshot_id))
    assert found is not None
    return found


def test_log_has_the_files_of_all_commits_while_no_other_commit_came_between() -> None:
    log = SmallFileLog()
    committed(log, None, 1, data("a"))
    committed(log, 1, 2, data("b"), by=[deletes(a=[3])])
    assert [file.path for file in known(log, 2).data] == ["a", "b"]
    assert known(log, 2).count == 2
    committed(log, 7, 8, data("c"))
    assert [file.path for file in known(log, 8).data] == ["c"]
    assert known(log, 8).deletes == []


def test_log_knows_nothing_of_another_snapshot() -> None:
    log = SmallFileLog()
    committed(log, None, 1, data("a"))
    assert log.of(table(2)) is None
    log.committed(table(1), 1, [data("b")], [], None)
    assert log.of(table(1)) is None


def test_large_data_file_is_not_small_but_the_files_before_stay() -> None:
    log = SmallFileLog()
    committed(log, None, 1, data("a"))
    committed(log, 1, 2, data("large", SMALL_BYTES))
    assert [file.path for file in known(log, 2).data] == ["a"]


def test_log_is_discarded_when_a_delete_file_is_too_large_to_be_remembered() -> None:
    log = SmallFileLog()
    committed(log, None, 1, data("a"))
    committed(log, 1, 2, data("b"), by=[deletes(a=range(SMALL_DELETES))])
    assert log.of(table(2)) is None


def test_merge_replaces_all_files_and_drops_those_that_are_no_longer_small() -> None:
    log = SmallFileLog()
    committed(log, None, 1, data("a"), data("b"), by=[deletes(base=[1])])
    log.merged(table(1), [data("m", SMALL_BYTES)], [deletes(base=range(SMALL_DELETES))], 2)
    assert (known(log, 2).data, known(log, 2).deletes) == ([], [])


@pytest.mark.parametrize("times", [1, 3])
def test_positions_are_split_between_removed_and_other_files_each_once(times: int) -> None:
    files = SmallFiles(1, [data("a"), data("b")], [deletes(a=[5, 1], base=[9, 2]), deletes(a=[7])] * times)
    assert {path: at.tolist() for path, at in files.deleted(["a", "b"]).items()} == {"a": [1, 5, 7]}
    kept = files.kept_deletes({"a", "b"})
    assert [(found.file.path, found.positions.tolist()) for found in kept] == [("base", [2, 9])]
