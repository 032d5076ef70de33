"""Canonical texts: one value has one text, however it is stored. Checksums differ if any value differs."""

import hashlib
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import SchemaError
from replicator.operations.verify.checksum import (
    CanonicalColumn,
    Kind,
    TableChecksum,
    canonical_array,
    canonical_value,
    checksum,
    checksum_texts,
    row_texts,
)

MOMENT = datetime(2024, 2, 29, 23, 59, 59, 120)  # noqa: DTZ001 - DATETIME is a wall clock


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.NUMBER, 0, "0"),
        (Kind.NUMBER, True, "1"),
        (Kind.NUMBER, b"\x01", "1"),
        (Kind.NUMBER, 2**64 - 1, "18446744073709551615"),
        (Kind.NUMBER, Decimal(18446744073709551615), "18446744073709551615"),
        (Kind.NUMBER, Decimal("-0.00"), "0"),
        (Kind.NUMBER, Decimal(100), "100"),
        (Kind.NUMBER, Decimal("1E+3"), "1000"),
        (Kind.NUMBER, Decimal("12.3400"), "12.34"),
        (Kind.NUMBER, "12.3400", "12.34"),
        (Kind.NUMBER, Decimal("0.00000001"), "0.00000001"),
        (Kind.FLOAT, 3, "3.0"),
        (Kind.FLOAT, -0.0, "0.0"),
        (Kind.FLOAT, 0.1, "0.1"),
        (Kind.TEXT, "naïve 🦊", "naïve 🦊"),
        (Kind.BYTES, b"\x00\xff", "00ff"),
        (Kind.DATE, date(1, 2, 3), "0001-02-03"),
        (Kind.DATETIME, MOMENT, "2024-02-29 23:59:59.000120"),
        (Kind.DATETIME, MOMENT.replace(tzinfo=UTC), "2024-02-29 23:59:59.000120"),
        (
            Kind.DATETIME,
            MOMENT.replace(tzinfo=timezone(timedelta(hours=-2))),
            "2024-03-01 01:59:59.000120",
        ),
        (Kind.TIME, timedelta(hours=-30, microseconds=1), "-107999999999"),
        (Kind.TIME, -107999999999, "-107999999999"),
        (Kind.JSON, '{"b": [1.0, 2.50, null], "a": "é"}', '{"a":"é","b":[1,2.5,null]}'),
        # Doubles, however they are written, and the greatest integer.
        (Kind.JSON, "[1e300, 1e19, 1e22]", f"[1e+300,{10**19},1e+22]"),
        (Kind.JSON, f"[{10**300}, {10**19}, {10**22}]", f"[1e+300,{10**19},1e+22]"),
        (Kind.JSON, "[18446744073709551615, 9007199254740993]", "[18446744073709551615,9007199254740993]"),
        (Kind.VECTOR, [1.0, -0.0, 0.1], "0000803f00000080cdcccc3d"),
        (Kind.VECTOR, "0000803F00000080CDCCCC3D", "0000803f00000080cdcccc3d"),
        # Values that MySQL can store and Python cannot.
        (Kind.DATE, "0000-00-00", "0000-00-00"),
        (Kind.DATE, "2024-02-00", "2024-02-00"),
        (Kind.DATETIME, "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ],
)
def test_canonical_value_returns_the_canonical_text_of_each_kind(kind: Kind, value: Any, text: str) -> None:
    assert canonical_value(kind, value) == text.encode()


def test_canonical_value_of_null_is_null() -> None:
    assert all(canonical_value(kind, None) is None for kind in Kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.NUMBER, "x"),
        (Kind.TEXT, 5),
        (Kind.BYTES, "x"),
        (Kind.DATE, MOMENT),
        (Kind.DATETIME, "2024-01-01"),
        (Kind.JSON, "{"),
        (Kind.FLOAT, "x"),
    ],
)
def test_canonical_value_refuses_a_value_of_another_kind(kind: Kind, value: Any) -> None:
    with pytest.raises(SchemaError, match=f"the source has {kind}"):
        canonical_value(kind, value)


