"""The order of events and schema versions, on one server and on several."""

from dataclasses import replace

from replicator.model.position import SourcePosition
from replicator.schema.history.order import CLOCK_MS, VersionStart, binlog_key

T0 = 1_700_000_000_000


def at(file: int, pos: int = 100, gtid: str | None = None) -> SourcePosition:
    return SourcePosition(f"binlog.{file:06d}", pos, 0, 1, gtid)


def start(file: int, pos: int = 100, gtid: str | None = None, ts_ms: int = T0) -> VersionStart:
    return VersionStart(binlog_key(at(file, pos)), gtid, ts_ms)


def test_positions_decide_on_one_server() -> None:
    assert start(5).is_before(at(5, 100), T0)
    assert start(5).is_before(at(6, 4), T0 - 5 * CLOCK_MS)
    assert not start(5).is_before(at(5, 99), T0 + 5 * CLOCK_MS)


def test_times_do_not_decide_without_gtids() -> None:
    assert not start(900).is_before(at(1), T0 + 10_000 * CLOCK_MS)
    # Imported changes keep their old times.
    assert start(900).is_before(at(901), T0 - 10_000 * CLOCK_MS)


def test_rows_of_a_snapshot_belong_to_no_later_version_than_its_definition() -> None:
    """A server with lower positions may have executed the others."""
    row = at(900)
    for version in (start(900), start(7), start(7, gtid="b:3")):
        assert version.is_before(row, T0, is_row=True)
        later = replace(version, read_before=frozenset({binlog_key(row)}))
        assert not later.is_before(row, T0, is_row=True)
        assert later.is_before(row, T0)


def test_numbers_decide_between_transactions_of_one_origin() -> None:
    """The second server has lower file numbers, and replicated transactions keep their GTIDs."""
    version = start(900, gtid="a:50")
    assert version.is_before(at(7, gtid="a:51"), T0)
    assert version.is_before(at(7, gtid="a:50"), T0)
    assert not version.is_before(at(901, gtid="a:49"), T0)


def test_times_decide_between_members_of_a_replication_group() -> None:
    """They share the origin, and each has blocks of numbers of its own."""
    version = start(7, gtid="g:1000051")
    assert version.is_before(at(2, gtid="g:502"), T0 + CLOCK_MS + 1)
    assert not version.is_before(at(900, gtid="g:2000001"), T0 - CLOCK_MS - 1)
    assert version.is_before(at(7, 101, gtid="g:502"), T0)
    assert not version.is_before(at(900, gtid="g:1000050"), T0 + CLOCK_MS + 1)


def test_times_decide_between_transactions_of_two_origins() -> None:
    version = start(7, gtid="b:3")
    assert not version.is_before(at(900, gtid="a:70"), T0 - CLOCK_MS - 1)
    assert version.is_before(at(2, gtid="a:71"), T0 + CLOCK_MS + 1)
    # At nearly the same time, both are in one binlog.
    assert version.is_before(at(7, 101, gtid="a:70"), T0 - CLOCK_MS)
    assert not version.is_before(at(7, 99, gtid="a:70"), T0 + CLOCK_MS)
