"""When the source is asked where its binlog ends, and what reaches a boundary of the log."""

from dataclasses import dataclass
from typing import Any

from replicator.errors import SourceUnavailable
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds, SourceEnd
from replicator.pipelines.inputs.tables import InputKind


def at(pos: int, ts_sec: int = 0) -> ConnectorOffset:
    return ConnectorOffset("mysql-bin.000001", pos, ts_sec=ts_sec)


@dataclass
class Positions:
    """A source whose binlog ends at `pos`; it does not answer without one."""

    pos: int | None
    asked: int = 0

    def end(self) -> BinlogEnd:
        self.asked += 1
        if self.pos is None:
            raise SourceUnavailable("gone", "start it")
        return BinlogEnd("mysql-bin.000001", self.pos)

    def confirmed(self) -> ConnectorOffset | None:
        raise AssertionError


def test_a_source_is_asked_at_first_and_while_the_connector_confirms_nothing_more() -> None:
    now, positions = [100.0], Positions(500)
    end = SourceEnd(clock=lambda: now[0])
    assert end.when_confirmed(at(400), positions) == BinlogEnd("mysql-bin.000001", 500)
    now[0] = 104.0
    # A heartbeat confirms the same position at another time.
    assert end.when_confirmed(at(400, ts_sec=9), positions) == BinlogEnd("mysql-bin.000001", 500)
    assert positions.asked == 1
    # The source changes all the time: what is confirmed is the boundary.
    for pos in (410, 420, 430):
        assert end.when_confirmed(at(pos), positions) is None
    assert positions.asked == 1
    positions.pos = 600
    assert end.when_confirmed(at(430), positions) == BinlogEnd("mysql-bin.000001", 600)
    now[0] = 109.0
    positions.pos = 700
    assert end.when_confirmed(at(430), positions) == BinlogEnd("mysql-bin.000001", 700)
    assert positions.asked == 3


def test_a_source_that_does_not_answer_is_not_asked_each_time() -> None:
    now, positions = [100.0], Positions(None)
    end = SourceEnd(clock=lambda: now[0])
    for _ in range(3):
        assert end.when_confirmed(at(400), positions) is None
    assert positions.asked == 1


OWN = "shop.shop.orders"
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@dataclass
class Mirror:
    """What is asked of a mirror: it has the changes of one partition up to an offset and a position."""

    next_offset: int
    change: SourcePosition | None = None
    read_since: SourcePosition | None = None
    ts_ms: int = 7_000
    name: str = "shop.orders"
    kind: InputKind = InputKind.MIRROR

    @property
    def table(self) -> "Mirror":
        return self

    def property(self, _key: str) -> str:
        return self.name

    def marker(self) -> CommitMarker:
        high_water = (
            None if self.change is None else HighWater(self.change, 1, self.ts_ms, snapshot=self.read_since)
        )
        progress = {OWN: {0: PartitionProgress(self.next_offset, high_water)}}
        return CommitMarker("shop", 1, 0, progress)


def reached(boundary: Boundary, *mirror: Any, **facts: Any) -> bool:
    at_ms = facts.pop("at_ms", 7_000)
    return LogEnds(boundary, {OWN: {0: 9}}, "shop", at_ms=at_ms).is_reached(Mirror(*mirror, **facts))  # type: ignore[arg-type]


def change(pos: int, gtid: str | None = None, file: int = 2) -> SourcePosition:
    return SourcePosition(f"mysql-bin.00000{file}", pos, gtid=gtid)


def test_a_mirror_reaches_a_boundary_with_the_ends_of_the_log_or_a_change_from_after_it() -> None:
    boundary = Boundary("mysql-bin.000002", 500)
    assert reached(boundary, 9)
    assert not reached(boundary, 8)
    assert reached(boundary, 8, change(500)), "a transaction begins at a boundary"
    assert reached(boundary, 8, change(4, file=3))
    assert not reached(boundary, 8, change(499))
    assert not reached(boundary, 8, change(900, file=1))
    assert not reached(Boundary(), 8, change(500)), "all that the log has"
    assert not reached(boundary, 8, change(900), ts_ms=6_999), "binlogs of earlier, which were reset"
    assert not reached(boundary, 8, change(900), at_ms=None)


def test_a_mirror_whose_rows_were_read_since_reaches_it_with_the_ends_of_the_log() -> None:
    assert not reached(Boundary("mysql-bin.000002", 500), 8, change(500), change(600))


def test_gtids_tell_which_changes_are_after_a_boundary() -> None:
    boundary = Boundary("mysql-bin.000002", 500, f"{GTID}:1-7")
    assert reached(boundary, 8, change(4, f"{GTID.upper()}:8"), ts_ms=0)
    assert not reached(boundary, 8, change(900, f"{GTID[::-1]}:1")), "lost in a fail-over"
    assert not reached(boundary, 8, change(900, f"{GTID}:7"))
    assert not reached(boundary, 8, change(900)), "positions of another server"
    assert not reached(Boundary("mysql-bin.000002", 500), 8, change(900, f"{GTID}:8"))
