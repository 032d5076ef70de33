"""Commit markers, schema states and table properties, byte by byte as earlier versions wrote them.

If a test fails, existing lakes can no longer be read: change the code, not the text.
"""

import json

import pytest

from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.gtid import Transaction
from replicator.model.position import SourcePosition
from replicator.model.recorded_rules import rules_from_json, rules_to_json
from replicator.model.seen_transactions import SeenNumbers, SeenTransactions
from replicator.model.snapshot import SnapshotRead, Truncate
from replicator.schema.evolution.changes import ChangeNote, SchemaState, fills_from_json, fills_to_json

POSITION = SourcePosition("mysql-bin.000007", 1234, 5, server_id=9, gtid="3e11:17")
POSITION_TEXT = '{"file":"mysql-bin.000007","gtid":"3e11:17","pos":1234,"row":5,"server_id":9}'
MARKER = CommitMarker(
    mirror="shop",
    sequence=12,
    batch=3,
    progress={
        "p.shop.orders": {
            0: PartitionProgress(
                42,
                HighWater(
                    POSITION,
                    kind=1,
                    ts_ms=1_700_000_000_000,
                    tx_order=6,
                    rows_ascending=False,
                    is_replay=True,
                    transactions=SeenTransactions(
                        (("3e11", SeenNumbers(12, 17, 0b10001)),), (Transaction("3e11", 9),)
                    ),
                    snapshot=POSITION,
                ),
            ),
            1: PartitionProgress(3),
        }
    },
    position=POSITION,
    watermark_ms=1_700_000_000_001,
    committed_ms=1_700_000_000_002,
    truncate=Truncate(1, 30, POSITION, 1_700_000_000_003),
    topic_ids={"p.shop.orders": "uuid"},
    snapshot=SnapshotRead(
        POSITION,
        1_700_000_000_004,
        {0: 2, 1: 0},
        end=(1, 7),
        replaces_rows=True,
    ),
    alone=True,
    partition_counts={"p.shop.orders": 2},
)
MARKER_TEXT = (
    '{"alone":true,"batch":3,"committed_ms":1700000000002,"mirror":"shop",'
    f'"partition_counts":{{"p.shop.orders":2}},"position":{POSITION_TEXT},"sequence":12,'
    f'"snapshot":{{"anew":true,"end":[1,7],"position":{POSITION_TEXT},'
    '"starts":{"0":2,"1":0},"ts_ms":1700000000004},'
    '"topic_ids":{"p.shop.orders":"uuid"},'
    '"topics":{"p.shop.orders":{"0":{"high_water":{"kind":1,"nth":6,"plain":false,'
    f'"position":{POSITION_TEXT},"resent":true,'
    f'"snapshot":{POSITION_TEXT},'
    '"transactions":{"interrupted":["3e11:9"],"origins":[{"first":12,"last":17,"origin":"3e11","recent":"11"}]},'
    '"ts_ms":1700000000000},"next":42},'
    '"1":{"high_water":null,"next":3}}},'
    f'"truncate":{{"offset":30,"partition":1,"position":{POSITION_TEXT},"ts_ms":1700000000003}},'
    '"version":1,"watermark_ms":1700000000001}'
)
FIRST_MARKER_TEXT = (
    '{"batch":1,"committed_ms":5,"mirror":"shop","position":null,"sequence":1,'
    '"topics":{"p.shop.orders":{"0":{"high_water":{"kind":0,'
    f'"position":{POSITION_TEXT},"ts_ms":6}},"next":1}}}}}},'
    '"version":1,"watermark_ms":null}'
)
"""A marker from before TRUNCATE events, topic ids, snapshots, keyless changelogs, row hashes and partition counts."""

POSITION_DOCUMENT = '{"file": "mysql-bin.000007", "pos": 1234, "row": 5, "server_id": 9, "gtid": "3e11:17"}'
STATE = SchemaState(
    at=7_696_581_395_666,
    retired=("old",),
    gone="dropped in the source",
    notes=(ChangeNote("mysql-bin.000007:1234", 1, 2, ("add column a int",), declared=False),),
)
STATE_TEXT = (
    '{"version": 1, "at": 7696581395666, "retired": ["old"], "gone": "dropped in the source", '
    '"changes": [{"position": "mysql-bin.000007:1234", "ts_ms": 1, "made_ms": 2, '
    '"changes": ["add column a int"], "told": false}]}'
)


def test_commit_marker_text_is_unchanged() -> None:
    assert MARKER.to_json() == MARKER_TEXT


def test_commit_marker_is_read_from_its_text() -> None:
    found = CommitMarker.from_json(MARKER_TEXT)
    assert found == MARKER
    # Positions are equal if only their order is.
    assert found.to_json() == MARKER_TEXT


@pytest.mark.parametrize("more", ["", '"rows":"AAABq83v",'])
def test_commit_marker_with_row_hashes_is_read(more: str) -> None:
    """Earlier versions counted the events at the furthest position, and kept hashes of their rows."""
    text = MARKER_TEXT.replace(
        '"high_water":{"kind"', '"high_water":{"assumed":true,"head":[-7,8],"marks":[9],"kind"'
    )
    text = text.replace('"resent":true,', '"resent":4,"seen":2,' + more)
    assert "marks" in text
    assert "seen" in text
    assert CommitMarker.from_json(text) == MARKER
    again = CommitMarker.from_json(text.replace('"resent":4', '"resent":null'))
    high = again.progress["p.shop.orders"][0].high_water
    assert high is not None
    assert not high.is_replay


def test_commit_marker_of_the_first_version_is_read() -> None:
    found = CommitMarker.from_json(FIRST_MARKER_TEXT)
    high = HighWater(
        POSITION,
        0,
        6,
        tx_order=None,
        rows_ascending=True,
        is_replay=False,
        transactions=SeenTransactions(),
    )
    assert found == CommitMarker(
        "shop",
        1,
        1,
        {"p.shop.orders": {0: PartitionProgress(1, high)}},
        position=None,
        watermark_ms=None,
        committed_ms=5,
        truncate=None,
        topic_ids={},
        snapshot=None,
        alone=False,
        partition_counts={},
    )


def test_schema_state_text_is_unchanged() -> None:
    assert STATE.to_json() == STATE_TEXT
    found = SchemaState.from_json(STATE_TEXT)
    assert (found, found.notes) == (STATE, STATE.notes)


def test_pending_fills_and_truncate_texts_are_unchanged() -> None:
    assert fills_to_json({"b": "x", "a": "7"}) == '{"a": "7", "b": "x"}'
    assert fills_from_json('{"a": "7", "b": "x"}') == {"a": "7", "b": "x"}
    clear = f'{{"partition": -1, "offset": -1, "position": {POSITION_DOCUMENT}, "ts_ms": 8}}'
    assert json.dumps(Truncate(-1, -1, POSITION, 8).values()) == clear
    assert Truncate.of_values(json.loads(clear)) == Truncate(-1, -1, POSITION, 8)


def test_column_rules_text_is_unchanged() -> None:
    text = '{"Größe": "exclude", "email": "hash 0a1b2c3d"}'
    assert rules_to_json({"email": "hash 0a1b2c3d", "Größe": "exclude"}) == text
    assert rules_from_json(text) == {"email": "hash 0a1b2c3d", "Größe": "exclude"}
