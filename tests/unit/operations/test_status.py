"""The status of a mirror. The lake is a real one, written by PyIceberg instead of Spark."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.errors import LakeUnavailable, UsageError
from replicator.lake.properties import PAUSED_KEY
from replicator.lake.reading.settings import sqlalchemy_uri
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.commit_marker import MARKER_KEY
from replicator.model.common import now_ms
from replicator.model.compared import MAY_DIFFER_KEY, ComparedDefinitions, MayDiffer
from replicator.model.gtid import GtidSet
from replicator.model.reread import REREAD_KEY, new_request
from replicator.model.table import SOURCE_KEY, TableId
from replicator.model.verified import VERIFIED_KEY, VerifiedTable
from replicator.operations.check.lake import check_lake
from replicator.operations.status import read
from replicator.operations.status.lake_state import read_lake
from replicator.operations.status.mirror_status import Problem, TableStatus
from replicator.operations.status.read import read_status
from replicator.runner.run_record import RunRecord
from replicator.sources.connector.policy import Observation
from replicator.sources.oldest_unread import OldestUnread
from replicator.sources.source_view import SourceView
from tests.support.marked_lake import TOPIC, marker, write


def test_status_lists_tables_as_not_started_when_the_mirror_has_not_run(
    config: Config, tmp_path: Path
) -> None:
    found = read_status(config)
    assert found.tables == ()
    assert found.not_started == ("shop.new", "shop.orders")
    assert not (tmp_path / "lake").exists()


def test_status_is_behind_when_the_log_has_unread_events(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1, 2, 3]}, marker(7))
    write(lake, ("shop_changes", "orders"), {"id": [1, 2, 3, 3, 3]}, marker(7))
    found = read_status(config)
    [table] = found.tables
    assert (table.table, table.source, table.state) == ("shop.orders", "shop.orders", "behind")
    assert (table.rows, table.changes, table.events_behind) == (3, 5, 3)
    assert (table.position, table.newest_change_ms, table.committed_ms) == (
        "mysql-bin.000002:77",
        1_000,
        2_000,
    )
    assert table.lag_seconds is not None
    assert table.lag_seconds > 1e9
    assert (table.data_files, table.delete_files) == (1, 0)
    assert found.not_started == ("shop.new",)
    assert json.loads(json.dumps(found.to_json()))["tables"][0]["events_behind"] == 3


def test_status_counts_the_events_of_a_recreated_topic_that_no_marker_knows(
    config: Config, lake: SqlCatalog
) -> None:
    reset = marker(10).with_new_topic(TOPIC, "another id")
    write(lake, ("shop", "orders"), {"id": [1]}, reset)
    [table] = read_status(config).tables
    assert (table.state, table.events_behind) == ("behind", 10)


def test_status_counts_the_events_under_a_new_name_of_a_renamed_table(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(4, topic="p.shop.old"))
    with lake.load_table(("shop", "orders")).transaction() as change:
        change.set_properties({SOURCE_KEY: "shop.orders"})
    [table] = read_status(config).tables
    assert (table.state, table.events_behind) == ("behind", 10)


def test_status_of_a_table_that_the_configuration_leaves_out(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(7))
    pause = {"reason": "no key", "hint": None, "since_ms": 1}
    lake.update_namespace_properties("shop_ops", updates={f"{PAUSED_KEY}shop.orders": json.dumps(pause)})
    source = config.source.model_copy(update={"exclude": ("shop.orders",)})
    [table] = read_status(config.model_copy(update={"source": source})).tables
    assert (table.state, table.events_behind, table.lag_seconds) == ("excluded", 3, None)
    assert table.reason == "the configuration does not include it"
    assert "replicator drop shop.orders" in (table.next_step or "")


def test_status_shows_quarantined_events_and_paused_tables(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    rows = {"table": ["shop.orders", "shop.orders", "shop.new"], "reason": ["a", "b", "c"]}
    write(lake, ("shop_ops", "quarantine"), rows, None)
    pause = {"reason": "no key", "hint": None, "since_ms": 1}
    lake.update_namespace_properties("shop_ops", updates={f"{PAUSED_KEY}shop.orders": json.dumps(pause)})
    found = read_status(config)
    assert (found.tables[0].state, found.tables[0].quarantined, found.quarantined) == ("paused", 2, 3)
    assert found.paused == {"shop.orders": "no key"}


def test_status_has_unknown_lag_when_the_log_cannot_be_read(
    config: Config, lake: SqlCatalog, tmp_path: Path
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    (tmp_path / "recorded" / "manifest.json").unlink()
    found = read_status(config)
    assert (found.tables[0].state, found.tables[0].lag_seconds) == ("unknown", None)
    assert found.log_problem


def test_status_fails_when_a_marker_is_from_a_newer_version(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    table = lake.load_table(("shop", "orders"))
    with table.transaction() as change:
        change.set_properties({MARKER_KEY: '{"version": 99}'})
    with pytest.raises(LakeUnavailable, match=r"shop\.orders: a commit marker has version 99"):
        read_status(config)


def test_check_lake_refuses_a_namespace_of_another_mirror(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    assert {result.name: result.status for result in check_lake(config)}["lake: namespace"] == "ok"
    other = config.model_copy(update={"mirror": config.mirror.model_copy(update={"name": "crm"})})
    assert {result.name: result.status for result in check_lake(other)}["lake: namespace"] == "fail"


@pytest.mark.parametrize(
    ("jdbc", "uri"),
    [
        ("jdbc:sqlite:/a/b.db", "sqlite:////a/b.db"),
        ("jdbc:postgresql://h:5432/lake", "postgresql+psycopg2://u:p@h:5432/lake"),
        ("jdbc:mysql://h/lake", "mysql+pymysql://u:p@h/lake"),
    ],
)
def test_sqlalchemy_uri_translates_jdbc_addresses(jdbc: str, uri: str) -> None:
    user = None if "sqlite" in jdbc else "u"
    assert sqlalchemy_uri(jdbc, user, user and "p") == uri
    with pytest.raises(LakeUnavailable, match="no Python driver"):
        sqlalchemy_uri("jdbc:oracle:thin:@h", "u", "p")


# Beside the source


TEN = {(TOPIC, 0): 10}


def beside(config: Config, **view: Any) -> TableStatus:
    """Return the status of the only table for a view of the source in which the topic ends at offset 10."""
    found = SourceView("p.", **{"ends": TEN, "is_asked": True, **view})
    (table,) = read._assemble(config, read_lake(config), found).tables
    return table


def at(pos: int, **rest: Any) -> ConnectorOffset:
    return ConnectorOffset("mysql-bin.000002", pos, **rest)


END = BinlogEnd("mysql-bin.000002", 500)
RUNNING = Observation("RUNNING", name="shop")
FAILED = Observation("FAILED", "Failed to read next byte from position 651", "shop")


def test_status_is_current_when_the_connector_offset_covers_the_source_end(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    table = beside(config, end=END, connector=RUNNING, offset=at(500))
    assert (table.state, table.lag_seconds, table.reason) == ("current", 0.0, None)
    # The state of the connector does not matter: everything that it read is in the lake.
    assert beside(config, end=END, connector=FAILED, offset=at(500)).state == "current"


@pytest.mark.parametrize(
    ("view", "state", "reason", "step"),
    [
        (
            {"end": END, "connector": Observation("MISSING")},
            "behind",
            "no connector has",
            "replicator connect",
        ),
        (
            {"end": END, "connector": Observation("STOPPED", name="shop"), "offset": at(4)},
            "behind",
            "shop is STOPPED",
            "resume it",
        ),
        (
            {"end": END, "connector": RUNNING, "offset": at(4)},
            "behind",
            "has confirmed",
            "none: the connector",
        ),
        (
            {"end": END, "connector": RUNNING, "offset": at(900, in_snapshot=True)},
            "behind",
            "the initial snapshot is not complete",
            "none: the connector",
        ),
        (
            {"end": END, "connector": Observation("UNREACHABLE", "cannot reach Kafka Connect")},
            "unknown",
            "cannot reach Kafka Connect",
            "start the Kafka Connect worker",
        ),
        (
            {"source_problem": "cannot reach MySQL", "connector": RUNNING, "offset": at(4)},
            "unknown",
            "has all of the log; cannot reach MySQL",
            "replicator check",
        ),
        (
            {"ends": None, "log_problem": "cannot reach Kafka"},
            "unknown",
            "cannot reach Kafka",
            "Kafka is running",
        ),
        ({"ends": {(TOPIC, 0): 12}}, "behind", "2 events of the log", "replicator run"),
        (
            {
                "ends": {(TOPIC, 0): 12},
                "end": END,
                "connector": Observation(
                    "STOPPED", name="shop", address="http://connect:8083/connectors/shop"
                ),
            },
            "behind",
            "not in the lake yet; the connector shop is STOPPED",
            "PUT http://connect:8083/connectors/shop/resume; replicator run applies them",
        ),
    ],
)
def test_status_has_reason_and_next_step_when_a_table_is_not_current(
    config: Config, lake: SqlCatalog, view: dict[str, Any], state: str, reason: str, step: str
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    table = beside(config, **view)
    assert table.state == state
    assert reason in (table.reason or "")
    assert step in (table.next_step or "")


@pytest.mark.parametrize(
    ("heal_ms", "when"), [(1_000, "when it runs"), (4_102_444_800_000, "at 2100-01-01T00:00:00Z")]
)
def test_status_says_when_the_mirror_reads_a_paused_table_again(
    config: Config, lake: SqlCatalog, heal_ms: int, when: str
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    pause = {"reason": "lost", "hint": "run: replicator heal shop.orders", "since_ms": 1, "heal_ms": heal_ms}
    lake.update_namespace_properties("shop_ops", updates={f"{PAUSED_KEY}shop.orders": json.dumps(pause)})
    (table,) = read_status(config).tables
    step = "run: replicator heal shop.orders; or wait: the mirror reads the table again"
    assert table.next_step == f"{step} {when}"
    # The request was made meanwhile; it may have failed.
    request = replace(new_request(TableId("shop", "orders"), "lost"), requested_ms=heal_ms)
    lake.update_namespace_properties("shop_ops", updates={f"{REREAD_KEY}shop.orders": request.to_json()})
    (table,) = read_status(config).tables
    assert table.next_step == "run: replicator heal shop.orders"


def test_status_has_the_connector_and_the_source_tables_without_events(config: Config) -> None:
    gtids = GtidSet.parse("248dac7f-e706-11f1-ad3e-02fc00000001:1-9")
    some = GtidSet.parse("248dac7f-e706-11f1-ad3e-02fc00000001:1-4")
    view = SourceView(
        "p.",
        ends={},
        is_asked=True,
        end=BinlogEnd("mysql-bin.000002", 500, gtids),
        connector=RUNNING,
        offset=at(400, gtids=some),
        empty=("shop.nothing",),
        unread=("shop.later",),
    )
    found = read._assemble(config, read_lake(config), view)
    assert found.connector is not None
    assert (found.connector.name, found.connector.state) == ("shop", "RUNNING")
    assert found.connector.transactions_behind == 5
    assert (found.empty, found.unread) == (("shop.nothing",), ("shop.later",))
    assert json.loads(json.dumps(found.to_json()))["connector"]["position"] == "mysql-bin.000002:400"


def assembled(
    config: Config, oldest: OldestUnread, monkeypatch: pytest.MonkeyPatch, **view: Any
) -> TableStatus:
    """Return the status of the only table if the oldest unread changes are as given."""
    monkeypatch.setattr(read, "read_oldest", lambda *_: oldest)
    return beside(config, **view)


def test_lag_is_the_age_of_the_oldest_change_that_is_missing_not_of_the_newest_applied(
    config: Config, lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest change of the marker is fifty years old; the source has committed one three seconds ago."""
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    oldest = OldestUnread(in_source_ms=now_ms() - 3_000)
    table = assembled(config, oldest, monkeypatch, end=END, connector=RUNNING, offset=at(400))
    assert table.state == "current"
    assert table.lag_seconds == pytest.approx(3, abs=2)


