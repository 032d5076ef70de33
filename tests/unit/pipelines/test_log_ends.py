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
from replicator.sources.source_positions import SourcePositions


def at(pos: int, ts_sec: int = 0) -> ConnectorOffset:
    return ConnectorOffset("mysql-bin.000001", pos, ts_sec=ts_sec)


@dataclass
class Positions(SourcePositions):
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
    name: str = "shop.orders"
    kind: InputKind = InputKind.MIRROR

    @property
    def table(self) -> "Mirror":
        return self

    def property(self, _key: str) -> str:
        return self.name

    def marker(self) -> CommitMarker:
        high_water = None if self.change is None else HighWater(self.change, 1, 0, snapshot=self.read_since)
        progress = {OWN: {0: PartitionProgress(self.next_offset, high_water)}}
        return CommitMarker("shop", 1, 0, progress)


def reached(boundary: Boundary, *mirror: Any) -> bool:
    return LogEnds(boundary, {OWN: {0: 9}}, "shop").is_reached(Mirror(*mirror))  # type: ignore[arg-type]


def change(gtid: str | None) -> SourcePosition:
    return SourcePosition("mysql-bin.000002", 900, gtid=gtid)


BOUNDARY = Boundary("mysql-bin.000002", 500, f"{GTID}:1-7")


def test_a_mirror_reaches_a_boundary_with_the_ends_of_the_log_or_a_transaction_from_after_it() -> None:
    assert reached(BOUNDARY, 9)
    assert not reached(BOUNDARY, 8)
    assert reached(BOUNDARY, 8, change(f"{GTID.upper()}:8"))
    assert not reached(BOUNDARY, 8, change(f"{GTID}:7"))
    assert not reached(BOUNDARY, 8, change(f"{GTID[::-1]}:1")), "lost in a fail-over"


def test_positions_do_not_tell_what_is_after_a_boundary() -> None:
    assert not reached(BOUNDARY, 8, change(None))
    assert not reached(Boundary("mysql-bin.000002", 500), 8, change(f"{GTID}:8"))
    assert not reached(Boundary(), 8, change(f"{GTID}:8")), "all that the log has"


def test_a_mirror_whose_rows_were_read_since_reaches_it_with_the_ends_of_the_log() -> None:
    newer = change(f"{GTID}:8")
    assert not reached(BOUNDARY, 8, newer, newer)
