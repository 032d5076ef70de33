"""The rows that must be read again, as threads that apply batches note them."""

from replicator.batch.state.misread_rows import MisreadRows
from replicator.model.reread import KeySpan, Narrowed
from replicator.model.table import TableId

ONE, OTHER = TableId("shop", "one"), TableId("shop", "other")


def part(*keys: int, column: str = "id") -> Narrowed:
    return Narrowed.to(column, [KeySpan(key, key, 1) for key in keys])


def test_parts_of_a_table_are_joined() -> None:
    rows = MisreadRows()
    rows.note(ONE, part(5))
    rows.note(ONE, part(9, 6))
    assert rows.take(()) == {ONE: part(5, 6, 9)}
    assert not rows.any_left


def test_rows_of_a_table_that_is_being_read_are_kept() -> None:
    rows = MisreadRows()
    rows.note(ONE, part(1))
    rows.note(OTHER, part(2))
    assert rows.take({ONE}) == {OTHER: part(2)}
    assert rows.any_left
    assert rows.take(()) == {ONE: part(1)}
