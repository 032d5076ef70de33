"""Topics that are recreated or lose their newest events, and events of compressed transactions."""

import shutil
from dataclasses import replace

import pytest

from replicator.model.table import TableId
from replicator.runner.scheduler import Scheduler
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.compressed_positions import CompressedPositions
from tests.support.kept_log import KeptLog
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, created, event, ids, snapshot_read
from tests.support.recreated_topic import recreate_topic, with_topic_id


@pytest.fixture
def topic_id(lake: LakeHarness) -> list[str]:
    return with_topic_id(lake)


@pytest.mark.fault(
    "A topic is recreated, and begins with a snapshot",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the snapshot replaces the rows",
)
def test_recreated_topic_that_begins_with_a_snapshot_replaces_the_rows(
    lake: LakeHarness, topic_id: list[str]
) -> None:
    lake.write([DEFINITION, created(1), created(2), created(3)])
    lake.catch_up()
    recreate_topic(lake, topic_id)
    lake.write(
        [
            DEFINITION,
            snapshot_read(1, 200, "first"),
            snapshot_read(4, 200, "last"),
            event("c", 300, after={"id": 5, "name": "x"}),
        ]
    )
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}})
    assert ids(lake) == [1]
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert ids(lake) == [1, 4, 5]
    assert len(lake.rows("orders", "shop_changes")) == 6
    lake.write([event("d", 400, before={"id": 5, "name": "x"})])
    lake.catch_up()
    assert ids(lake) == [1, 4]


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_rows_that_a_snapshot_in_a_new_topic_lacks_are_deleted_wherever_it_is_cut(
    lake: LakeHarness, topic_id: list[str], first: int
) -> None:
    """The changelog has changes of the earlier topic at the offsets of the snapshot's rows."""
    lake.write([DEFINITION, *(created(n) for n in (1, 2, 3, 6, 7))])
    lake.catch_up()
    recreate_topic(lake, topic_id)
    rows = [snapshot_read(n, 200, "last" if n == 9 else "true") for n in (1, 4, 5, 8, 9)]
    lake.write([DEFINITION, *rows, event("d", 300, before={"id": 8, "name": "read"})])
    lake.mirror().advance({ORDERS: {0: first}})
    lake.catch_up()
    assert ids(lake) == [1, 4, 5, 9]
    # So are those that a later snapshot of the same topic lacks.
    rows = [snapshot_read(n, 400, "last" if n == 5 else "true") for n in (1, 5)]
    lake.write([event("d", 310, before={"id": 9, "name": "read"}), *rows])
    lake.mirror().advance({ORDERS: {0: 8}})
    lake.catch_up()
    assert ids(lake) == [1, 5]


@pytest.mark.fault(
    "A topic is recreated, and begins with changes",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the table pauses, also after a restart",
    lost="the lost events, until the table is read again",
)
@pytest.mark.parametrize("more", [0, 5])
def test_recreated_topic_that_begins_with_changes_pauses_its_table(
    lake: LakeHarness, topic_id: list[str], more: int
) -> None:
    lake.write([DEFINITION, created(1), created(2)])
    lake.catch_up()
    recreate_topic(lake, topic_id)
    lake.write([DEFINITION, created(7)])
    lake.write([created(10 + n) for n in range(more)])
    for _ in range(2):
        mirror: Scheduler = lake.catch_up()
        (reason,) = mirror.summary().paused.values()
        assert "does not begin with a snapshot" in reason
        assert ids(lake) == [1, 2]


@pytest.mark.fault(
    "The topic of a new table has lost its beginning",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the table pauses, unless the topic begins with the first row of a snapshot",
    lost="the lost events, until the table is read again",
)
@pytest.mark.parametrize("begins", ["changes", "rest of a snapshot", "snapshot", "offset 0"])
def test_new_table_whose_topic_lost_its_first_events_pauses_without_a_snapshot(
    lake: LakeHarness, begins: str
) -> None:
    """It would be a part of the table, and be shown as current."""
    kept = {} if begins == "offset 0" else {(ORDERS, 0): 2}
    lake.open_log = lambda path: KeptLog(path, kept)
    first = [snapshot_read(3, 200, "first"), snapshot_read(4, 200, "last")]
    rows = {
        "snapshot": [created(1), created(2), *first],
        "rest of a snapshot": [first[0], snapshot_read(2, 200), snapshot_read(5, 200), first[1]],
    }
    lake.write([DEFINITION, *rows.get(begins, [created(1), created(2)]), created(5)])
    is_paused = begins in ("changes", "rest of a snapshot")
    for _ in range(2):
        paused = lake.catch_up().summary().paused
        if is_paused:
            (reason,) = paused.values()
            assert reason.startswith(f"{ORDERS} begins at offset 2 without a snapshot")
        else:
            assert paused == {}
    if not is_paused:
        assert ids(lake) == ([3, 4, 5] if begins == "snapshot" else [1, 2, 5])


