"""Begin tables of a new lake with the rows that an archive has of them, wherever the process is killed."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from replicator.sources.archive.format import ArchivedRows, Event
from replicator.sources.archive.writer import ArchiveWriter
from tests.oracle.model import Record
from tests.spark.test_replay import lake_tables, replay
from tests.support.archived_events import append_event
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, event, snapshot_read

ROWS = "shop-rows-1.shop.orders"
EVENTS = (
    # Before the position of the rows.
    event("c", 201, after={"id": 1, "name": "old"}),
    event("c", 202, after={"id": 9, "name": "gone"}),
    event("d", 203, before={"id": 9, "name": "gone"}),
    # After it.
    event("u", 400, before={"id": 2, "name": "read"}, after={"id": 2, "name": "later"}),
    event("d", 401, before={"id": 3, "name": "read"}),
    event("c", 402, after={"id": 4, "name": "later"}),
)
READ = tuple(replace(snapshot_read(number, 300), topic=ROWS) for number in (1, 2, 3))


def write(lake: LakeHarness, records: Sequence[Record], rows: ArchivedRows | None) -> None:
    """Write an archive of a mirror that has read the rows of the table by itself."""
    with ArchiveWriter(
        lake.folder / "archive", topic_prefix="shop", encoding="json", connector_reads_rows=False
    ) as writer:
        for r in records:
            offset = writer.end_offset(r.topic, r.partition) or 0
            append_event(writer, Event(r.topic, r.partition, offset, 1_700_000_000_000, r.key, r.value))
        if rows is not None:
            writer.add_rows({ORDERS: rows})


def of_position(file: str = "mysql-bin.000001", pos: int = 300) -> ArchivedRows:
    return ArchivedRows("shop", "orders", ROWS, file, pos, 1, 1_700_000_000_000)


@pytest.mark.fault(
    "The process is killed while a replay begins tables with the rows of an archive",
    area="Process",
    on="model source",
    outcome="the next replay continues; mirror and changelog have each row and each change once",
)
@pytest.mark.parametrize("crash", range(6))
def test_table_begins_with_the_rows_of_the_archive(lake: LakeHarness, crash: int) -> None:
    write(lake, [DEFINITION, *READ, *EVENTS], of_position())
    if crash:
        with suppress(PowerCut), power_cut(crash):
            replay(lake)
    summary = replay(lake)
    assert summary.paused == {}
    assert {row["id"]: row["name"] for row in lake.rows("orders")} == {1: "read", 2: "later", 4: "later"}
    changes = lake.rows("orders", "shop_changes")
    assert sorted((row["_change"]["op"], row["id"]) for row in changes) == [
        ("c", 4),
        ("d", 3),
        ("r", 1),
        ("r", 2),
        ("r", 3),
        ("u", 2),
        ("u", 2),
    ]


def test_replay_that_ends_before_the_position_of_the_rows_pauses_the_table(lake: LakeHarness) -> None:
    write(lake, [DEFINITION, *READ, *EVENTS], of_position())
    paused = replay(lake, until="mysql-bin.000001:202").paused
    assert "after the end of the range" in paused["shop.orders"]
    assert lake_tables(lake) == set()
    assert replay(lake).paused == {}


def test_table_without_rows_and_events_is_made(lake: LakeHarness) -> None:
    write(lake, [DEFINITION], of_position())
    assert replay(lake).paused == {}
    assert lake_tables(lake) == {"orders"}
