"""TRUNCATE of a table whose topic has several partitions, for different batches."""

import pytest

from tests.oracle.events import (
    ColumnSpec,
    Place,
    schema_change_event,
)
from tests.oracle.model import Record
from tests.support.config import STRATEGIES
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS, DEFINITION, ORDERS, event

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
