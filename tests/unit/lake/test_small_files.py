"""What a process remembers of the small files that it wrote."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from replicator.lake.catalog import LakeTable
from replicator.lake.data_files import FilePositions, WrittenDeletes
from replicator.lake.driver_files import WrittenData
from replicator.lake.partitions import DataFileRef
from replicator.lake.small_files import (
    OWN_FILE,
    SMALL_BYTES,
    SMALL_DELETES,
    AbsorbedFiles,
    SmallChanges,
    SmallFileLog,
    SmallFiles,
)


def table(snapshot_id: int | None) -> LakeTable:
    return cast("LakeTable", SimpleNamespace(namespace="shop", name="orders", snapshot_id=snapshot_id))


def data(path: str, size: int = 10, rows: int = 1) -> WrittenData:
    return WrittenData(object(), path, size, rows)


def deletes(**positions: Any) -> WrittenDeletes:
    found = [FilePositions(DataFileRef(path), np.array(at, np.int64)) for path, at in positions.items()]
    return WrittenDeletes(object(), found)


def committed(log: SmallFileLog, before: int | None, head: int, *files: WrittenData, by: Any = ()) -> None:
    log.committed(table(head), before, SmallChanges(files, by), head)


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
    log.committed(table(1), 1, SmallChanges([data("b")]), None)
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


def paths(absorbed: AbsorbedFiles) -> list[str]:
    return [file.path for file in absorbed.data]


def test_commits_of_equal_size_leave_a_logarithm_of_files() -> None:
    log, most, written = SmallFileLog(), 0, 0
    for n in range(1, 1025):
        small = log.of(table(n - 1))
        absorbed = AbsorbedFiles() if small is None else small.to_absorb(1, 1)
        rows = 1 + sum(file.rows for file in absorbed.data)
        at = [0] * (1 + sum(file.count for file in absorbed.deletes))
        changes = SmallChanges([data(f"f{n}", rows=rows)], [deletes(base=at, other=[])], absorbed)
        log.committed(table(n), n - 1, changes, n)
        most, written = max(most, known(log, n).count), written + rows
    assert sum(file.rows for file in known(log, 1024).data) == 1024
    assert most <= 6
    assert written <= 11 * 1024
    assert [file.path for file in known(log, 1024).data] == [
        f"f{file.snapshot_id}" for file in known(log, 1024).data
    ]


def test_larger_files_are_not_absorbed_and_neither_is_anything_before_them() -> None:
    small = SmallFiles(1, [data("a", rows=40), data("b", rows=9), data("c", rows=3)])
    assert paths(small.to_absorb(0, 0)) == []
    assert paths(small.to_absorb(1, 0)) == ["b", "c"]
    assert paths(small.to_absorb(2, 0)) == ["a", "b", "c"]


def test_delete_file_of_one_data_file_with_many_positions_is_passed_over() -> None:
    few, own = deletes(a=[1], b=[2]), deletes(a=range(OWN_FILE))
    assert SmallFiles(1, [], [few, own]).to_absorb(0, 2).deletes == [few]


def test_delete_files_of_one_data_file_are_absorbed_if_it_gets_another_one() -> None:
    first, second = deletes(a=range(OWN_FILE)), deletes(b=range(OWN_FILE))
    shared = deletes(a=range(OWN_FILE, 2 * OWN_FILE), b=[OWN_FILE])
    small = SmallFiles(1, [], [first, second, shared])
    assert small.to_absorb(0, 500).deletes == []
    assert small.to_absorb(0, 2000).deletes == [first, shared]


def test_delete_file_that_names_only_absorbed_files_is_removed_with_them() -> None:
    useless, other = deletes(a=range(50)), deletes(a=[60], base=range(70))
    small = SmallFiles(1, [data("a")], [useless, other])
    absorbed = small.to_absorb(1, 1)
    assert (paths(absorbed), absorbed.deletes, absorbed.positions) == (["a"], [useless], [])
    small.commit(SmallChanges([data("b")], [], absorbed), 2)
    assert [file.path for file in small.data] == ["b"]
    # The positions in the absorbed file need never be written again.
    assert [found.file.path for file in small.deletes for found in file.positions] == ["base"]


def test_deleted_share_counts_each_deleted_row_of_the_small_data_files_once() -> None:
    files = [data("a", rows=6), data("b", rows=4)]
    assert (
        SmallFiles(1, files, [deletes(a=[1, 2], base=range(9)), deletes(a=[2], b=[0])]).deleted_share == 0.3
    )
    assert SmallFiles(1, [], [deletes(base=[1])]).deleted_share == 0
