"""The scheduler if a topic gets partitions."""

from pathlib import Path

import pytest

from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.sources.change_log import Offsets
from tests.support.scheduler_harness import ENDS, SchedulerHarness


@pytest.fixture
def harness(tmp_path: Path) -> SchedulerHarness:
    return SchedulerHarness(tmp_path)


def recorded(partitions: dict[str, int]) -> dict[str, CommitMarker]:
    """Return the markers of two tables that have all events, and know the number of partitions of some topics."""
    return {
        name: CommitMarker(
            "shop", 1, 1, {f"shop.shop.{name}": {0: PartitionProgress(5)}}, partition_counts=partitions
        )
        for name in ("orders", "users")
    }


def list_offsets(harness: SchedulerHarness, ends: Offsets) -> None:
    """Let the log have all offsets before `ends`."""
    harness.log.offsets.return_value = ({topic: dict.fromkeys(ends[topic], 0) for topic in ends}, ends)


def paused_reason(harness: SchedulerHarness) -> str:
    (reason,) = harness.mirror.summary().paused.values()
    return reason


@pytest.mark.parametrize("noticed", ["at the start", "in a batch"])
@pytest.mark.parametrize("known", [{"shop.shop.orders": 1}, {}])
def test_scheduler_pauses_a_table_whose_topic_got_partitions_before_it_reads_them(
    harness: SchedulerHarness, noticed: str, known: dict[str, int]
) -> None:
    """A marker of an older version knows no number; then the process has seen it."""
    harness.markers = recorded(known)
    harness.mirror.check_log()
    harness.mirror.advance(ENDS)
    assert harness.mirror.summary().paused == {}
    more = {"shop.shop.orders": {0: 5, 1: 3}, "shop.shop.users": {0: 6}}
    if noticed == "at the start":
        list_offsets(harness, more)
        harness.mirror.check_log()
    harness.mirror.advance(more)
    assert harness.done == ["shop.users"]
    assert paused_reason(harness).startswith("the topic shop.shop.orders has 2 partitions and had 1 before")
    assert harness.ledger.pause.call_args.kwargs == {"stays": True}


@pytest.mark.fault(
    "A topic got partitions while its archive was recorded",
    area="Log",
    on="events by hand",
    outcome="the table pauses",
)
@pytest.mark.parametrize("known", [{}, None])
def test_scheduler_pauses_a_table_of_an_archive_that_was_recorded_while_partitions_were_added(
    harness: SchedulerHarness, known: dict[str, int] | None
) -> None:
    """It does so for tables that the lake lacks, and for those whose marker has no number."""
    harness.log.lists_partitions = False
    harness.log.first_partitions.side_effect = {"shop.shop.orders": 1, "shop.shop.users": 2}.get
    harness.markers = {} if known is None else recorded(known)
    more = {"shop.shop.orders": {0: 6, 1: 3}, "shop.shop.users": {0: 6, 1: 1}}
    list_offsets(harness, more)
    harness.mirror.check_log()
    harness.mirror.advance(more)
    assert harness.done == ["shop.users"]
    assert paused_reason(harness).startswith("the topic shop.shop.orders has 2 partitions and had 1 before")
    assert harness.mirror.context.partition_counts.first("shop.shop.orders") == 1


def test_table_that_was_read_again_continues_with_the_archive_of_its_topic(harness: SchedulerHarness) -> None:
    harness.log.lists_partitions = False
    harness.log.first_partitions.return_value = 1
    harness.markers = recorded({"shop.shop.orders": 2})
    harness.mirror.check_log()
    harness.mirror.advance({"shop.shop.orders": {0: 6, 1: 3}})
    assert harness.done == ["shop.orders"]


def test_archive_of_an_earlier_release_does_not_show_how_many_partitions_a_topic_has(
    harness: SchedulerHarness,
) -> None:
    harness.log.lists_partitions = False
    harness.markers = recorded({})
    harness.mirror.check_log()
    harness.mirror.advance({"shop.shop.orders": {0: 5, 1: 3}})
    assert harness.done == ["shop.orders"]
    harness.markers |= recorded({"shop.shop.orders": 2})
    harness.mirror.advance({"shop.shop.orders": {0: 5, 1: 3, 2: 1}})
    assert list(harness.mirror.summary().paused) == ["shop.orders"]
