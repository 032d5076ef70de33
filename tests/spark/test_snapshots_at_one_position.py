"""The connector takes its initial snapshot again at the position of the first one, on another server."""

from dataclasses import replace

import pytest

from tests.support.altered_snapshots import (
    OLD,
    SIZES,
    STATEMENTS,
    altered,
    at,
    created,
    defined,
    dropped,
    event,
    existing,
    first_server,
    image,
    play,
    read,
    snapshot,
)
from tests.support.lake_harness import LakeHarness


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_rows_of_two_snapshots_at_one_position_have_their_own_definitions(
    lake: LakeHarness, kind: str, size: int
) -> None:
    """The second one is of another server."""
    columns, action = STATEMENTS[kind]
    records = [
        *first_server(columns, action),
        *snapshot(900, 50, 50, columns, 1, 2, 3, 4),
        event("c", at(900, 60, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_second_snapshot_at_the_position_of_the_first_has_its_own_definition(
    lake: LakeHarness, kind: str, size: int
) -> None:
    """The second one is of another server, and nothing was sent between them."""
    columns, _ = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        *snapshot(900, 50, 50, columns, 1, 2, 3),
        event("c", at(900, 60, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 5)])
    changes = [r for r in lake.rows("orders", "shop_changes") if r["_change"]["offset"] < 2]
    assert sorted((r["name"], r["extra"]) for r in changes) == [("n1", 1), ("n2", 2)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_rows_have_the_definition_of_their_snapshot_also_if_the_clock_of_mysql_is_behind(
    lake: LakeHarness, kind: str, size: int
) -> None:
    """Definitions have the time of Kafka Connect, and rows that of MySQL."""
    columns, action = STATEMENTS[kind]
    place = at(900, 50, 50)
    records = [
        *first_server(columns, action),
        *defined(place, columns),
        *read(replace(place, ts_ms=place.ts_ms - 2000), columns, 1, 2, 3, 4),
        event("c", at(900, 60, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


@pytest.mark.parametrize("size", [*SIZES, 3])
@pytest.mark.fault(
    "A table is created again, and the connector takes its initial snapshot again at the position of the first one",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the rows of the second snapshot stay",
)
def test_table_that_was_created_again_keeps_the_rows_of_a_snapshot_at_the_position_of_the_first(
    lake: LakeHarness, size: int
) -> None:
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), OLD),
        event("c", at(900, 80, 40, 4), OLD, 4),
        *snapshot(900, 50, 50, OLD, 4, 5),
        event("c", at(900, 60, 60, 6), OLD, 6),
    ]
    play(lake, records, size, OLD, [image(OLD, n) for n in (4, 5, 6)])


@pytest.mark.parametrize("size", [100, -100])
@pytest.mark.parametrize("kind", STATEMENTS)
def test_changes_between_two_snapshots_at_one_position_do_not_have_a_later_definition(
    lake: LakeHarness, kind: str, size: int
) -> None:
    """The second snapshot shows the definition of the first, without GTIDs; then a statement has a lower position."""
    columns, action = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 80, 20, 0), OLD, 3),
        *snapshot(900, 50, 50, OLD, 1, 2, 3),
        altered(at(900, 70, 60, 0), columns, action),
        event("c", at(900, 90, 70, 0), columns, 4),
    ]
    play(lake, records, size, columns, [*existing(columns, 1, 2, 3), image(columns, 4)])
    changes = [r for r in lake.rows("orders", "shop_changes") if (r["id"], r["_change"]["op"]) == (3, "c")]
    assert [r["title" if kind == "rename" else "name"] for r in changes] == ["n3"]
