"""Snapshots: one that is interrupted and repeated, and ad-hoc ones that read some rows among other changes."""

from typing import Any

import pytest

from tests.support.config import STRATEGIES
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, event, ids, snapshot_read

BROKEN_OFF = [
    snapshot_read(1, 100, "first_in_data_collection"),
    snapshot_read(2, 100),
    snapshot_read(3, 100, partition=1),
    snapshot_read(4, 100, partition=1),
]
ANEW = [
    snapshot_read(1, 200, "first_in_data_collection", name="anew"),
    snapshot_read(3, 200, name="anew", partition=1),
    snapshot_read(5, 200, "last_in_data_collection", name="anew"),
    event("c", 300, after={"id": 6, "name": "later"}),
    event("c", 301, after={"id": 2, "name": "later"}, partition=1),
]
"""Between the snapshots, 2 and 4 were deleted and 5 was inserted."""


@pytest.mark.parametrize(("strategy", "format_version"), STRATEGIES)
@pytest.mark.parametrize(
    "cuts",
    [
        [],
        [{0: 2, 1: 2}],
        [{0: 3, 1: 2}],
        [{0: 2, 1: 3}, {0: 4, 1: 3}],
        [{0: 1, 1: 1}, {0: 3, 1: 2}, {0: 4, 1: 2}],
    ],
)
def test_second_snapshot_removes_rows_deleted_before_it(
    lake: LakeHarness, strategy: str, format_version: int, cuts: list[dict[int, int]]
) -> None:
    lake.write([DEFINITION, *BROKEN_OFF, *ANEW])
    mirror = lake.mirror(lake.config(apply={"strategy": strategy, "format_version": format_version}))
    for cut in cuts:
        mirror.advance({ORDERS: cut})
    mirror.advance({ORDERS: {0: 5, 1: 4}})
    assert mirror.summary().paused == {}
    assert ids(lake) == [1, 2, 3, 5, 6]
    names = {row["id"]: row["name"] for row in lake.rows("orders")}
    assert names == {1: "anew", 2: "later", 3: "anew", 5: "anew", 6: "later"}
    assert len(lake.rows("orders", "shop_changes")) == 9


def test_second_snapshot_removes_no_row_before_its_end(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *BROKEN_OFF, *ANEW])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 2, 1: 2}})
    mirror.advance({ORDERS: {0: 3, 1: 3}})
    assert ids(lake) == [1, 2, 3, 4]
    lake.mirror().advance({ORDERS: {0: 5, 1: 4}})
    assert ids(lake) == [1, 2, 3, 5, 6]


def test_second_snapshot_removes_rows_at_its_start_when_there_is_no_changelog(lake: LakeHarness) -> None:
    one = [r for r in [*BROKEN_OFF, *ANEW] if r.partition == 0]
    lake.write([DEFINITION, *one])
    mirror = lake.mirror(lake.config(apply={"changelog": False}))
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 3}})
    assert ids(lake) == [1]
    mirror.advance({ORDERS: {0: 5}})
    assert ids(lake) == [1, 5, 6]


def test_ad_hoc_snapshots_remove_no_rows(lake: LakeHarness) -> None:
    """They may read a part of the table; an incremental one has the position of a change."""
    changes = [
        event("u", 800, before={"id": 1, "name": "read"}, after={"id": 1, "name": "changed"}),
        snapshot_read(2, 800, "incremental", name="incremental"),
        snapshot_read(1, 800, "incremental", name="changed"),
        event("d", 850, before={"id": 2, "name": "incremental"}),
        snapshot_read(1, 950, "first", name="blocking"),
        snapshot_read(7, 950, "last", name="blocking"),
    ]
    lake.write(
        [
            DEFINITION,
            snapshot_read(1, 100, "first"),
            snapshot_read(2, 100),
            snapshot_read(3, 100, "last"),
            *changes,
        ]
    )
    mirror = lake.mirror()
    for end in range(1, 10):
        mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}
    names: dict[int, Any] = {row["id"]: row["name"] for row in lake.rows("orders")}
    assert names == {1: "blocking", 3: "read", 7: "blocking"}
    assert len(lake.rows("orders", "shop_changes")) == 3 + 2 + 2 + 1 + 2
