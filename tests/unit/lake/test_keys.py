"""Hashes of row keys, and the index by which they are found."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import LakeUnavailable
from replicator.lake.rows import keys as index_module
from replicator.lake.rows.keys import DELETED, UNKNOWN, KeyHasher, KeyHashes, LocationIndex
from replicator.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    LakeType,
    decimal,
)
from tests.support.file_limit import files_of_at_most

# ruff: noqa: DTZ001 values of columns without a time zone


def hashes(types: list[LakeType], *columns: pa.Array, seed: bytes = b"seed") -> list[tuple[int, int]]:
    keys = pa.table(list(columns), names=[f"k{i}" for i in range(len(columns))])
    found = KeyHasher(types, seed).hash(keys)
    return list(zip(found.high.tolist(), found.low.tolist(), strict=True))


VALUES: list[tuple[LakeType, pa.DataType, list[Any]]] = [
    (BOOLEAN, pa.bool_(), [True, False]),
    (INT, pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    (LONG, pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (DATE, pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    (TIMESTAMP, pa.timestamp("us"), [datetime(1970, 1, 1), datetime(1970, 1, 1, microsecond=1)]),
    (TIMESTAMPTZ, pa.timestamp("us", "UTC"), [datetime(1970, 1, 1), datetime(2026, 1, 1)]),
    (decimal(38, 2), pa.decimal128(38, 2), [Decimal("1.00"), Decimal("-1.00"), Decimal(f"{10**35}.25")]),
    (STRING, pa.string(), ["", "a", "A", "a ", "ä", "日本"]),
    (BINARY, pa.binary(), [b"", b"\0", b"\0\0", b"\xff"]),
]


@pytest.mark.parametrize(("lake_type", "arrow_type", "values"), VALUES, ids=[str(v[0]) for v in VALUES])
def test_hash_does_not_depend_on_the_other_rows_or_on_slices(
    lake_type: LakeType, arrow_type: pa.DataType, values: list[Any]
) -> None:
    whole = pa.array([*values, None, *values], arrow_type)
    expected = hashes([lake_type], whole)
    for i in range(len(whole)):
        assert hashes([lake_type], whole.slice(i, 1)) == [expected[i]]
    chunked = pa.chunked_array([whole.slice(0, 2), whole.slice(2)])
    assert hashes([lake_type], chunked) == expected


def test_equal_values_of_different_arrow_types_have_equal_hashes() -> None:
    assert hashes([LONG], pa.array([7], pa.int32())) == hashes([LONG], pa.array([7], pa.int64()))
    assert hashes([STRING], pa.array(["x"])) == hashes([STRING], pa.array(["x"], pa.large_string()))
    small, wide = pa.decimal128(5, 2), pa.decimal128(20, 2)
    value = [Decimal("3.10")]
    assert hashes([decimal(20, 2)], pa.array(value, small)) == hashes([decimal(20, 2)], pa.array(value, wide))


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=3)), unique=True, max_size=200))
def test_different_keys_have_different_hashes(keys: list[tuple[int, str]]) -> None:
    numbers, texts = pa.array([k[0] for k in keys], pa.int64()), pa.array([k[1] for k in keys], pa.string())
    assert len(set(hashes([LONG, STRING], numbers, texts))) == len(keys)


KEYS = st.integers(0, 40)
PUTS = st.lists(st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 1000)), max_size=12), max_size=12)


def half_equal(keys: list[int]) -> KeyHashes:
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
        index.put(half_equal(list(put)), locations(list(put.values())))
        model |= put
    if compact:
        index.compact()
    found = index.find(half_equal(list(range(41)))).tolist()
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
        whole.put(half_equal(list(put)), locations(list(put.values())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_PIECE", 3)
        for put in puts:
            pieces.put(half_equal(list(put)), locations(list(put.values())))
    keys = half_equal(list(range(41)))
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
    index.put(half_equal(every.tolist()), every)
    for _ in range(200):
        keys = generator.choice(count, 300, replace=False)
        index.put(half_equal(keys.tolist()), keys.astype(np.uint64))
        assert len(index) < 2 * count
        assert len(index._runs) < 8


def test_index_reports_an_error_when_its_folder_has_no_space(tmp_path: Path) -> None:
    index, numbers = LocationIndex(tmp_path), np.arange(1_200_000, dtype=np.uint64)
    index.put(KeyHashes(numbers[::2], numbers[::2]), numbers[::2])
    with files_of_at_most(1 << 20), pytest.raises(LakeUnavailable, match="cannot be stored") as error:
        index.put(KeyHashes(numbers[1::2], numbers[1::2]), numbers[1::2])
    assert "mirror.state_dir" in (error.value.hint or "")
    assert list(tmp_path.iterdir()) == []
