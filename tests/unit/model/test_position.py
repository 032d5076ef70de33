"""Positions in the binlog, and sets of GTIDs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.position import MOST_FILES, MOST_POS, PackedPosition, SourcePosition, binlog_number

POSITIONS = st.builds(
    SourcePosition,
    st.integers(1, MOST_FILES).map(lambda number: f"binlog.{number:06d}"),
    st.integers(0, MOST_POS),
    st.integers(0, 1 << 30),
)
KINDS = st.integers(0, 1)


@given(POSITIONS, KINDS, POSITIONS, KINDS)
def test_packed_positions_have_the_order_of_positions(
    one: SourcePosition, kind: int, other: SourcePosition, other_kind: int
) -> None:
    packed = PackedPosition.pack(one, kind) < PackedPosition.pack(other, other_kind)
    assert packed == ((one.order, kind) < (other.order, other_kind))


@pytest.mark.parametrize(
    ("file", "number"),
    [
        ("mysql-bin.000012", 12),
        ("name.with.dots.999999", 999_999),
        ("b.1000000", 1_000_000),
        (f"b.{MOST_FILES}", MOST_FILES),
        ("b." + "0" * 5000 + "7", 7),
        ("7", 7),
    ],
)
def test_binlog_number_is_the_number_after_the_last_dot(file: str, number: int) -> None:
    assert binlog_number(file) == number


@pytest.mark.parametrize(
    "file", ["", "binlog", "b.", "b.1e3", "b.-1", "b.+", "b.++1", "b.1_0", "b.٣", f"b.{MOST_FILES + 1}"]
)
def test_binlog_number_raises_for_a_name_without_a_number_of_a_file(file: str) -> None:
    with pytest.raises(ValueError, match="not a binlog file name"):
        binlog_number(file)


A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