def test_table_whose_rows_may_differ_says_so_until_it_is_compared(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    ops = config.lake.ops_namespace
    lake.create_namespace_if_not_exists(ops)
    noted = MayDiffer("a foreign key may have changed rows, at b.000001:9", "b.000001", 9, 1_000)
    lake.update_namespace_properties(ops, updates={f"{MAY_DIFFER_KEY}shop.orders": noted.to_json()})
    table = beside(config, end=END, connector=RUNNING, offset=at(500))
    assert (table.state, table.reason) == ("may differ", noted.reason)
    assert table.next_step == "run: replicator verify shop.orders --repair"
    # What the mirror lacks is said first.
    assert beside(config, end=END, connector=RUNNING, offset=at(400)).state == "behind"
    check = VerifiedTable(TableId("shop", "orders"), "equal", "b.000001:9", 1, 1, 0, offsets={0: 1})
    lake.update_namespace_properties(ops, updates={f"{VERIFIED_KEY}shop.orders": check.to_json()})
    table = beside(config, end=END, connector=RUNNING, offset=at(500))
    assert (table.state, table.reason) == ("current", None)


def test_events_of_a_new_table_under_the_old_name_do_not_count(config: Config, lake: SqlCatalog) -> None:
    """r1 was renamed to r2, and r1 created again: further events of its topic belong to the new table."""
    moved = replace(marker(4, topic="p.shop.r1"), sequence=2)
    for name, stamp in (("r2", moved), ("r1", marker(7, topic="p.shop.r1"))):
        write(lake, ("shop", name), {"id": [1]}, stamp)
        with lake.load_table(("shop", name)).transaction() as change:
            change.set_properties({SOURCE_KEY: f"shop.{name}"})
    view = SourceView("p.", ends={("p.shop.r1", 0): 7}, is_asked=True, end=END, offset=at(500))
    found = {t.source: t for t in read._assemble(config, read_lake(config), view).tables}
    assert (found["shop.r1"].state, found["shop.r2"].state) == ("current", "current")


@pytest.mark.parametrize("kind", ["metadata", "snap"])
def test_missing_files_of_one_table_are_said_of_that_table_alone(
    config: Config, lake: SqlCatalog, kind: str
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop", "others"), {"id": [1]}, marker(10))
    broken = lake.load_table(("shop", "others"))
    snapshot = broken.current_snapshot()
    assert snapshot is not None
    lost = broken.metadata_location if kind == "metadata" else snapshot.manifest_list
    Path(lost.removeprefix("file://")).unlink()
    found = {table.table: table for table in read_status(config).tables}
    assert (found["shop.orders"].state, found["shop.others"].state) == ("current", "unreadable")
    assert "files cannot be read" in (found["shop.others"].reason or "")
    checks = {result.name: result for result in check_lake(config)}
    assert checks["lake: tables"].status == "fail"
    assert "shop.others" in checks["lake: tables"].found


def test_status_says_that_definitions_are_not_compared() -> None:
    view = SourceView("p.", ends=TEN, is_asked=True, end=END)
    assert list(read._problems(view, ComparedDefinitions(1))) == []
    told = "the definitions of the tables are not compared with the source: cannot reach MySQL"
    found = list(read._problems(view, ComparedDefinitions(None, "cannot reach MySQL")))
    assert found == [Problem(told, "run: replicator check")]


def test_status_says_whether_the_mirror_runs() -> None:
    assert read.run_status(None).state == "unknown"
    record = replace(RunRecord.of_this_process("shop.toml"), follows=True, batch_ms=5)
    running = read.run_status(record)
    assert (running.state, running.since_ms, running.batch_ms) == ("running", record.began_ms, 5)
    ended = read.run_status(replace(record, ended_ms=7, reason="the lake is away"))
    assert (ended.state, ended.since_ms, ended.reason) == ("ended", 7, "the lake is away")
    killed = read.run_status(replace(record, started=record.started - 1, seen_ms=9))
    assert (killed.state, killed.since_ms) == ("killed", 9)


def test_status_of_some_tables(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop", "others"), {"id": [1]}, marker(3, topic="p.shop.others"))
    status = read_status(config)
    assert [table.source for table in read.only(status, ["shop.or*"]).tables] == ["shop.orders"]
    assert read.only(status, []) is status
    with pytest.raises(UsageError, match=r"no table shop\.x"):
        read.only(status, ["shop.x"])
