"""What a process remembers of the small files that it wrote."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.data_files import FilePositions, WrittenDeletes, joined
from replicator.lake.files.driver_files import WrittenData
from replicator.lake.files.partitions import DataFileRef, Partition
from replicator.lake.files.small_files import (
    MOST_FILES,
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
    committed(log, 7, 8, data("c"))
    assert [file.path for file in known(log, 8).data] == ["c"]
    assert known(log, 8).deletes == []


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
    old = known(log, 1).to_merge(2, 1)
    new = SmallChanges([data("m", SMALL_BYTES)], [deletes(base=range(SMALL_DELETES))], old)
    log.committed(table(1), 1, new, 2)
    assert (known(log, 2).data, known(log, 2).deletes) == ([], [])


@pytest.mark.parametrize("times", [1, 3])
def test_positions_are_split_between_removed_and_other_files_each_once(times: int) -> None:
    files = SmallFiles(1, [data("a"), data("b")], [deletes(a=[5, 1], base=[9, 2]), deletes(a=[7])] * times)
    assert {path: at.tolist() for path, at in files.deleted(["a", "b"]).items()} == {"a": [1, 5, 7]}
    kept = joined(files.to_merge(2, 1).positions)
    assert [(found.file.path, found.positions.tolist()) for found in kept] == [("base", [2, 9])]


def absorbed_by(small: SmallFiles, rows: int, positions: int) -> AbsorbedFiles:
    """Return what a commit to an unpartitioned table absorbs."""
    return small.to_absorb({"": rows}, {"": positions})


def paths(absorbed: AbsorbedFiles) -> list[str]:
    return [file.path for file in absorbed.data]


def test_larger_files_are_not_absorbed_and_neither_is_anything_before_them() -> None:
    small = SmallFiles(1, [data("a", rows=40), data("b", rows=9), data("c", rows=3)])
    assert paths(absorbed_by(small, 0, 0)) == []
    assert paths(absorbed_by(small, 1, 0)) == ["b", "c"]
    assert paths(absorbed_by(small, 2, 0)) == ["a", "b", "c"]


def test_delete_file_of_one_data_file_with_many_positions_is_passed_over() -> None:
    few, own = deletes(a=[1], b=[2]), deletes(a=range(OWN_FILE))
    assert absorbed_by(SmallFiles(1, [], [few, own]), 0, 2).deletes == [few]


def test_delete_file_that_names_only_absorbed_files_is_removed_with_them() -> None:
    useless, other = deletes(a=range(50)), deletes(a=[60], base=range(70))
    small = SmallFiles(1, [data("a")], [useless, other])
    absorbed = absorbed_by(small, 1, 1)
    assert (paths(absorbed), absorbed.deletes, absorbed.positions) == (["a"], [useless], [])
    small.commit(SmallChanges([data("b")], [], absorbed), 2)
    assert [file.path for file in small.data] == ["b"]
    # The positions in the absorbed file need never be written again.
    assert [found.file.path for file in small.deletes for found in file.positions] == ["base"]


def test_merge_is_due_if_many_rows_of_the_small_data_files_are_deleted_each_counted_once() -> None:
    files = [data("a", rows=6), data("b", rows=4)]
    small = SmallFiles(1, files, [deletes(a=[1, 2], base=range(9)), deletes(a=[2], b=[0])])
    assert not small.to_merge(3, 0.3)
    assert small.to_merge(3, 0.29) == AbsorbedFiles(files, small.deletes)
    assert not SmallFiles(1, [], [deletes(base=[1])]).to_merge(2, 0)


def in_partition(label: str) -> Partition:
    return Partition(object(), object(), label)


def test_each_partition_is_absorbed_and_merged_as_a_table_of_its_own() -> None:
    first, second = in_partition("0/a"), in_partition("0/b")
    a, b, c = (
        replace(data(path, rows=rows), partition=partition)
        for path, rows, partition in (("a", 20, first), ("b", 3, second), ("c", 2, first))
    )
    of_a, of_b = replace(deletes(a=[1], base=[1]), partition=first), replace(deletes(b=[1]), partition=second)
    small = SmallFiles(1, [a, b, c], [of_a, of_b])
    assert paths(small.to_absorb({"0/a": 1, "0/b": 1}, {})) == ["c", "b"]
    assert paths(small.to_absorb({"0/b": 1}, {})) == ["b"]
    assert small.to_absorb({}, {"0/a": 1, "0/c": 9}).deletes == [of_a]
    merged = small.to_merge(2, 0.5)
    assert (merged.data, merged.deletes) == ([a, c], [of_a])
    assert [(p.file.path, p.positions.tolist()) for p in merged.positions] == [("base", [1])]
    assert not small.to_merge(3, 0.5)


def test_deletes_of_a_known_data_file_apply_whatever_partition_they_are_recorded_for() -> None:
    """The table got its first partition field between the two commits."""
    by = replace(deletes(a=[1]), partition=in_partition("0/"))
    small = SmallFiles(1, [data("a", rows=2)], [by])
    assert small.deleted(["a"])["a"].tolist() == [1]
    assert small.to_merge(5, 0.4).deletes == [by]


def test_oldest_files_are_forgotten_but_not_the_deletes_of_known_ones() -> None:
    log = SmallFileLog()
    committed(log, None, 0, data("first"), by=[deletes(base=[1])])
    for n in range(1, MOST_FILES + 1):
        committed(log, n - 1, n, data(f"f{n}"), by=[deletes(f1=[n]) if n == 1 else deletes(base=[n])])
    small = known(log, MOST_FILES)
    assert [file.path for file in small.data] == [f"f{n}" for n in range(1, MOST_FILES + 1)]
    assert small.deleted(["f1"])["f1"].tolist() == [1]
    assert len(small.deletes) == MOST_FILES
    committed(log, MOST_FILES, MOST_FILES + 1, by=[deletes(base=[0])])
    assert len(known(log, MOST_FILES + 1).deletes) == MOST_FILES + 1


def test_first_merges_of_tables_come_after_different_numbers_of_commits_and_later_ones_after_the_usual() -> (
    None
):
    log = SmallFileLog()
    tables = [replace_name(table(1), f"orders_{n}") for n in range(50)]
    for one in tables:
        log.committed(one, None, SmallChanges([data("a")]), 1)
    first = {small.due_at(10) for one in tables if (small := log.of(one)) is not None}
    assert first <= set(range(5, 11))
    assert len(first) > 4
    log.merged(tables[0], 1, SmallChanges([data("merged")]), 1)
    small = log.of(tables[0])
    assert small is not None
    assert (small.due_at(10), small.commits) == (10, 0)


def replace_name(one: LakeTable, name: str) -> LakeTable:
    return cast("LakeTable", SimpleNamespace(**{**vars(one), "name": name}))


def test_delete_files_of_a_single_data_file_are_not_waiting_for_a_merge() -> None:
    small = SmallFiles(1, [data("a")], [deletes(base=range(OWN_FILE)), deletes(base=[1], a=[0])])
    assert small.counts() == (1, 1)
