"""The status of a mirror. The lake is a real one, written by PyIceberg instead of Spark."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import CATALOG_NAME, Config
from replicator.errors import LakeUnavailable
from replicator.lake.properties import PAUSED_KEY, RETRYING_KEY
from replicator.lake.reader import open_catalog, sqlalchemy_uri, tables_in
from replicator.maintenance.history import MAINTAINED_KEY, StepRun, runs_to_json
from replicator.maintenance.plan import Step
from replicator.maintenance.table_reader import mirror_tables, read_conditions, read_namespaces
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.gtid import GtidSet
from replicator.model.position import SourcePosition
from replicator.operations import status
from replicator.operations.check.lake import _maintenance, check_lake
from replicator.operations.status import TableMaintenance, TableStatus, read_status
from replicator.sources.archive import ArchiveWriter, Event
from replicator.sources.connector_policy import Observation
from replicator.sources.source_view import SourceView
from tests.support.config import minimal_config

TOPIC = "p.shop.orders"


def marker(next_offset: int, sequence: int = 1, topic: str = TOPIC) -> CommitMarker:
    return CommitMarker(
        mirror="shop",
        sequence=sequence,
        batch=1,
        progress={topic: {0: PartitionProgress(next_offset)}},
        position=SourcePosition("mysql-bin.000002", 77),
        watermark_ms=1_000,
        committed_ms=2_000,
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    with ArchiveWriter(tmp_path / "recorded", topic_prefix="p", encoding="json") as writer:
        for offset in range(10):
            writer.append(Event(TOPIC, 0, offset, 0, None, b"{}", ()))
        writer.append(Event("p.shop.new", 0, 0, 0, None, b"{}", ()))
        writer.append(Event("p.shop.left_out", 0, 0, 0, None, b"{}", ()))
        writer.append(Event("p", 0, 0, 0, None, b"{}", ()))
    return minimal_config(
        tmp_path,
        source={"tables": ["shop.*"], "exclude": ["shop.left_out"]},
        log={"kind": "archive", "path": "recorded"},
    )


@pytest.fixture
def lake(config: Config, tmp_path: Path) -> Iterator[SqlCatalog]:
    """Create a lake with empty namespaces, and open it for writing."""
    (tmp_path / "lake").mkdir()
    catalog = SqlCatalog(
        CATALOG_NAME, uri=sqlalchemy_uri(config.lake.uri or ""), warehouse=f"file://{config.lake.warehouse}"
    )
    for namespace in ("shop", "shop_changes", "shop_ops"):
        catalog.create_namespace(namespace)
    yield catalog
    catalog.close()


def write(
    lake: SqlCatalog, name: tuple[str, str], rows: dict[str, list[Any]], stamp: CommitMarker | None
) -> None:
    data = pa.table(rows)
    table = lake.create_table(
        name, data.schema, properties={} if stamp is None else {MARKER_KEY: stamp.to_json()}
    )
    table.append(data)


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


def test_status_is_current_when_all_events_were_read(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    [table] = read_status(config).tables
    assert (table.state, table.events_behind, table.lag_seconds, table.changes) == ("current", 0, 0.0, None)


def test_status_ignores_a_maintenance_commit_without_marker(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    lake.load_table(("shop", "orders")).append(pa.table({"id": [2]}))
    assert read_status(config).tables[0].state == "current"


def test_status_excludes_tables_without_a_marker(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "by_hand"), {"id": [1]}, None)
    assert read_status(config).tables == ()


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
    with pytest.raises(LakeUnavailable, match=r"shop\.orders: commit marker has version 99"):
        read_status(config)


def test_check_lake_refuses_a_namespace_of_another_mirror(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    assert {result.name: result.status for result in check_lake(config)}["lake: namespace"] == "ok"
    other = config.model_copy(update={"mirror": config.mirror.model_copy(update={"name": "crm"})})
    assert {result.name: result.status for result in check_lake(other)}["lake: namespace"] == "fail"


def test_check_lake_warns_of_a_table_when_it_has_many_small_files(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_changes", "orders"), {"id": [1]}, marker(10))
    for _ in range(20):
        lake.load_table(("shop", "orders")).append(pa.table({"id": [2]}))
    settings = config.maintenance.model_copy(update={"merge_files": 2})
    found = [r for r in check_lake(config.model_copy(update={"maintenance": settings})) if r.status != "ok"]
    assert [(r.name, r.status) for r in found] == [("lake: files", "warn")]
    assert found[0].found.endswith(": shop.orders")
    assert found[0].next_step == "run: replicator maintain -c FILE"
    assert all(result.status == "ok" for result in check_lake(config))


def with_maintenance(config: Config, **settings: Any) -> Config:
    changed = config.maintenance.model_copy(update=settings)
    return config.model_copy(update={"maintenance": changed})


def append(lake: SqlCatalog, name: tuple[str, str], count: int = 1, **summary: str) -> None:
    properties = {key.replace("_", "."): value for key, value in summary.items()}
    with lake.load_table(name).transaction() as commits:
        for _ in range(count):
            commits.append(pa.table({"id": [2]}), snapshot_properties=properties)


def maintenance(config: Config) -> dict[str, TableMaintenance]:
    return {found.table: found for found in read_status(config).maintenance}


def test_status_has_the_maintenance_of_mirrors_changelogs_and_quarantine(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_changes", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_ops", "quarantine"), {"table": ["shop.orders"]}, None)
    write(lake, ("shop", "by_hand"), {"id": [1]}, None)
    append(lake, ("shop", "orders"), 2)
    found = maintenance(with_maintenance(config, merge_files=3))
    assert list(found) == ["shop.orders", "shop_changes.orders", "shop_ops.quarantine"]
    orders, table = found["shop.orders"], lake.load_table(("shop", "orders"))
    assert (orders.data_files, orders.delete_files, orders.snapshots) == (3, 0, 3)
    file = Path(table.metadata_location.removeprefix("file://"))
    assert orders.metadata_bytes == file.stat().st_size
    assert orders.bytes == sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert (orders.maintained_ms, orders.steps) == (None, {})
    assert (orders.due, orders.overdue) == (("merge data files",), ())
    assert found["shop_changes.orders"].due == ()


def test_status_counts_only_the_files_since_the_last_merge(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 3)
    append(lake, ("shop", "orders"), 1, replicator_maintenance="merge data files")
    append(lake, ("shop", "orders"), 2)
    settings = with_maintenance(config, merge_files=3)
    merged = lake.load_table(("shop", "orders")).metadata.snapshots[4]
    found = maintenance(settings)["shop.orders"]
    assert (found.data_files, found.due) == (7, ())
    assert (found.maintained_ms, found.steps) == (
        merged.timestamp_ms,
        {"merge data files": merged.timestamp_ms},
    )
    append(lake, ("shop", "orders"))
    assert maintenance(settings)["shop.orders"].due == ("merge data files",)


def test_status_has_maintenance_whose_snapshots_were_deleted(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    runs = {Step.EXPIRE: StepRun(5_000, 4, 0), Step.MERGE_DATA: StepRun(4_000, 4, 0)}
    with lake.load_table(("shop", "orders")).transaction() as change:
        change.set_properties({MAINTAINED_KEY: runs_to_json(runs)})
    found = maintenance(config)["shop.orders"]
    assert (found.maintained_ms, found.steps) == (
        5_000,
        {"delete snapshots": 5_000, "merge data files": 4_000},
    )


def test_snapshots_with_a_tag_are_not_due_for_deletion(config: Config, lake: SqlCatalog) -> None:
    settings = with_maintenance(config, max_snapshots=1)
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 2)
    assert maintenance(settings)["shop.orders"].overdue == ("delete snapshots",)
    table = lake.load_table(("shop", "orders"))
    for number, snapshot in enumerate(table.metadata.snapshots[:2]):
        table.manage_snapshots().create_tag(snapshot.snapshot_id, f"kept{number}").commit()
    found = maintenance(settings)["shop.orders"]
    assert (found.snapshots, found.due) == (3, ())


def test_snapshots_are_not_due_for_deletion_when_the_table_forbids_it(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 2)
    with lake.load_table(("shop", "orders")).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    assert maintenance(with_maintenance(config, max_snapshots=1))["shop.orders"].due == ()


def warnings(config: Config) -> dict[str, tuple[str, str]]:
    return {r.name: (r.found, r.next_step) for r in check_lake(config) if r.status != "ok"}


def test_check_lake_names_the_tables_and_the_command_for_each_kind_of_due_work(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    write(lake, ("shop_changes", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 4)
    append(lake, ("shop_changes", "orders"), 101)
    with lake.load_table(("shop_changes", "orders")).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    settings = with_maintenance(config, enabled=False, merge_files=3, max_snapshots=3)
    command = "run: replicator maintain -c FILE"
    expected = {
        "lake: files": (
            "many small files, which are slow to read: shop.orders, shop_changes.orders",
            command,
        ),
        "lake: snapshots": (
            "older or more snapshots than [maintenance] permits, which occupy storage: shop.orders",
            command,
        ),
        "lake: manifests": (
            "more than 100 manifests, which make each read plan slowly: shop_changes.orders",
            command,
        ),
    }
    assert warnings(settings) == expected


def test_check_lake_warns_of_many_deleted_rows(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    with open_catalog(config.lake) as catalog:
        (condition,) = read_conditions(config, list(mirror_tables(config, read_namespaces(config, catalog))))
    # PyIceberg writes no delete files.
    (result,) = _maintenance(config, [replace(condition, overdue=(Step.FOLD_DELETES,))])
    assert (result.name, result.status) == ("lake: deleted rows", "warn")
    assert result.found.endswith(", which each read must skip: shop.orders")
    assert result.next_step == "run: replicator maintain -c FILE"


def test_check_lake_leaves_to_the_mirror_what_it_does_between_its_batches(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    append(lake, ("shop", "orders"), 18)
    assert warnings(with_maintenance(config, merge_files=2)) == {}
    assert list(warnings(with_maintenance(config, merge_files=2, enabled=False))) == ["lake: files"]
    append(lake, ("shop", "orders"))
    assert list(warnings(with_maintenance(config, merge_files=2))) == ["lake: files"]


def test_status_counts_the_snapshots_of_a_mirror(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    lake.load_table(("shop", "orders")).append(pa.table({"id": [2]}))
    assert read_status(config).to_json()["tables"][0]["snapshots"] == 2


def test_open_catalog_creates_no_tables_in_a_database_that_is_not_a_catalog(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.db").touch()
    with pytest.raises(LakeUnavailable), open_catalog(config.lake) as catalog:
        tables_in(catalog, "shop")
    assert (tmp_path / "lake" / "catalog.db").stat().st_size == 0


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
    (table,) = status._assemble(config, status._read_lake(config), found).tables
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


def test_status_is_behind_when_the_connector_is_behind(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    table = beside(config, end=END, connector=FAILED, offset=at(400, ts_sec=3))
    assert (table.state, table.events_behind) == ("behind", 0)
    assert table.lag_seconds is not None
    assert table.lag_seconds > 1e9
    assert table.reason == (
        "the connector shop is FAILED: Failed to read next byte from position 651; "
        "the connector has confirmed mysql-bin.000002:400, the source is at mysql-bin.000002:500"
    )
    assert "MySQL is running" in (table.next_step or "")


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
            {"ends": {(TOPIC, 0): 12}, "end": END, "connector": Observation("STOPPED", name="shop")},
            "behind",
            "not in the lake yet; the connector shop is STOPPED",
            "PUT /connectors/NAME/resume; replicator run applies them",
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


def test_status_has_the_reason_when_a_table_is_retried(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(7))
    note = {"reason": "no room", "hint": "free some", "retry_ms": 1}
    lake.update_namespace_properties("shop_ops", updates={f"{RETRYING_KEY}shop.orders": json.dumps(note)})
    (table,) = read_status(config).tables
    assert (table.state, table.reason, table.next_step) == (
        "behind",
        "failed and is being retried: no room",
        "free some",
    )


def test_status_has_the_hint_of_a_paused_table(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    pause = {"reason": "no key", "hint": "give it one", "since_ms": 1}
    lake.update_namespace_properties("shop_ops", updates={f"{PAUSED_KEY}shop.orders": json.dumps(pause)})
    (table,) = read_status(config).tables
    assert (table.state, table.reason, table.next_step) == ("paused", "no key", "give it one")


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
    found = status._assemble(config, status._read_lake(config), view)
    assert found.connector is not None
    assert (found.connector.name, found.connector.state) == ("shop", "RUNNING")
    assert found.connector.transactions_behind == 5
    assert (found.empty, found.unread) == (("shop.nothing",), ("shop.later",))
    assert json.loads(json.dumps(found.to_json()))["connector"]["position"] == "mysql-bin.000002:400"


def test_status_has_no_connector_when_the_log_is_an_archive(config: Config, lake: SqlCatalog) -> None:
    write(lake, ("shop", "orders"), {"id": [1]}, marker(10))
    found = read_status(config)
    assert (found.connector, found.source_problem, found.tables[0].state) == (None, None, "current")
