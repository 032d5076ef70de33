"""Snapshots: one that is broken off and made anew, and those that read some rows between other changes."""

import json
from typing import Any

import pytest

from tests.oracle.events import Place, change_event, key_of
from tests.oracle.model import Record
from tests.spark.batches import DEFINITION, ORDERS, event
from tests.spark.conftest import Lab


def read(number: int, pos: int, snapshot: str = "true", *, name: str = "read", partition: int = 0) -> Record:
    """A row that a snapshot read."""
    row = {"id": number, "name": name}
    value = json.loads(change_event("r", Place(1, pos, server_id=0), "orders", after=row))
    value["source"]["snapshot"] = snapshot
    if snapshot == "incremental" or pos > 900:
        value["source"]["server_id"] = 1
    return Record(ORDERS, partition, key_of(row, ["id"]), json.dumps(value).encode())


BROKEN_OFF = [
    read(1, 100, "first_in_data_collection"),
    read(2, 100),
    read(3, 100, partition=1),
    read(4, 100, partition=1),
]
ANEW = [
    read(1, 200, "first_in_data_collection", name="anew"),
    read(3, 200, name="anew", partition=1),
    read(5, 200, "last_in_data_collection", name="anew"),
    event("c", 300, after={"id": 6, "name": "later"}),
    event("c", 301, after={"id": 2, "name": "later"}, partition=1),
]
"""While nobody looked, 2 and 4 were deleted and 5 was made."""


def ids(lab: Lab) -> list[int]:
    return sorted(row["id"] for row in lab.rows("orders"))


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write"])
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
def test_rows_that_were_deleted_before_a_snapshot_was_made_anew_go(
    lab: Lab, strategy: str, cuts: list[dict[int, int]]
) -> None:
    lab.write([DEFINITION, *BROKEN_OFF, *ANEW])
    mirror = lab.mirror(lab.config(apply={"strategy": strategy}))
    for cut in cuts:
        mirror.advance({ORDERS: cut})
    mirror.advance({ORDERS: {0: 5, 1: 4}})
    assert mirror.summary().paused == {}
    assert ids(lab) == [1, 2, 3, 5, 6]
    names = {row["id"]: row["name"] for row in lab.rows("orders")}
    assert names == {1: "anew", 2: "later", 3: "anew", 5: "anew", 6: "later"}
    assert len(lab.rows("orders", "shop_changes")) == 9


def test_until_a_new_snapshot_ends_nothing_goes(lab: Lab) -> None:
    lab.write([DEFINITION, *BROKEN_OFF, *ANEW])
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 2, 1: 2}})
    mirror.advance({ORDERS: {0: 3, 1: 3}})
    assert ids(lab) == [1, 2, 3, 4]
    lab.mirror().advance({ORDERS: {0: 5, 1: 4}})
    assert ids(lab) == [1, 2, 3, 5, 6]


def test_without_a_changelog_the_rows_go_when_the_new_snapshot_begins(lab: Lab) -> None:
    one = [r for r in [*BROKEN_OFF, *ANEW] if r.partition == 0]
    lab.write([DEFINITION, *one])
    mirror = lab.mirror(lab.config(apply={"changelog": False}))
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 3}})
    assert ids(lab) == [1]
    mirror.advance({ORDERS: {0: 5}})
    assert ids(lab) == [1, 5, 6]


def test_ad_hoc_snapshots_remove_nothing(lab: Lab) -> None:
    """They may read a part of the table, and stand among changes: an incremental one at the very place of one."""
    changes = [
        event("u", 800, before={"id": 1, "name": "read"}, after={"id": 1, "name": "changed"}),
        read(2, 800, "incremental", name="incremental"),
        read(1, 800, "incremental", name="changed"),
        event("d", 850, before={"id": 2, "name": "incremental"}),
        read(1, 950, "first", name="blocking"),
        read(7, 950, "last", name="blocking"),
    ]
    lab.write([DEFINITION, read(1, 100, "first"), read(2, 100), read(3, 100, "last"), *changes])
    mirror = lab.mirror()
    for end in range(1, 10):
        mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}
    names: dict[int, Any] = {row["id"]: row["name"] for row in lab.rows("orders")}
    assert names == {1: "blocking", 3: "read", 7: "blocking"}
    assert len(lab.rows("orders", "shop_changes")) == 3 + 2 + 2 + 1 + 2
