"""What pipelines record in the lake: texts that later versions must read."""

import pytest

from replicator.errors import ForeignTable
from replicator.lake.properties import PIPELINE_PAUSED_KEY, Pause, pauses_in, text_hash
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.gtid import GtidSet
from replicator.model.position import SourcePosition
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.output.record import RECORD_KEY, ResultRecord, record_of
from tests.support.lake_schemas import validate_properties

RECORD = ResultRecord(
    "revenue",
    "0123456789abcdef",
    Boundary("binlog.000007", 1234, "41292464-e5c3-11f1-a63d-02fc00000001:1-9"),
    {"shop.orders": InputProgress("0c0e", 12, {0: 40, 1: 41}, 11, 99)},
    ("day", "country"),
    True,
)
TEXT = (
    '{"version":1,"name":"revenue","fingerprint":"0123456789abcdef","boundary":{"file":"binlog.000007","pos":1234,'
    '"gtids":"41292464-e5c3-11f1-a63d-02fc00000001:1-9"},"inputs":{"shop.orders":{"table":"0c0e","commit":12,'
    '"held":{"0":40,"1":41},"held_commit":11,"steps_at":99}},"key":["day","country"],"state":true}'
)


def test_record_of_a_result_keeps_its_text() -> None:
    assert RECORD.to_json() == TEXT
    assert record_of(TEXT, "shop_pipelines.revenue") == RECORD
    validate_properties("table", {RECORD_KEY: TEXT})
    end = ResultRecord("revenue", "0", Boundary())
    validate_properties("table", {RECORD_KEY: end.to_json()})
    assert record_of(end.to_json(), "t") == end


def test_record_of_a_log_table_has_its_snapshot() -> None:
    record = ResultRecord(
        "p",
        "0",
        Boundary(),
        {"logs.clicks": InputProgress("0c0e", 3, snapshot=1 << 62, offsets={0: 7}, rows=6, kept=True)},
    )
    text = record.to_json()
    assert '"steps_at":-1,"snapshot":4611686018427387904,"offsets":{"0":7},"rows":6,"kept":true' in text
    validate_properties("table", {RECORD_KEY: text})
    assert record_of(text, "t") == record


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace('"version":1', '"version":2'),
        TEXT.replace("binlog.000007", "no file"),
        TEXT.replace(":1-9", ""),
        TEXT.replace('"commit":12', '"commit":-1'),
        "[]",
    ],
)
def test_record_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ForeignTable, match="revenue"):
        record_of(text, "shop_pipelines.revenue")


def test_pause_of_a_pipeline_is_recorded() -> None:
    pause = Pause("no", "edit it", 5, text_hash("SELECT 1"))
    properties = {f"{PIPELINE_PAUSED_KEY}revenue": pause.to_json(), f"{PIPELINE_PAUSED_KEY}other": "{}"}
    assert pauses_in(properties, PIPELINE_PAUSED_KEY) == {"revenue": pause}
    del properties[f"{PIPELINE_PAUSED_KEY}other"]
    validate_properties("namespace", properties)
    earlier = '{"version": 1, "reason": "no", "hint": null, "since_ms": 5, "text": null}'
    assert Pause.from_json(earlier) == Pause("no", None, 5)
    assert text_hash("SELECT 1") == "e004ebd5b5532a4b"


def test_boundary_is_what_the_connector_confirmed() -> None:
    assert Boundary.of(ConnectorOffset("binlog.000002", 7)) == Boundary("binlog.000002", 7)
    gtids = GtidSet.parse("41292464-e5c3-11f1-a63d-02fc00000001:1-9")
    assert Boundary.of(ConnectorOffset("binlog.000002", 7, gtids)).gtids == str(gtids)
    assert str(Boundary("binlog.000002", 7)) == "binlog.000002:7"
    assert Boundary().is_end
    assert Boundary().position is None


def test_boundary_of_an_idle_source_is_the_end_of_its_binlog() -> None:
    """The connector stays at the beginning of a file until its first transaction."""
    gtids = GtidSet.parse("41292464-e5c3-11f1-a63d-02fc00000001:1-9")
    end, read_at = BinlogEnd("binlog.000003", 197, gtids), SourcePosition("binlog.000003", 197)
    confirmed = Boundary.of(ConnectorOffset("binlog.000003", 4, gtids))
    assert confirmed.is_before(read_at)
    idle = Boundary.of(ConnectorOffset("binlog.000003", 4, gtids), end)
    assert idle == Boundary("binlog.000003", 197, str(gtids))
    assert not idle.is_before(read_at)
    assert idle.is_before(SourcePosition("binlog.000003", 198))
    assert Boundary.of_values(idle.values()) == idle
    assert not Boundary.of_values(idle.values()).closed
    # A transaction that the connector has not confirmed is before the end, and the boundary before it.
    busy = GtidSet.parse("41292464-e5c3-11f1-a63d-02fc00000001:1-8")
    assert Boundary.of(ConnectorOffset("binlog.000002", 900, busy), end) == Boundary(
        "binlog.000002", 900, str(busy)
    )


def test_first_commit_to_read_has_the_changes_that_were_held() -> None:
    assert InputProgress("t", 12).first_commit == 13
    assert InputProgress("t", 12, {0: 5}, 10).first_commit == 10


def test_a_boundary_covers_those_before_it() -> None:
    server = "41292464-e5c3-11f1-a63d-02fc00000001"
    at, same, later = (
        Boundary("b.000002", 500),
        Boundary("b.000002", 500, closed=True),
        Boundary("b.000010", 400),
    )
    assert at.covers(same)
    assert same.covers(at)
    assert later.covers(at)
    assert not at.covers(later)
    assert Boundary().covers(at)
    assert not at.covers(Boundary())
    # Another server numbers its files otherwise.
    assert Boundary("b.000001", 500, f"{server}:1-9").covers(Boundary("b.000007", 500, f"{server}:1-8"))
    assert not Boundary("b.000007", 500, f"{server}:1-7").covers(Boundary("b.000001", 500, f"{server}:1-9"))
