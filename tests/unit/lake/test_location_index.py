"""The index from key hash to location."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import LakeUnavailable
from replicator.lake.rows import keys as index_module
from replicator.lake.rows.keys import DELETED, UNKNOWN, KeyHashes, LocationIndex
from tests.support.file_limit import files_of_at_most

KEYS = st.integers(0, 40)
PUTS = st.lists(st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 1000)), max_size=12), max_size=12)


def hashes(keys: list[int]) -> KeyHashes:
    """Return hashes of which many are half equal."""
    numbers = np.array(keys, np.uint64)
    return KeyHashes((numbers // np.uint64(5)) << np.uint64(58), numbers)


def locations(values: list[int | None]) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.array([DELETED if value is None else value for value in values], np.uint64)


@given(PUTS, st.booleans(), st.booleans())
def test_find_returns_the_newest_location_of_each_key(
    puts: list[dict[int, int | None]], is_complete: bool, compact: bool
) -> None:
    index, model = LocationIndex(is_complete=is_complete), dict[int, int | None]()
    for put in puts:
        index.put(hashes(list(put)), locations(list(put.values())))
        model |= put
    if compact:
        index.compact()
    found = index.find(hashes(list(range(41)))).tolist()
    for key in range(41):
        if model.get(key) is not None:
            assert found[key] == model[key]
        elif is_complete or key not in model:
            assert found[key] in {int(UNKNOWN), int(DELETED)}
        else:
            assert found[key] == DELETED
    if compact and len(puts) > 1:
        kept = [key for key, at in model.items() if at is not None or not is_complete]
        assert len(index) <= len(model)
        assert len(index) >= len(kept)


@given(PUTS)
def test_pieces_of_a_merge_are_merged_as_the_whole(puts: list[dict[int, int | None]]) -> None:
    whole, pieces = LocationIndex(), LocationIndex()
    for put in puts:
        whole.put(hashes(list(put)), locations(list(put.values())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_PIECE", 3)
        for put in puts:
            pieces.put(hashes(list(put)), locations(list(put.values())))
    keys = hashes(list(range(41)))
    assert pieces.find(keys).tolist() == whole.find(keys).tolist()


def test_large_runs_are_in_files_that_leave_nothing_in_the_folder(tmp_path: Path) -> None:
    index, count = LocationIndex(tmp_path), 1_200_000
    numbers = np.arange(count, dtype=np.uint64)
    keys = KeyHashes(numbers << np.uint64(40), numbers)
    index.put(KeyHashes(keys.high[::2], keys.low[::2]), numbers[::2])
    index.put(KeyHashes(keys.high[1::2], keys.low[1::2]), numbers[1::2])
    assert list(tmp_path.iterdir()) == []
    assert np.array_equal(index.find(keys), numbers)
    assert isinstance(index._runs[0].high.base, np.memmap)


def test_number_of_entries_stays_below_twice_that_of_the_keys() -> None:
    index, generator, count = LocationIndex(is_complete=True), np.random.default_rng(1), 10_000
    every = np.arange(count, dtype=np.uint64)
    index.put(hashes(every.tolist()), every)
    for _ in range(200):
        keys = generator.choice(count, 300, replace=False)
        index.put(hashes(keys.tolist()), keys.astype(np.uint64))
        assert len(index) < 2 * count
        assert len(index._runs) < 8


def test_first_location_counts_when_a_key_is_put_twice_at_once() -> None:
    index = LocationIndex()
    index.put(hashes([3, 4, 3, 3]), locations([1, 2, 3, 4]))
    assert len(index) == 2
    assert index.find(hashes([3, 4])).tolist() == [1, 2]


def test_index_reports_an_error_when_its_folder_has_no_space(tmp_path: Path) -> None:
    index, numbers = LocationIndex(tmp_path), np.arange(1_200_000, dtype=np.uint64)
    index.put(KeyHashes(numbers[::2], numbers[::2]), numbers[::2])
    with files_of_at_most(1 << 20), pytest.raises(LakeUnavailable, match="cannot be stored") as error:
        index.put(KeyHashes(numbers[1::2], numbers[1::2]), numbers[1::2])
    assert "mirror.state_dir" in (error.value.hint or "")
    assert list(tmp_path.iterdir()) == []
