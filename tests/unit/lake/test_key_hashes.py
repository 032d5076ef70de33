"""Hashes of row keys."""
# ruff: noqa: DTZ001 values of columns without a time zone

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.lake.rows.keys import KeyHasher
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
def test_different_values_have_different_hashes(
    lake_type: LakeType, arrow_type: pa.DataType, values: list[Any]
) -> None:
    found = hashes([lake_type], pa.array([*values, None], arrow_type))
    assert len({high for high, _ in found}) == len({low for _, low in found}) == len(values) + 1


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


def test_keys_of_several_columns_differ_by_order_and_by_boundaries() -> None:
    first, second = pa.array(["a", "ab", "b", None, ""]), pa.array(["bc", "c", "a", "", None])
    found = hashes([STRING, STRING], first, second)
    swapped = hashes([STRING, STRING], second, first)
    # ("", null) and (null, "") occur in both.
    assert len({*found, *swapped}) == 10 - 2


def test_hash_depends_on_the_seed() -> None:
    keys = pa.array([1])
    assert hashes([LONG], keys, seed=b"one") != hashes([LONG], keys, seed=b"two")
    one, two = (KeyHasher([LONG]).hash(pa.table({"k0": keys})) for _ in range(2))
    assert one.high[0] != two.high[0]


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=3)), unique=True, max_size=200))
def test_different_keys_have_different_hashes(keys: list[tuple[int, str]]) -> None:
    numbers, texts = pa.array([k[0] for k in keys], pa.int64()), pa.array([k[1] for k in keys], pa.string())
    assert len(set(hashes([LONG, STRING], numbers, texts))) == len(keys)


def test_hashes_are_distributed_evenly() -> None:
    """The index splits its runs at equal distances of the hash."""
    found = KeyHasher([LONG]).hash(pa.table({"k0": np.arange(100_000)}))
    counts = np.bincount((found.high >> np.uint64(60)).astype(int), minlength=16)
    assert counts.min() > 5_900
    assert counts.max() < 6_600
