"""Snapshots: one that is interrupted and repeated, and ad-hoc ones that read some rows among other changes."""

import json
from typing import Any

import pytest

from replicator.errors import UnsupportedChange
from tests.oracle.events import Place, change_event, key_of
from tests.oracle.model import Record
from tests.spark.test_rebuild import rebuild
from tests.support.config import STRATEGIES
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, event, ids, snapshot_read

BROKEN_OFF = [
    snapshot_read(1, 100, "first_in_data_collection"),
    snapshot_read(2, 100),
    snapshot_read(3, 100),
    snapshot_read(4, 100),
]
ANEW = [
    snapshot_read(1, 200, "first_in_data_collection", name="anew"),
    snapshot_read(3, 200, name="anew"),
    snapshot_read(5, 200, "last_in_data_collection", name="anew"),
    event("c", 300, after={"id": 6, "name": "later"}),
    event("c", 301, after={"id": 2, "name": "later"}),
]
"""Between the snapshots, 2 and 4 were deleted and 5 was inserted."""


@pytest.mark.parametrize(("strategy", "format_version"), STRATEGIES)
@pytest.mark.parametrize("cuts", [[], [2, 5, 7]])
def test_second_snapshot_removes_rows_deleted_before_it(
    lake: LakeHarness, strategy: str, format_version: int, cuts: list[int]
) -> None:
    lake.write([DEFINITION, *BROKEN_OFF, *ANEW])
    mirror = lake.mirror(lake.config(apply={"strategy": strategy, "format_version": format_version}))
    for cut in [*cuts, 9]:
        mirror.advance({ORDERS: {0: cut}})
    assert mirror.summary().paused == {}
    assert ids(lake) == [1, 2, 3, 5, 6]
    names = {row["id"]: row["name"] for row in lake.rows("orders")}
    assert names == {1: "anew", 2: "later", 3: "anew", 5: "anew", 6: "later"}
    assert len(lake.rows("orders", "shop_changes")) == 9


@pytest.mark.parametrize("cuts", [[], [1], [3]])
@pytest.mark.parametrize("changelog", [True, False])
def test_snapshot_removes_rows_deleted_before_it_if_the_topic_begins_with_changes(
    lake: LakeHarness, cuts: list[int], changelog: bool
) -> None:
    """The table was created after the connector; then the connector lost its offsets."""
    created = [
        event("c", 50, after={"id": 1, "name": "old"}),
        event("c", 60, after={"id": 4, "name": "old"}),
    ]
    lake.write([DEFINITION, *created, *ANEW])
    mirror = lake.mirror(lake.config(apply={"changelog": changelog}))
    for cut in [*cuts, 7]:
        mirror.advance({ORDERS: {0: cut}})
    assert mirror.summary().paused == {}
    assert {row["id"]: row["name"] for row in lake.rows("orders")} == {
        **dict.fromkeys((1, 3, 5), "anew"),
        **dict.fromkeys((2, 6), "later"),
    }


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


def row(op: str, number: int, place: Place, snapshot: str = "false", *, partition: int = 0) -> Record:
    """Return an event of the row `number`, whose name is the second of its source time."""
    image = {"id": number, "name": str(place.ts_ms // 1000)}
    images = {"before": image} if op == "d" else {"after": image}
    value = json.loads(
        change_event(op, place, "orders", before=images.get("before"), after=images.get("after"))
    )
    value["source"]["snapshot"] = snapshot
    return Record(ORDERS, partition, key_of(image, ["id"]), json.dumps(value).encode())


def read(file: int, pos: int, second: int, *numbers: int) -> list[Record]:
    """Return the rows that a snapshot read, with Debezium's marks."""
    marks = ["first_in_data_collection", *["true"] * (len(numbers) - 2)][: len(numbers) - 1]
    place = Place(file, pos, 0, second * 1000, server_id=0)
    return [
        row("r", n, place, mark) for n, mark in zip(numbers, [*marks, "last_in_data_collection"], strict=True)
    ]


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("size", [1, 20])
@pytest.mark.fault(
    "The connector takes a snapshot of another server, whose binlog files have lower numbers",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the snapshot replaces the rows",
)
def test_snapshot_at_a_lower_position_replaces_the_rows(
    lake: LakeHarness, size: int, *, changelog: bool
) -> None:
    first = [
        *read(900, 50, 10, 1, 2, 3),
        row("c", 4, Place(900, 60, 0, 11_000)),
        row("c", 5, Place(901, 9, 0, 12_000)),
    ]
    second = [
        *read(3, 70, 20, 1, 4, 6),
        row("c", 7, Place(3, 80, 0, 21_000)),
        row("d", 4, Place(3, 90, 0, 22_000)),
    ]
    records = [*first, *second]
    lake.write([DEFINITION, *records])
    mirror = lake.mirror(lake.config(apply={"changelog": changelog}))
    for end in [*range(size, len(records), size), len(records)]:
        mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}
    assert ids(lake) == [1, 6, 7]
    assert {r["id"]: r["name"] for r in lake.rows("orders")}[1] == "20"


@pytest.mark.parametrize("size", [1, 20])
@pytest.mark.parametrize("again", [(1, 4, 6), (6,)])
@pytest.mark.fault(
    "The connector takes a snapshot at the position of the one before, with other rows",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the snapshot replaces the rows; the mirror cannot be rebuilt from its changelog",
)
def test_snapshot_at_the_same_position_replaces_the_rows(
    lake: LakeHarness, size: int, again: tuple[int, ...]
) -> None:
    """As of another server, or after RESET BINARY LOGS AND GTIDS."""
    records = [*read(1, 158, 10, 1, 2, 3), *read(1, 158, 20, *again), row("c", 7, Place(1, 200, 0, 21_000))]
    lake.write([DEFINITION, *records])
    mirror = lake.mirror()
    for end in [*range(size, len(records), size), len(records)]:
        mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}
    assert ids(lake) == [*again, 7]
    with pytest.raises(UnsupportedChange, match="read at one position"):
        rebuild(lake, mirror, "shop.orders")


@pytest.mark.parametrize("cuts", [[], [{0: 2, 1: 1}], [{0: 2, 1: 0}, {0: 4, 1: 0}]])
@pytest.mark.fault(
    "The connector takes a snapshot again, of a table whose topic has several partitions",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table pauses, or is read again",
)
def test_repeated_snapshot_is_refused_in_several_partitions(
    lake: LakeHarness, cuts: list[dict[int, int]]
) -> None:
    """An archive does not tell that there is another partition before that has events."""
    first = [*read(900, 50, 10, 1, 2), row("c", 4, Place(900, 60, 0, 11_000), partition=1)]
    lake.write([DEFINITION, *first, *read(3000, 70, 20, 1, 6)])
    mirror = lake.mirror()
    for cut in [*cuts, {0: 4, 1: 1}]:
        mirror.advance({ORDERS: cut})
    (reason,) = mirror.summary().paused.values()
    assert "several partitions" in reason
