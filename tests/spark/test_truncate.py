"""TRUNCATE of a table: its topic has one partition, or several."""

import pytest

from tests.support.config import STRATEGIES
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, event, ids

EVENTS = [
    event("c", 101, after={"id": 1, "name": "a"}),
    event("c", 102, after={"id": 2, "name": "b"}),
    event("t", 200),
    event("c", 301, after={"id": 3, "name": "c"}),
    event("c", 302, after={"id": 4, "name": "d"}),
    event("d", 303, before={"id": 4, "name": "d"}),
]
SCATTERED = [*EVENTS[:1], event("c", 102, after={"id": 2, "name": "b"}, partition=1), *EVENTS[2:]]
"""The same on two partitions; the TRUNCATE event is in one of them only."""


@pytest.mark.parametrize(("strategy", "format_version"), STRATEGIES)
@pytest.mark.parametrize("cut", [2, 3, 4])
def test_truncate_removes_older_rows(lake: LakeHarness, strategy: str, format_version: int, cut: int) -> None:
    lake.write([DEFINITION, *EVENTS])
    mirror = lake.mirror(lake.config(apply={"strategy": strategy, "format_version": format_version}))
    mirror.advance({ORDERS: {0: cut}})
    mirror.advance({ORDERS: {0: 6}})
    assert mirror.summary().paused == {}
    assert ids(lake) == [3]
    assert len(lake.rows("orders", "shop_changes")) == 6


@pytest.mark.parametrize(
    "cuts",
    [[{0: 5, 1: 1}], [{0: 1, 1: 1}, {0: 5, 1: 1}], [{0: 2}, {0: 5, 1: 1}]],
    ids=["at once", "truncate later", "older events later"],
)
def test_table_with_several_partitions_pauses_at_a_truncate(
    lake: LakeHarness, cuts: list[dict[int, int]]
) -> None:
    """Without a source: which changes of the other partition are from before it is not known."""
    lake.write([DEFINITION, *SCATTERED])
    mirror = lake.mirror()
    for cut in cuts:
        mirror.advance({ORDERS: cut})
    (reason,) = mirror.summary().paused.values()
    assert "truncated" in reason
    assert "several partitions" in reason
    kinds = [row["_change"]["kind"] for row in lake.rows("orders", "shop_changes")] if len(cuts) > 1 else []
    assert "INSERT" not in kinds[2:]


def test_partition_whose_first_event_is_after_a_truncate_continues(lake: LakeHarness) -> None:
    """An archive does not list partitions without events."""
    lake.write([DEFINITION, *EVENTS, event("c", 400, after={"id": 6, "name": "f"}, partition=1)])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 6}})
    mirror.advance({ORDERS: {0: 6, 1: 1}})
    assert mirror.summary().paused == {}
    assert ids(lake) == [3, 6]


def test_mirror_keeps_its_rows_when_the_changelog_is_enabled_later(lake: LakeHarness) -> None:
    """The log is then read again from its beginning, with TRUNCATE events that the mirror has applied already."""
    lake.write([DEFINITION, *EVENTS])
    lake.catch_up(lake.config(apply={"changelog": False}))
    lake.catch_up()
    assert ids(lake) == [3]
    assert len(lake.rows("orders", "shop_changes")) == 6
