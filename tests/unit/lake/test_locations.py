"""The cache of row locations: which tables it keeps, and what a table's index answers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from replicator.errors import LakeUnavailable
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.partitions import DataFileRef
from replicator.lake.rows.keys import ENTRY_BYTES
from replicator.lake.rows.locations import FileKeys, ReadCost, RowChanges, RowLocationCache, RowLocations
from replicator.model.types import LONG, STRING
from tests.support.file_limit import files_of_at_most


def table(name: str, snapshot_id: int | None, *, empty: bool = False, **columns: Any) -> LakeTable:
    return cast(
        "LakeTable",
        SimpleNamespace(
            namespace="shop",
            name=name,
            snapshot_id=snapshot_id,
            is_empty=empty,
            columns=lambda: columns or {"id": LONG},
            has_snapshot=lambda wanted: wanted in (snapshot_id, 1),
        ),
    )


def ids(*values: int) -> pa.Table:
    return pa.table({"k0": pa.array(values, pa.int64())})


def found(known: RowLocations, *values: int) -> tuple[dict[str, list[int]], list[int]]:
    files, searched = known.find(ids(*values))
    return {f.file.path: f.positions.tolist() for f in files}, searched.tolist()


def commit(
    cache: RowLocationCache,
    name: str,
    before: int | None,
    head: int,
    keys: pa.Table,
    rows: pa.Table,
    path: str,
) -> None:
    loaded = table(name, before, empty=before is None)
    changes = RowChanges(cache.of(loaded, ("id",)), keys, [FileKeys(rows, DataFileRef(path))])
    cache.committed(loaded, changes, head)


def test_keys_of_commits_are_located_and_others_are_searched_in_the_base() -> None:
    cache = RowLocationCache()
    commit(cache, "orders", 1, 2, ids(5, 6, 7), ids(7, 5), "a")
    known = cache.of(table("orders", 2), ("id",))
    assert (known.base, known.head, known.is_complete) == (1, 2, False)
    assert found(known, 5, 6, 7, 8) == ({"a": [0, 1]}, [3]), "6 was deleted, 8 must be searched"


def test_locations_are_discarded_when_the_key_or_its_type_changes() -> None:
    cache = RowLocationCache()
    commit(cache, "orders", None, 1, ids(1), ids(1), "a")
    assert not len(cache.of(table("orders", 1, id=STRING), ("id",)).index)


def test_table_that_was_used_least_recently_is_discarded_when_the_limit_is_exceeded() -> None:
    cache = RowLocationCache(most_bytes=8 * ENTRY_BYTES)
    for name in ("first", "second"):
        commit(cache, name, None, 1, ids(1, 2, 3), ids(1, 2, 3), "a")
    commit(cache, "first", 1, 2, ids(1), ids(1), "b")
    commit(cache, "third", None, 1, ids(1, 2, 3), ids(1, 2, 3), "a")
    sizes = {
        name: len(cache.of(table(name, head), ("id",)).index)
        for name, head in (("first", 2), ("second", 1), ("third", 1))
    }
    assert sizes == {"first": 4, "second": 0, "third": 3}


def test_all_keys_are_read_once_searching_has_taken_as_long() -> None:
    cache = RowLocationCache(most_bytes=200 * ENTRY_BYTES, cost=ReadCost(constant=1.0, row=0.1, few=-1))
    known = cache.of(table("orders", 1), ("id",))
    assert not cache.is_worth_reading(known, 10)
    known.searched_s = 2.0
    assert cache.is_worth_reading(known, 10)
    assert not cache.is_worth_reading(known, 11)
    known.searched_s = 1000.0
    assert cache.is_worth_reading(known, 100)
    assert not cache.is_worth_reading(known, 101), "its index would be larger than the limit"


def test_merged_rows_are_at_their_new_positions() -> None:
    cache = RowLocationCache()
    commit(cache, "orders", None, 1, ids(1, 2, 3), ids(1, 2, 3), "a")
    commit(cache, "orders", 1, 2, ids(2, 4), ids(4, 2), "b")
    rows = pa.table({"name": ["x", "y", "z", "w"], "id": [3, 1, 4, 2]})
    cache.merged(table("orders", 3), 2, {"a", "b"}, [(rows, DataFileRef("m"))], 3)
    known = cache.of(table("orders", 3), ("id",))
    assert found(known, 1, 2, 3, 4) == ({"m": [0, 1, 2, 3]}, [])
    assert known.index.find(known.hash(ids(3)))[0] & np.uint64(2**32 - 1) == 0


@pytest.mark.parametrize("by_merge", [False, True], ids=["commit", "merge"])
def test_index_that_cannot_be_stored_is_discarded(tmp_path: Path, *, by_merge: bool) -> None:
    count, cache = 1_100_000, RowLocationCache(tmp_path)
    first, second = (pa.table({"k0": np.arange(start, start + count)}) for start in (0, count))
    commit(cache, "orders", None, 1, first, first, "a")

    def fail() -> None:
        if by_merge:
            rows = second.rename_columns(["id"])
            cache.merged(table("orders", 2), 1, {"a"}, [(rows, DataFileRef("m"))], 2)
        else:
            commit(cache, "orders", 1, 2, second, second, "b")

    with files_of_at_most(1 << 20), pytest.raises(LakeUnavailable):
        fail()
    for snapshot_id in (1, 2):
        assert not len(cache.of(table("orders", snapshot_id), ("id",)).index)