DATETIMES = st.datetimes()
ARRAYS: dict[str, tuple[Kind, pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (Kind.NUMBER, pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (Kind.NUMBER, pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "boolean": (Kind.NUMBER, pa.bool_(), st.booleans()),
    "decimal": (
        Kind.NUMBER,
        pa.decimal128(12, 4),
        st.decimals(-(10**8) + 1, 10**8 - 1, places=4, allow_nan=False),
    ),
    "whole decimal": (Kind.NUMBER, pa.decimal128(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    "fine decimal": (
        Kind.NUMBER,
        pa.decimal128(30, 20),
        st.decimals(-(10**9), 10**9, places=20, allow_nan=False),
    ),
    "decimal as text": (
        Kind.NUMBER,
        pa.string(),
        st.decimals(allow_nan=False, allow_infinity=False).map(str),
    ),
    "double": (Kind.FLOAT, pa.float64(), st.floats(allow_nan=False)),
    "float": (Kind.FLOAT, pa.float32(), st.floats(allow_nan=False, width=32)),
    "text": (Kind.TEXT, pa.string(), st.text()),
    "large text": (Kind.TEXT, pa.large_string(), st.text()),
    "bytes": (Kind.BYTES, pa.binary(), st.binary()),
    "date": (Kind.DATE, pa.date32(), st.dates()),
    "datetime": (Kind.DATETIME, pa.timestamp("us"), DATETIMES),
    "millis": (
        Kind.DATETIME,
        pa.timestamp("ms"),
        DATETIMES.map(lambda d: d.replace(microsecond=d.microsecond // 1000 * 1000)),
    ),
    "timestamp": (Kind.DATETIME, pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "time": (Kind.TIME, pa.int64(), st.integers(-(10**13), 10**13)),
    "json": (
        Kind.JSON,
        pa.string(),
        st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False)).map(
            json.dumps
        ),
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
@given(data=st.data())
def test_canonical_array_equals_canonical_value_of_each_item(name: str, data: st.DataObject) -> None:
    kind, arrow_type, strategy = ARRAYS[name]
    values = data.draw(st.lists(st.none() | strategy, max_size=8))
    texts = canonical_array(kind, pa.array(values, arrow_type))
    assert texts.type == pa.large_binary()
    assert texts.to_pylist() == [canonical_value(kind, value) for value in values]


TEXTS = st.lists(st.lists(st.none() | st.binary(max_size=4), min_size=2, max_size=2), min_size=1, max_size=6)


def frame(row: list[bytes | None]) -> bytes:
    """Return a row text by its definition."""
    return b"".join(b"-" if value is None else b"%d:%s" % (len(value), value) for value in row)


def arrays(rows: list[list[bytes | None]]) -> list[pa.Array]:
    return [pa.array([row[n] for row in rows], pa.large_binary()) for n in range(2)]


@given(rows=TEXTS)
def test_row_texts_contain_each_value_with_its_length(rows: list[list[bytes | None]]) -> None:
    assert row_texts(arrays(rows)).to_pylist() == [frame(row) for row in rows]


@given(rows=TEXTS, others=TEXTS)
def test_row_texts_are_equal_only_for_equal_rows(
    rows: list[list[bytes | None]], others: list[list[bytes | None]]
) -> None:
    texts, other_texts = (row_texts(arrays(each)).to_pylist() for each in (rows, others))
    assert (texts == other_texts) == (rows == others)


@given(data=st.data(), rows=TEXTS)
def test_checksum_ignores_row_order_and_is_additive(
    data: st.DataObject, rows: list[list[bytes | None]]
) -> None:
    texts = [frame(row) for row in rows]
    cut = data.draw(st.integers(0, len(texts)))
    whole = checksum_texts(texts)
    assert checksum_texts(data.draw(st.permutations(texts))) == whole
    assert checksum_texts(texts[:cut]) + checksum_texts(texts[cut:]) == whole


@given(rows=TEXTS, others=TEXTS)
def test_checksum_differs_when_rows_differ(
    rows: list[list[bytes | None]], others: list[list[bytes | None]]
) -> None:
    texts, other_texts = (sorted(map(frame, each)) for each in (rows, others))
    assert (checksum_texts(texts) == checksum_texts(other_texts)) == (texts == other_texts)


def test_checksum_equals_a_manual_computation() -> None:
    digest = hashlib.md5(b"2:12-3:abc", usedforsecurity=False).hexdigest()
    batch = pa.record_batch({"b": ["abc"], "x": pa.array([None], pa.int32()), "a": [12]})
    columns = [
        CanonicalColumn("a", Kind.NUMBER),
        CanonicalColumn("x", Kind.NUMBER),
        CanonicalColumn("b", Kind.TEXT),
    ]
    result = checksum([batch, batch.slice(0, 0)], columns)
    assert (result.rows, result.hex) == (1, digest)
    double = checksum([pa.Table.from_batches([batch, batch])], columns)
    assert double == result + result
    assert double.hex != result.hex


def test_checksum_of_no_rows_is_zero() -> None:
    assert checksum([], [CanonicalColumn("a", Kind.TEXT)]) == TableChecksum()
    assert TableChecksum().hex == "0" * 32


def test_checksum_names_a_missing_or_unsuitable_column() -> None:
    batch = pa.record_batch({"a": ["x"]})
    with pytest.raises(SchemaError, match="'b' of the source is missing"):
        checksum([batch], [CanonicalColumn("b", Kind.TEXT)])
    with pytest.raises(SchemaError, match="column 'a': str value where the source has number"):
        checksum([batch], [CanonicalColumn("a", Kind.NUMBER)])


def test_checksum_finds_columns_by_their_source_names() -> None:
    columns = [CanonicalColumn(name, Kind.NUMBER) for name in ("id", "_pos", "_pos_", "_file")]
    source = checksum([pa.table({"id": [1], "a": [2], "b": [3], "c": [4]})], [
        CanonicalColumn(name, Kind.NUMBER) for name in ("id", "a", "b", "c")
    ])  # fmt: skip
    lake = pa.table({"_file_": [4], "id": [1], "_pos__": [2], "_pos_": [3]})
    assert checksum([lake], columns) == source
    with pytest.raises(SchemaError, match="'_pos' of the source is missing"):
        checksum([lake.drop_columns(["_pos__"])], columns)
