"""The lake follows the definition of a repeated snapshot before its rows are read."""

from collections.abc import Sequence

import pytest

from tests.oracle.events import ColumnSpec
from tests.oracle.model import Record
from tests.support.altered_snapshots import (
    OLD,
    STATEMENTS,
    altered,
    at,
    event,
    image,
    rows,
    run_in_pieces,
    snapshot,
)
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness

KINDS = ["rename", "add"]


def shown_and_failed_over(columns: Sequence[ColumnSpec], partition: int = 0) -> list[Record]:
    """Return a log in which a repeated snapshot shows an ALTER TABLE that was not sent; a third server follows."""
    return [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        *snapshot(901, 65, 50, columns, 1, 2, 3),
        event("c", at(901, 75, 60, 5), columns, 4),
        event("c", at(3, 75, 70, 6), columns, 5, partition=partition),
        event("c", at(3, 85, 80, 7), columns, 6),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.fault(
    "A fail-over to a server with lower positions soon after a repeated snapshot whose definition was followed before "
    "its rows were read",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the changes have the columns that the snapshot's definition shows",
)
def test_changes_of_a_third_server_have_a_definition_that_was_followed_before_the_rows(
    lake: LakeHarness, kind: str, partition: int
) -> None:
    columns, _ = STATEMENTS[kind]
    assert run_in_pieces(lake, shown_and_failed_over(columns, partition), [5, 7]) == {}
    assert rows(lake, columns) == [image(columns, n) for n in (1, 2, 3, 4, 5, 6)]


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_a_third_server_have_the_definition_of_the_snapshot_after_a_kill(
    lake: LakeHarness, kind: str
) -> None:
    """The changelog of the part with the snapshot was committed, and the mirror was not."""
    columns, _ = STATEMENTS[kind]
    lake.write(shown_and_failed_over(columns))
    with pytest.raises(PowerCut), power_cut(2, "between-commits"):
        lake.catch_up()
    assert lake.catch_up().summary().paused == {}
    assert rows(lake, columns) == [image(columns, n) for n in (1, 2, 3, 4, 5, 6)]


@pytest.mark.parametrize("kind", KINDS)
def test_statement_in_the_batch_of_the_rows_does_not_hide_the_snapshot(lake: LakeHarness, kind: str) -> None:
    columns, _ = STATEMENTS[kind]
    more = (*columns, ColumnSpec("more", "int"))
    records = [
        *shown_and_failed_over(columns),
        altered(at(3, 90, 90, 8), more, "ADD COLUMN more INT"),
        event("c", at(3, 95, 91, 9), more, 7),
    ]
    assert run_in_pieces(lake, records, [5, 7]) == {}
    wanted: list[dict[str, object]] = [image(columns, n) | {"more": None} for n in (1, 2, 3, 4, 5, 6)]
    assert rows(lake, more) == [*wanted, image(more, 7)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", [3, 901])
def test_changes_from_before_the_snapshot_do_not_have_its_definition_that_was_followed(
    lake: LakeHarness, kind: str, file: int
) -> None:
    """The topic of the table is read late: the mirror has followed the definition, and a batch has all events."""
    columns, _ = STATEMENTS[kind]
    first, change = snapshot(900, 50, 10, OLD, 1, 2), event("c", at(900, 60, 20, 1), OLD, 3)
    second = snapshot(file, 65, 50, columns, 1, 2, 3)
    later = event("c", at(file, 75, 60, 5), columns, 4)
    records = [*first, *second[:2], change, *second[2:], later]
    assert run_in_pieces(lake, records, [4, 6]) == {}
    assert rows(lake, columns) == [image(columns, n) for n in (1, 2, 3, 4)]
    changes = [r for r in lake.rows("orders", "shop_changes") if r["_change"]["op"] == "c" and r["id"] == 3]
    assert [(r["name"], r["extra"]) for r in changes] == [("n3", 3)]
