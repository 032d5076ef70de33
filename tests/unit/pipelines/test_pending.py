"""Which changes of an input a refresh takes, and which it holds for the next one."""

import pyarrow as pa
import pytest

from replicator.errors import Unsettled
from replicator.pipelines.inputs.pending import META, Pending, classified

Image = tuple[str, int, int, int, bool]
"""Operation, partition, offset, commit, and whether it is after the boundary."""


def of(*images: Image) -> Pending:
    columns: list[tuple[object, ...]] = list(zip(*images, strict=True)) or [()] * len(META)
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.bool_())
    rows = {name: pa.array(values, kind) for name, values, kind in zip(META, columns, types, strict=True)}
    return classified(pa.table(rows), "shop.orders")


def test_nothing_is_pending() -> None:
    assert of() == Pending()


def test_changes_from_before_the_boundary_are_new() -> None:
    assert of(("c", 0, 5, 3, False), ("d", 1, 9, 3, False)) == Pending(2)


def test_changes_from_after_it_are_held_from_the_first_of_each_partition_on() -> None:
    found = of(
        ("c", 0, 5, 3, False),
        ("u", 0, 6, 3, True),
        ("u", 0, 7, 4, True),
        ("c", 1, 9, 3, False),
        ("d", 2, 1, 4, True),
    )
    assert found == Pending(2, 3, {0: 6, 2: 1}, 3)


def test_truncated_table_is_computed_as_a_whole() -> None:
    assert of(("c", 0, 5, 3, False), ("t", 0, 6, 3, False)).restated == "the table was truncated"
    assert of(("r", 0, 5, 3, False)).restated == "the connector read the table again"
    assert of(("h", 0, 5, 3, False)).restated is None


@pytest.mark.parametrize(("op", "reason"), [("t", "op t"), ("r", "rows that were read")])
def test_change_that_cannot_be_undone_is_waited_for(op: str, reason: str) -> None:
    with pytest.raises(Unsettled, match=reason):
        of(("c", 0, 5, 3, False), (op, 0, 6, 3, True))


def test_change_that_the_next_refresh_would_take_twice_is_waited_for() -> None:
    with pytest.raises(Unsettled, match="behind later ones"):
        of(("c", 0, 5, 3, True), ("c", 0, 6, 3, False))
    # A difference that a re-read found lies before the next event, in a later commit.
    assert of(("c", 0, 5, 3, False), ("h", 0, 5, 4, True), ("c", 0, 6, 5, True)).held_commit == 4
