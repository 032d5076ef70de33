"""Positions and their packed form."""

from hypothesis import given
from hypothesis import strategies as st

from replicator.model.position import MOST_FILES, MOST_POS, PackedPosition, SourcePosition

POSITIONS = st.builds(
    SourcePosition,
    st.integers(1, MOST_FILES).map(lambda number: f"binlog.{number:06d}"),
    st.integers(0, MOST_POS),
    st.integers(0, 1 << 30),
)
KINDS = st.integers(0, 1)


@given(POSITIONS, KINDS)
def test_packed_position_unpacks_to_the_same(position: SourcePosition, kind: int) -> None:
    packed = PackedPosition.pack(position, kind)
    assert packed.unpack() == position
    assert packed.unpack().file == position.file
    assert packed.kind == kind
    assert 0 <= packed.position_key < 1 << 63


@given(POSITIONS, KINDS, POSITIONS, KINDS)
def test_packed_positions_have_the_order_of_positions(
    one: SourcePosition, kind: int, other: SourcePosition, other_kind: int
) -> None:
    packed = PackedPosition.pack(one, kind) < PackedPosition.pack(other, other_kind)
    assert packed == ((one.order, kind) < (other.order, other_kind))
