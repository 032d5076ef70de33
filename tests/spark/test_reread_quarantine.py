"""Quarantined events of tables that are read from the source: resolved if the rows contain them, and never lost."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from replicator import failpoints
from replicator.errors import RowsChanged, TablePaused, UnsupportedChange
from replicator.lake.reading.quarantine import read_quarantine
from replicator.model.quarantine import QuarantineFilter, Resolution
from replicator.model.reread import Request, new_request, requests_in
from replicator.model.table import TableId
from replicator.operations.status.read import read_status
from replicator.telemetry import Stopwatch
from tests.oracle.model import SourceTable
from tests.spark.test_quarantine import CREATED, LARGE, NARROW, WIDENED, event, mirrored, replayed, row
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.recreated_topic import with_topic_id
from tests.support.reread_lake import LakeReread

TABLE = TableId("shop", "orders")
BEGAN = ("mysql-bin.000001", 101, 1_700_000_000_101)
INSERTED = event("c", 101, after=row(1, 10))
BAD = event("u", 102, before=row(1, 10), after=row(1, LARGE))


def source(number: int) -> SourceTable:
    """Return the table in the source, with one row."""
    return SourceTable("orders", ("id",), list(NARROW), {(1,): row(1, number)})


def reread(lake: LakeHarness, request: Request, number: int) -> LakeReread:
    return LakeReread(lake.mirror(), source(number), request, BEGAN)


def states(lake: LakeHarness) -> list[tuple[int, Resolution | None]]:
    """Return offset and resolution of each event in quarantine."""
    found = read_quarantine(lake.config(), QuarantineFilter(resolved=True))
    return sorted((e.place.offset, e.resolution) for e in found)


@contextmanager
def power_cut_at(point: str) -> Iterator[None]:
    def reach(reached: str) -> None:
        if reached == point:
            raise PowerCut

    with failpoints.on_reach(reach), pytest.raises(PowerCut):
        yield


def test_reread_resolves_the_quarantined_events_from_before_it_and_no_later_ones(lake: LakeHarness) -> None:
    lake.write([CREATED, INSERTED, BAD])
    lake.catch_up()
    assert states(lake) == [(1, None)]
    request = new_request(TABLE, "heal")
    first = reread(lake, request, 7)
    first.read([source(7)])
    lake.write([event("u", 103, before=row(1, 7), after=row(1, 8))])
    lake.catch_up()
    reread(lake, request, 8).complete()
    assert reread(lake, request, 8).publish() == 0
    assert mirrored(lake) == {1: 8}
    assert states(lake) == [(1, Resolution.REREAD)]
    assert read_status(lake.config()).quarantined == 0
    lake.write([event("u", 104, before=row(1, 8), after=row(1, LARGE + 1))])
    lake.catch_up()
    assert states(lake) == [(1, Resolution.REREAD), (3, None)]
    lake.write([WIDENED])
    assert [place.offset for place in replayed(lake).taken] == [3]
    assert mirrored(lake) == {1: LARGE + 1}


@pytest.mark.parametrize(
    ("is_mirrored", "crash"), [(False, "after-reread-rename"), (True, "after-reread-publish")]
)
def test_event_that_is_quarantined_while_a_table_is_read_is_not_lost(
    lake: LakeHarness, is_mirrored: bool, crash: str
) -> None:
    request = new_request(TABLE, "a test")
    lake.write([CREATED, INSERTED, BAD])
    if is_mirrored:
        lake.catch_up()
    first = reread(lake, request, 10)
    # The row was read before its change, which the log had only afterwards.
    first.read([source(10)], ends={0: 1})
    first.complete()
    with pytest.raises(RowsChanged, match="could not be decoded"):
        first.publish()
    assert states(lake) == [(1, None)]
    again = reread(lake, request, 7)
    again.read([source(7)])
    again.complete()
    with power_cut_at(crash):
        again.publish()
    assert states(lake) == [(1, None)]
    reread(lake, request, 7).publish()
    assert mirrored(lake) == {1: 7}
    assert states(lake) == [(1, Resolution.REREAD)]


@pytest.mark.long
def test_table_whose_new_events_can_never_be_decoded_is_not_read_for_ever(lake: LakeHarness) -> None:
    lake.write([CREATED, INSERTED, BAD])
    config = lake.config(apply={"on_bad_event": "pause"})
    reads = LakeReread(lake.mirror(config), source(10), new_request(TABLE, "a test"), BEGAN)
    table = reads.reread
    for error in (RowsChanged, RowsChanged, UnsupportedChange):
        reads.read([source(10)], ends={0: 1})
        reads.complete()
        assert table.catch_up({0: 0}, 25, Stopwatch())
        with pytest.raises(error, match="could not be decoded"):
            table.publish()
    assert states(lake) == [(1, None)]


def test_reread_of_a_table_that_is_paused_meanwhile_begins_again(lake: LakeHarness) -> None:
    with_topic_id(lake)
    lake.write([CREATED, INSERTED])
    mirror = lake.mirror()
    first, ends = mirror.context.log.offsets()
    mirror.advance(ends)
    recovery = mirror.recovery
    assert recovery is not None
    try:
        recovery.request([TABLE], "heal", 9)
        recovery.step(first)
        (before,) = recovery.requests()
        assert not before.held
        mirror.tables.pause(TABLE, TablePaused("bad events", None))
        (after,) = recovery.requests()
    finally:
        recovery.close()
    assert after.id != before.id
    assert (after.held, after.reason, after.max_rows) == (True, "heal", 9)
    properties = mirror.context.lake.namespace_properties(lake.config().lake.ops_namespace)
    assert requests_in(properties) == [after]
