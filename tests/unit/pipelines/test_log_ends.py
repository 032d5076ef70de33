"""When the source is asked where its binlog ends."""

from dataclasses import dataclass

from replicator.errors import SourceUnavailable
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.pipelines.inputs.log_ends import SourceEnd


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
