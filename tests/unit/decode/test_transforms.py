"""Hashes and masks of values of every type."""

import hmac
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from replicator.arrow_types import arrow_type
from replicator.decode.transforms import transformed
from replicator.model.transforms import Blank, FixedText, KeepLast, KeyedHash
from replicator.model.types import LakeType

KEY = b"not-a-secret-0123456789"
VALUES: tuple[tuple[str, Any, str], ...] = (
    ("boolean", True, "true"),
    ("int", -5, "-5"),
    ("long", 9223372036854775807, "9223372036854775807"),
    ("double", 0.5, "0.5"),
    ("double", 1e7, "1.0E7"),
    ("double", 9999999.0, "9999999.0"),
    ("double", -1.25e-4, "-1.25E-4"),
    ("double", 0.001, "0.001"),
    ("double", 123456789.5, "1.234567895E8"),
    ("double", 0.0, "0.0"),
    ("float", 3.140000104904175, "3.14"),
    ("float", 16777216.0, "1.6777216E7"),
    ("decimal(20, 10)", Decimal("0.0000000001"), "0.0000000001"),
    ("decimal(38, 0)", Decimal("-" + "9" * 38), "-" + "9" * 38),
    ("decimal(38, 38)", Decimal("0." + "9" * 38), "0." + "9" * 38),
    ("string", "größe 🦊 \0", "größe 🦊 \0"),
    ("string", "", ""),
    ("date", date(2024, 2, 29), "2024-02-29"),
    ("timestamp", datetime(2024, 2, 29, 10, 0, 0, 120000), "2024-02-29 10:00:00.12"),  # noqa: DTZ001
    ("timestamptz", datetime(2024, 2, 29, 10, tzinfo=UTC), "2024-02-29 10:00:00"),
    ("list<float>", [1.0, -2.5], "[1.0, -2.5]"),
)


@pytest.mark.parametrize(("kind", "value", "text"), VALUES)
def test_transforms_of_arrays_are_those_of_the_canonical_text(kind: str, value: Any, text: str) -> None:
    """The texts are what Spark's cast of such a value returns: lakes have their hashes."""
    lake_type = LakeType.parse(kind)
    values = pa.array([value, None], arrow_type(lake_type))
    for transform in (KeyedHash(KEY), KeyedHash(b"k" * 100), KeepLast(3), FixedText("it's `x`")):
        assert transformed(values, lake_type, transform).to_pylist() == [transform.of_text(text), None]
    assert transformed(values, lake_type, Blank()).to_pylist() == [None, None]


def test_binary_values_are_hashed_as_bytes_and_masked_as_hexadecimal_text() -> None:
    values, binary = pa.array([b"\x00\xff", None]), LakeType("binary")
    assert transformed(values, binary, KeyedHash(KEY)).to_pylist() == [
        hmac.new(KEY, b"\x00\xff", "sha256").hexdigest(),
        None,
    ]
    assert transformed(values, binary, KeepLast(2)).to_pylist() == ["**FF", None]