@pytest.mark.fault(
    "A topic has lost its newest events, and then grows",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the table pauses, also after a restart",
    lost="the lost events, until the table is read again",
)
def test_table_whose_topic_lost_the_newest_events_stays_paused_when_the_topic_has_grown(
    lake: LakeHarness, topic_id: list[str]
) -> None:
    """Its new events have the offsets of the lost ones, so nothing shows any more that some are missing."""
    lake.write([DEFINITION, created(1), created(2), created(3)])
    lake.catch_up()
    shutil.rmtree(lake.folder / "archive")
    lake.write([DEFINITION, created(1)])
    lake.catch_up()
    lake.write([created(10 + n) for n in range(5)])
    for _ in range(2):
        mirror = lake.catch_up()
        (reason,) = mirror.summary().paused.values()
        assert "has lost its newest events" in reason
        assert ids(lake) == [1, 2, 3]
    # As after a re-read.
    mirror.tables.resume(TableId("shop", "orders"))
    assert lake.catch_up().summary().paused == {}


@pytest.mark.fault(
    "A topic gets partitions while it is read",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the table pauses, or is read again",
)
@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_table_whose_topic_got_partitions_pauses_before_older_changes_win(
    lake: LakeHarness, driver_max_events: int
) -> None:
    """Row 1 was in partition 1. The connector wrote `older` there, and `newer` to the partition of three."""

    class Log(ArchiveChangeLog):
        grows = lists_partitions = True

    lake.open_log = Log
    lake.driver_max_events = driver_max_events
    row, older, newer = ({"id": 1, "name": name} for name in ("first", "older", "newer"))
    lake.write([DEFINITION, created(2), event("c", 200, after=row, partition=1)])
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    lake.write(
        [event("u", 300, before=row, after=older, partition=1), event("u", 310, before=older, after=newer)]
    )
    lake.write([event("c", 320, after={"id": 3, "name": "new"}, partition=2)])
    for _ in range(2):
        mirror = lake.catch_up()
        (reason,) = mirror.summary().paused.values()
        assert reason.startswith(f"the topic {ORDERS} has 3 partitions and had 2 before")
        assert {r["id"]: r["name"] for r in lake.rows("orders")} == {1: "first", 2: "new"}


@pytest.mark.fault(
    "A compressed transaction is divided between batches, and its end is written again",
    area="Events",
    on="Iceberg; events by hand",
    outcome="each change is applied once",
)
@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_compressed_transaction_is_applied_once_when_it_is_divided_and_redelivered(
    lake: LakeHarness, driver_max_events: int
) -> None:
    row, changed, other = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}, {"id": 2, "name": "x"}
    transaction = [
        event("c", 100, after=row, tx_order=1),
        event("c", 100, after=other, tx_order=2),
        event("c", 100, after={"id": 3, "name": "x"}, tx_order=3),
        event("u", 100, before=row, after=changed, tx_order=4),
        event("d", 100, before=other, tx_order=5),
        event("c", 100, after=other, tx_order=6),
    ]
    lake.driver_max_events = driver_max_events
    lake.write([DEFINITION, *transaction])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: len(transaction)}})
    assert sorted((r["id"], r["name"]) for r in lake.rows("orders")) == [(1, "b"), (2, "x"), (3, "x")]
    # A restarted connector redelivers the end of the transaction, or all of it.
    lake.write([*transaction[3:], event("m", 105), *transaction, created(9)])
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert ids(lake) == [1, 2, 3, 9]
    assert len(lake.rows("orders", "shop_changes")) == 8


@pytest.mark.fault(
    "The connector does not number the events of transactions, which may be compressed",
    area="Events",
    on="Iceberg; events by hand",
    outcome="the table pauses at the second statement of one, and is read again",
)
def test_table_pauses_if_events_of_a_compressed_transaction_have_no_numbers(lake: LakeHarness) -> None:
    compressed = CompressedPositions(None, expected=True)
    lake.adapt = lambda context: replace(context, compression=compressed)
    lake.write([DEFINITION, *(event("c", 100, after={"id": i, "name": "x"}) for i in (1, 2))])
    (reason,) = lake.catch_up().summary().paused.values()
    assert "of a compressed transaction, or may have been sent again" in reason
