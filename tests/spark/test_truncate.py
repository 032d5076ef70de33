"""TRUNCATE of a table whose topic has several partitions, for different batches."""

import json
from typing import Any

import pytest

from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
)
from tests.oracle.model import Record
from tests.support.config import STRATEGIES
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS, DEFINITION, ORDERS, event, ids

SCATTERED = [
    event("c", 101, after={"id": 1, "name": "a"}),
    event("c", 102, after={"id": 2, "name": "b"}, partition=1),
    event("t", 200),
    event("c", 301, after={"id": 3, "name": "c"}, partition=1),
    event("c", 302, after={"id": 4, "name": "d"}, partition=1),
    event("d", 303, before={"id": 4, "name": "d"}, partition=1),
    event("c", 304, after={"id": 5, "name": "e"}),
]
"""Events of a truncated table on two partitions; the TRUNCATE event is in one of them only."""


@pytest.mark.parametrize(("strategy", "format_version"), STRATEGIES)
@pytest.mark.parametrize("cut", [{0: 2}, {1: 2}, {0: 1, 1: 2}, {0: 1, 1: 3}, {0: 3, 1: 1}, {0: 3}])
def test_truncate_removes_older_rows_of_all_partitions(
    lake: LakeHarness, strategy: str, format_version: int, cut: dict[int, int]
) -> None:
    """Older events may arrive after it, and newer ones before it."""
    lake.write([DEFINITION, *SCATTERED])
    mirror = lake.mirror(lake.config(apply={"strategy": strategy, "format_version": format_version}))
    mirror.advance({ORDERS: cut})
    mirror.advance({ORDERS: {0: 3, 1: 4}})
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lake.rows("orders")) == [3, 5]
    assert len(lake.rows("orders", "shop_changes")) == 7


def of_transaction(number: int, file: int, op: str, partition: int, row: dict[str, Any] | None) -> Record:
    place = Place(file, number, gtid=f"00000001-1111-1111-1111-111111111111:{number}")
    key = None if row is None else key_of(row, ["id"])
    return Record(ORDERS, partition, key, change_event(op, place, "orders", after=row))


@pytest.mark.parametrize("cut", [{0: 2, 1: 2}, {0: 1, 1: 1}, {0: 1, 1: 2}, {0: 2}])
def test_truncate_after_a_fail_over_to_lower_positions_removes_older_rows(
    lake: LakeHarness, cut: dict[int, int]
) -> None:
    rows = [{"id": number, "name": "a"} for number in range(1, 5)]
    lake.write(
        [
            DEFINITION,
            of_transaction(11, 9, "c", 0, rows[0]),
            of_transaction(12, 9, "c", 1, rows[1]),
            of_transaction(13, 2, "t", 0, None),
            of_transaction(14, 2, "c", 1, rows[2]),
            of_transaction(15, 2, "c", 0, rows[3]),
        ]
    )
    mirror = lake.mirror()
    mirror.advance({ORDERS: cut})
    mirror.advance({ORDERS: {0: 3, 1: 2}})
    assert mirror.summary().paused == {}
    assert ids(lake) == [3, 4]


def read_row(place: Place, partition: int, row: dict[str, Any], mark: str) -> Record:
    value = json.loads(change_event("r", place, "orders", after=row))
    value["source"]["snapshot"] = mark
    return Record(ORDERS, partition, key_of(row, ["id"]), json.dumps(value).encode())


@pytest.mark.parametrize("reads", [(0, 1), (0, 0)], ids=["in both partitions", "in one"])
@pytest.mark.parametrize("later", [False, True], ids=["snapshot first", "truncate first"])
@pytest.mark.parametrize("cuts", [[], [{0: 1, 1: 1}]], ids=["at once", "cut"])
def test_snapshot_is_ordered_against_a_truncate_at_lower_positions(
    lake: LakeHarness, reads: tuple[int, int], later: bool, cuts: list[dict[int, int]]
) -> None:
    """Another server became the source in between, so positions do not tell which came first."""
    apart_ms = 120_000
    place = Place(9, 500, server_id=0, ts_ms=Place.ts_ms + (apart_ms if later else 0))
    rows = [{"id": number, "name": "read"} for number in range(1, 3)]
    snapshot = [
        read_row(place, p, row, mark) for p, row, mark in zip(reads, rows, ("first", "last"), strict=True)
    ]
    at = Place(12 if later else 2, 13, ts_ms=Place.ts_ms + (0 if later else apart_ms), gtid="a:13")
    truncate = Record(ORDERS, 1, None, change_event("t", at, "orders"))
    lake.write([DEFINITION, *([truncate, *snapshot] if later else [*snapshot, truncate])])
    mirror = lake.mirror()
    for cut in [*cuts, {0: reads.count(0), 1: 1 + reads.count(1)}]:
        mirror.advance({ORDERS: cut})
    assert mirror.summary().paused == {}
    assert ids(lake) == ([1, 2] if later else [])


def test_order_after_a_fail_over_is_known_without_a_changelog_also_in_a_large_batch(
    lake: LakeHarness,
) -> None:
    later = [
        of_transaction(number, 2, "c", number % 2, {"id": number, "name": "b"}) for number in range(14, 54)
    ]
    lake.write(
        [
            DEFINITION,
            of_transaction(12, 9, "c", 1, {"id": 1, "name": "a"}),
            of_transaction(13, 2, "t", 0, None),
            *later,
        ]
    )
    lake.catch_up(lake.config(apply={"changelog": False, "driver_max_events": 0}))
    assert ids(lake) == list(range(14, 54))


def test_rows_newer_than_a_truncate_keep_their_fills(lake: LakeHarness) -> None:
    newer = [*COLUMNS, ColumnSpec("state", "varchar", False, "new")]
    altered = schema_change_event(Place(1, 303), "orders", newer, ["id"], kind="ALTER")
    lake.write([DEFINITION, *SCATTERED[:2], SCATTERED[3]])
    lake.catch_up()
    after = event("c", 304, after={"id": 5, "name": "e", "state": "new"})
    lake.write([Record("shop", 0, None, altered), SCATTERED[2], after])
    lake.catch_up()
    assert sorted(lake.rows("orders"), key=lambda r: r["id"]) == [
        {"id": 3, "name": "c", "state": "new"},
        {"id": 5, "name": "e", "state": "new"},
    ]


def test_table_pauses_when_a_truncate_is_late_and_there_is_no_changelog(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *SCATTERED])
    config = lake.config(apply={"changelog": False})
    mirror = lake.mirror(config)
    mirror.advance({ORDERS: {0: 1, 1: 2}})
    mirror.advance({ORDERS: {0: 3, 1: 4}})
    (reason,) = mirror.summary().paused.values()
    assert "TRUNCATE" in reason
    assert sorted(r["id"] for r in lake.rows("orders")) == [1, 2, 3]


def test_events_before_a_truncate_are_ignored_when_there_is_no_changelog(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *SCATTERED])
    mirror = lake.mirror(lake.config(apply={"changelog": False}))
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 3, 1: 1}})
    mirror.advance({ORDERS: {0: 3, 1: 4}})
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lake.rows("orders")) == [3, 5]


def test_mirror_keeps_its_rows_when_the_changelog_is_enabled_later(lake: LakeHarness) -> None:
    """The log is then read again from its beginning, with TRUNCATE events that the mirror has applied already."""
    lake.write([DEFINITION, *SCATTERED])
    lake.catch_up(lake.config(apply={"changelog": False}))
    lake.catch_up()
    assert sorted(r["id"] for r in lake.rows("orders")) == [3, 5]
    assert len(lake.rows("orders", "shop_changes")) == 7
