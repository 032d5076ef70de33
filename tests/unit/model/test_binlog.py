"""GTID sets, and whether a connector's offset covers the end of a binlog."""

import pytest

from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.gtid import GtidSet

SERVERS = {
    ord("A"): "248dac7f-e706-11f1-ad3e-02fc00000001",
    ord("B"): "348dac7f-e706-11f1-ad3e-02fc00000001",
}


def gtids(text: str) -> GtidSet:
    return GtidSet.parse(text.translate(SERVERS))


def offset(pos: int, numbered: str | None = None, **rest: object) -> ConnectorOffset:
    found: dict[str, object] = {"file": "mysql-bin.000009", "pos": pos, **rest}
    if numbered is not None:
        found["gtids"] = numbered.translate(SERVERS)
    return ConnectorOffset.from_json(found)


def test_gtid_set_counts_missing_transactions() -> None:
    assert gtids("A:1-10").lacking(gtids("A:3-5")) == 0
    assert gtids("A:1-10:20-30").lacking(gtids("A:5-25")) == 9
    assert gtids("A:1-10").lacking(gtids("A:1-10,B:1-4")) == 4
    assert gtids("").lacking(gtids("A:7")) == 1


@pytest.mark.parametrize("text", ["A", "A:x-y", "A:1-2:", "A:1 2"])
def test_gtid_set_refuses_a_text_that_is_not_a_gtid_set(text: str) -> None:
    with pytest.raises(ValueError, match="not a GTID set"):
        gtids(text)


def test_connector_offset_is_compared_by_position_when_there_are_no_gtids() -> None:
    end = BinlogEnd("mysql-bin.000009", 500)
    assert not offset(499).covers(end)
    assert offset(500).covers(end)
    assert offset(4).covers(BinlogEnd("mysql-bin.000008", 9_000))
    assert not offset(9_000).covers(BinlogEnd("mysql-bin.000010", 4))
    assert offset(4).covers(BinlogEnd("mysql-bin.000008", 4, gtids("A:1-9")))


def test_connector_offset_at_the_beginning_of_a_file_covers_the_events_that_describe_it() -> None:
    """Debezium passes them only with the first transaction of the file, which an idle source does not have."""
    assert offset(4).covers(BinlogEnd("mysql-bin.000009", 157))
    assert not offset(4).covers(BinlogEnd("mysql-bin.000009", 300))
    assert not offset(9_000).covers(BinlogEnd("mysql-bin.000010", 157))


def test_connector_offset_is_compared_by_gtids_when_the_file_names_differ() -> None:
    other_server = BinlogEnd("mysql-bin.000001", 4, gtids("A:1-9,B:1-5"))
    assert offset(9_000, "A:1-9,B:1-5").covers(other_server)
    assert not offset(9_000, "A:1-9,B:1-2").covers(other_server)


def test_connector_offset_covers_a_last_statement_that_its_gtids_lack() -> None:
    """Debezium adds DDL to the GTID set only with the next transaction, but to the position at once."""
    end = BinlogEnd("mysql-bin.000009", 500, gtids("A:1-9"))
    assert offset(500, "A:1-8").covers(end)
    assert not offset(499, "A:1-8").covers(end)
    assert not offset(500, "A:1-7").covers(end)


def test_connector_offset_of_a_snapshot_covers_no_binlog_end() -> None:
    end = BinlogEnd("mysql-bin.000009", 500)
    assert not offset(500, snapshot="INITIAL").covers(end)
    assert not offset(500, snapshot=True).covers(end)
    assert offset(500, snapshot="false").covers(end)


def test_connector_offset_counts_the_transactions_behind() -> None:
    end = BinlogEnd("mysql-bin.000009", 500, gtids("A:1-9"))
    assert offset(400, "A:1-4").transactions_behind(end) == 5
    assert offset(500, "A:1-9").transactions_behind(end) == 0
    assert offset(400).transactions_behind(end) is None
