"""From where the connector must send lost events again, and when the table is read again instead."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from replicator.lake.ledger import Progress
from replicator.model.binlog import BinaryLogs
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.table import TableId
from replicator.runner.rewind_plan import LostTable, RewindPlan, lost_table, plan_rewind

ORDERS, BILLS, ITEMS = (TableId("shop", name) for name in ("orders", "bills", "items"))
TOPIC = "shop.shop.orders"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LOGS = BinaryLogs({f"mysql-bin.{n:06d}": n * 100 for n in (7, 8, 9)}, 1, UUID)


def reached(file: int, pos: int = 500, **other: Any) -> HighWater:
    # Markers keep the number of a file, and not always its name.
    position = SourcePosition(f"binlog.{file:06d}", pos, server_id=other.pop("server_id", 1))
    return HighWater(replace(position, gtid=other.pop("gtid", None)), 1, 1_700_000_000_000, **other)


def lost(table: TableId, file: int, **other: Any) -> LostTable:
    return LostTable(table, reached(file, **other))


def plan(*tables: LostTable, logs: BinaryLogs = LOGS, others: Any = (), **options: Any) -> RewindPlan:
    options = {"max_bytes": 10_000, "first_known_file": 3, "numbered": False} | options
    return plan_rewind(tables, logs, others, **options)


def test_all_tables_are_sent_again_from_the_lowest_file_on() -> None:
    assert plan(lost(ORDERS, 8), lost(BILLS, 7), lost(ITEMS, 9)) == RewindPlan(
        (BILLS, ITEMS, ORDERS), "mysql-bin.000007", 2_400, {}
    )


def test_a_table_whose_binlog_is_gone_does_not_keep_the_others_from_it() -> None:
    found = plan(lost(ORDERS, 8), lost(BILLS, 6), LostTable(ITEMS, None, "it has 2 partitions"))
    assert (found.tables, found.file) == ((ORDERS,), "mysql-bin.000008")
    assert found.refused == {
        BILLS: "MySQL has deleted the binlog of its position binlog.000006:500",
        ITEMS: "it has 2 partitions",
    }


def test_not_more_than_the_limit_is_sent_again() -> None:
    assert plan(lost(ORDERS, 8), max_bytes=1_700).tables == (ORDERS,)
    found = plan(lost(ORDERS, 8), lost(BILLS, 7), max_bytes=1_700)
    assert (found.tables, found.bytes) == ((ORDERS,), 1_700)
    assert found.refused == {BILLS: "the binlogs since then have 2,400 bytes, more than heal.max_binlog"}


@pytest.mark.parametrize(
    ("high_water", "options", "reason"),
    [
        ({"server_id": 2}, {}, "one of another server"),
        ({"gtid": "ffff:17"}, {}, "one of another server"),
        ({}, {"first_known_file": None}, "unknown since when"),
        ({}, {"first_known_file": 9}, "took its snapshot"),
        ({}, {"logs": replace(LOGS, compresses=True)}, "compressed transactions"),
        ({}, {"logs": replace(LOGS, compresses=True), "numbered": True}, "compressed transactions"),
        ({"rows_ascending": False}, {}, "compressed transactions"),
        ({}, {"others": [reached(8, server_id=2)]}, "changes of another server"),
    ],
)
def test_events_that_would_not_follow_exactly_are_not_sent_again(
    high_water: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    found = plan(lost(ORDERS, 8, **high_water), **options)
    assert (found.tables, found.file) == ((), None)
    assert reason in found.refused[ORDERS]


def test_events_that_are_recognized_for_certain_are_sent_again() -> None:
    compressing = replace(LOGS, compresses=True)
    assert plan(lost(ORDERS, 8, tx_order=3), logs=compressing, numbered=True).tables == (ORDERS,)
    assert plan(lost(ORDERS, 8, gtid=f"{UUID}:17")).tables == (ORDERS,)
    # The first known file may be read from its beginning; changes of another server from before it do not come again.
    earlier = [reached(7, server_id=2), reached(9)]
    assert plan(lost(ORDERS, 8), first_known_file=8, others=earlier).tables == (ORDERS,)


def progress(
    mirror: HighWater | None, changelog: HighWater | None = None, *, topic_id: str = "id"
) -> Progress:
    mirrored, logged = (
        CommitMarker("shop", 1, 1, {TOPIC: {0: PartitionProgress(5, high)}}, topic_ids={TOPIC: topic_id})
        for high in (mirror, changelog)
    )
    return Progress(mirrored, logged, changelog_wanted=changelog is not None)


@pytest.mark.parametrize(
    ("known", "first", "obstacle"),
    [
        (progress(reached(8)), {0: 9}, None),
        (progress(reached(8), reached(8)), {0: 9}, None),
        (progress(reached(8), reached(8, 600)), {0: 9}, "end at different events"),
        (progress(None), {0: 9}, "no position of it in the binlog"),
        (progress(reached(8), topic_id="other"), {0: 9}, "deleted and recreated"),
        (progress(reached(8)), {0: 9, 1: 0}, "2 partitions"),
        (progress(reached(8)), {}, "0 partitions"),
        (progress(reached(8)), {0: 5}, "other events than the oldest"),
        (Progress(None, None, changelog_wanted=False), {0: 9}, "no position of it"),
    ],
)
def test_position_of_a_lost_table_is_that_of_mirror_and_changelog(
    known: Progress, first: Mapping[int, int], obstacle: str | None
) -> None:
    found = lost_table(ORDERS, TOPIC, known, "id", first)
    if obstacle is None:
        assert found == LostTable(ORDERS, reached(8))
    else:
        assert found.reached is None
        assert obstacle in (found.obstacle or "")
