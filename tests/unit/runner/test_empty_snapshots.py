"""When a snapshot of the connector has ended."""

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.lake.ledger import Progress
from replicator.model.binlog import ConnectorOffset
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.snapshot_checks import CLOCK_SKEW_MS, Awaited, SnapshotChecks
from replicator.model.table import TableId, TableSchema
from replicator.runner import empty_snapshots
from replicator.runner.empty_snapshots import ConnectorView, EmptySnapshots, has_later_change, view_connector
from replicator.schema.snapshot_definitions import SnapshotDefinition
from tests.support import kafka_connect
from tests.support.config import minimal_config

TIME_S = 1000
DEFINITION = SnapshotDefinition(SourcePosition("binlog.000005", 50), TIME_S * 1000, is_repeated=True)
ENDED = ConnectorOffset("binlog.000005", 50, ts_sec=TIME_S)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (ENDED, True),
        (replace(ENDED, file="binlog.000006", pos=4), True),
        (replace(ENDED, ts_sec=TIME_S - CLOCK_SKEW_MS // 1000), True),
        (None, False),
        (replace(ENDED, in_snapshot=True), False),
        (replace(ENDED, pos=49), False),
        (replace(ENDED, file="binlog.000004", pos=99), False),
        (replace(ENDED, ts_sec=TIME_S - CLOCK_SKEW_MS // 1000 - 1), False),
        (replace(ENDED, ts_sec=None), False),
    ],
)
def test_offset_of_the_connector_tells_that_its_snapshot_has_ended(
    offset: ConnectorOffset | None, *, expected: bool
) -> None:
    assert ConnectorView("initial", offset).has_ended(DEFINITION) is expected


@pytest.mark.parametrize(("later_ms", "expected"), [(CLOCK_SKEW_MS, False), (CLOCK_SKEW_MS + 1, True)])
def test_later_change_tells_that_the_snapshot_has_ended(later_ms: int, *, expected: bool) -> None:
    high = HighWater(SourcePosition("binlog.000001", 4), 1, DEFINITION.ts_ms + later_ms)
    progress = {"shop.shop.a": {0: PartitionProgress(5, high), 1: PartitionProgress(9)}}
    assert has_later_change(CommitMarker("shop", 1, 1, progress), DEFINITION) is expected
    assert not has_later_change(None, DEFINITION)


TABLE, TOPIC = TableId("shop", "visits"), "shop.shop.visits"
AGAIN = SnapshotDefinition(SourcePosition("binlog.000009", 50), 2_000_000, is_repeated=True)
WITHOUT_ROWS = replace(AGAIN, has_no_rows=True)


def test_definitions_that_were_read_again_for_the_mirror_are_no_gap() -> None:
    at = f"{WITHOUT_ROWS.position.file}:{WITHOUT_ROWS.position.pos}"
    assert ConnectorView("no_data", None, at).keeps_its_offset(WITHOUT_ROWS)
    assert not ConnectorView("no_data", None, at).keeps_its_offset(AGAIN)
    assert not ConnectorView("no_data", None, "binlog.000001:4").keeps_its_offset(WITHOUT_ROWS)
    assert not ConnectorView("no_data").keeps_its_offset(WITHOUT_ROWS)


@pytest.mark.parametrize(
    ("mode", "definition", "is_paused"),
    [
        ("no_data", WITHOUT_ROWS, True),
        ("initial", WITHOUT_ROWS, True),
        ("initial", AGAIN, False),
        ("recovery", WITHOUT_ROWS, False),
        ("no_data", replace(WITHOUT_ROWS, is_repeated=False), False),
    ],
)
def test_table_without_a_mirror_is_paused_if_its_changelog_may_lack_changes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    definition: SnapshotDefinition,
    *,
    is_paused: bool,
) -> None:
    """It cannot be read again as others are."""
    ended = ConnectorOffset("binlog.000009", 50, ts_sec=2_000)
    monkeypatch.setattr(empty_snapshots, "view_connector", lambda _config: ConnectorView(mode, ended))
    monkeypatch.setattr(empty_snapshots, "_POLL_S", 0.0)
    marker = CommitMarker("shop", 1, 1, {TOPIC: {0: PartitionProgress(5)}}, alone=True, committed_ms=1)
    progress = Progress(None, marker, True, may_stand_alone=True)
    properties = SnapshotChecks(1_000_000, {TABLE: Awaited(1_000_000, None)}).properties()
    tables = Mock(alone=lambda _table: contextlib.nullcontext())
    tables.is_idle.return_value = False
    context: Any = SimpleNamespace(
        config=minimal_config(tmp_path),
        schemas=Mock(revision=1, snapshot_definitions=lambda: {TABLE: definition}),
        ledger=Mock(progress=lambda _table: progress, tables=()),
        log=Mock(grows=True, topic_prefix="shop"),
        lake=Mock(),
    )
    context.schemas.later_names.return_value = frozenset()
    context.log.offsets.return_value = ({}, {TOPIC: {0: 5}})
    context.lake.namespace_properties.return_value = properties
    checked = EmptySnapshots(context, tables)
    for _ in range(2):
        checked.note()
        checked.step()
    assert tables.pause.called is is_paused
    if is_paused:
        ((table, error), _) = tables.pause.call_args
        assert (table, error.stays_paused) == (TABLE, True)
        assert "the changelog of shop.visits may lack changes from before" in error.message
        assert 'keyless = "identity"' in error.hint
    # It is settled.
    assert not checked.is_waiting


@pytest.mark.parametrize(("key", "is_checked"), [((), False), (("id",), True)])
def test_changelog_that_begins_after_repeated_snapshots_lacks_nothing(
    tmp_path: Path, key: tuple[str, ...], *, is_checked: bool
) -> None:
    config = minimal_config(tmp_path, table=[{"name": "shop.visits", "keyless": "changelog"}])
    versions = [SimpleNamespace(schema=TableSchema((), key))]
    tables = Mock(alone=lambda _table: contextlib.nullcontext())
    tables.is_idle.return_value = False
    context: Any = SimpleNamespace(
        config=config,
        schemas=Mock(revision=1, snapshot_definitions=lambda: {TABLE: WITHOUT_ROWS}),
        ledger=Mock(progress=lambda _table: Progress(None, None, True, may_stand_alone=True), tables=()),
        log=Mock(grows=True, topic_prefix="shop"),
        lake=Mock(),
    )
    context.schemas.history.return_value = SimpleNamespace(versions=versions)
    context.schemas.later_names.return_value = frozenset()
    context.lake.namespace_properties.return_value = {}
    checked = EmptySnapshots(context, tables)
    checked.note()
    recorded = context.lake.set_namespace_properties.call_args.args[1]
    assert any("visits" in name for name in recorded) is is_checked


def test_connector_is_viewed_through_kafka_connect(tmp_path: Path) -> None:
    offset = {"file": "binlog.000005", "pos": 50, "ts_sec": TIME_S}
    with kafka_connect.serving() as connect:
        log = {
            "kind": "kafka",
            "bootstrap_servers": "localhost:1",
            "topic_prefix": "shop",
            "connect_url": connect.url,
        }
        config = minimal_config(tmp_path, log=log, source={"url": "mysql://u@h/shop", "tables": ["shop.*"]})
        connect.reply("GET /connectors?expand=info&expand=status", 200, {})
        assert view_connector(config) is None
        status = {"connector": {"state": "RUNNING"}, "tasks": []}
        settings = {"topic.prefix": "shop", "snapshot.mode": "no_data"}
        found = {"c": {"info": {"config": settings}, "status": status}}
        connect.reply("GET /connectors?expand=info&expand=status", 200, found)
        connect.reply("GET /connectors/c/offsets", 200, {"offsets": [{"partition": {}, "offset": offset}]})
        assert view_connector(config) is None  # the first answer again
        assert view_connector(config) == ConnectorView("no_data", ENDED)
    assert view_connector(config) is None
    assert view_connector(minimal_config(tmp_path)) is None
