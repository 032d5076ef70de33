"""Tags of all tables at one source position: what they contain, when they fail, and how long they stay."""

import json
from dataclasses import replace
from typing import Any

import pytest

from replicator.errors import SchemaError, UsageError
from replicator.lake.commit import Staged
from replicator.lake.reading.table_metadata import TableMetadata
from replicator.lake.reading.tags import TagStatus
from replicator.maintenance.table_reader import Target
from replicator.model.binlog import BinlogEnd
from replicator.model.position import SourcePosition
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from replicator.model.tags import TagState
from replicator.operations.maintain import maintain_tables
from replicator.operations.status.read import read_status
from replicator.operations.tag import delete
from replicator.operations.tag.request import list_tags
from replicator.runner.scheduler import Scheduler
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.change_log import Offsets
from tests.oracle.compare import tagged_rows
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.lake_schemas import validate_lake
from tests.support.orders_table import COLUMNS, DEFINITION, ORDERS, created, event
from tests.support.scenario import other_table, row_of
from tests.support.tagged_lake import GivenPositions, recorded, request, with_positions

BILLS = "shop.shop.bills"
ID = ColumnSpec("id", "bigint", False)


def end(pos: int) -> BinlogEnd:
    return BinlogEnd("mysql-bin.000001", pos)


@pytest.fixture
def positions(lake: LakeHarness) -> GivenPositions:
    """The source is at position 150 and the connector has confirmed that."""
    found = GivenPositions(end(150), end(150))
    with_positions(lake, found)
    return found


def tagged(lake: LakeHarness, name: str, tag: str = "noon", namespace: str = "shop") -> list[dict[str, Any]]:
    with lake.catalog() as catalog:
        return sorted(tagged_rows(catalog.load_table((namespace, name)), tag), key=lambda row: str(row["id"]))


def ids(lake: LakeHarness, name: str, tag: str = "noon", namespace: str = "shop") -> list[int]:
    return [row["id"] for row in tagged(lake, name, tag, namespace)]


def tag_names(lake: LakeHarness, *table: str) -> list[str]:
    with lake.catalog() as catalog:
        return TableMetadata.of(catalog.load_table(table)).tags


def with_two_tables(lake: LakeHarness) -> Scheduler:
    """Write rows of two tables before and after position 150, of which the lake has the first ones."""
    lake.write([DEFINITION, other_table("bills", "CREATE", 10, columns=[ID])])
    lake.write([created(1), row_of("bills", 110, id=1), created(60), row_of("bills", 170, id=2), created(70)])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}, BILLS: {0: 1}})
    return mirror


def test_tables_are_tagged_at_the_position_whether_they_change_or_not(
    lake: LakeHarness, positions: GivenPositions
) -> None:
    mirror = with_two_tables(lake)
    request(mirror, "noon")
    positions.confirmed_end = None
    mirror.advance({ORDERS: {0: 3}, BILLS: {0: 1}})
    assert recorded(mirror, "noon").state is TagState.STARTED
    # `orders` has passed the position. Whether `bills` lacks a change from before it is not known.
    assert ids(lake, "orders") == [1]
    assert len(lake.rows("orders")) == 3
    assert tag_names(lake, "shop", "bills") == []
    positions.confirmed_end = end(150)
    mirror.tags.poll_now()
    mirror.advance({ORDERS: {0: 3}, BILLS: {0: 2}})
    for name in ("orders", "bills"):
        assert ids(lake, name) == [1]
        assert ids(lake, name, namespace="shop_changes") == [1]
    (found,) = list_tags(lake.config())
    assert (found.state, found.position, found.tables) == (
        "complete",
        "mysql-bin.000001:150",
        ("shop.bills", "shop.orders"),
    )
    with lake.catalog() as catalog:
        validate_lake(catalog, "shop")


def test_tables_without_a_topic_are_tagged_too(lake: LakeHarness, positions: GivenPositions) -> None:
    """A table that was read from the source has no topic before its first event."""
    hidden = set[str]()

    def shown(offsets: Offsets) -> Offsets:
        return {topic: partitions for topic, partitions in offsets.items() if topic not in hidden}

    class Log(ArchiveChangeLog):
        def offsets(self) -> tuple[Offsets, Offsets]:
            first, ends = super().offsets()
            return shown(first), shown(ends)

    lake.open_log = Log
    mirror = with_two_tables(lake)
    mirror.advance(mirror.context.log.offsets()[1])
    hidden.add(BILLS)
    positions.binlog_end, positions.confirmed_end = end(200), None
    mirror = lake.mirror()
    request(mirror, "noon")
    mirror.advance(mirror.context.log.offsets()[1])
    assert tag_names(lake, "shop", "bills") == []
    positions.confirmed_end = end(200)
    mirror.tags.poll_now()
    mirror.tags.tend()
    assert recorded(mirror, "noon").state is TagState.COMPLETE
    assert (ids(lake, "orders"), ids(lake, "bills")) == ([1, 60, 70], [1, 2])
    assert ids(lake, "bills", namespace="shop_changes") == [1, 2]


@pytest.mark.parametrize("last_event", [False, True])
def test_table_that_was_read_up_to_the_position_is_tagged(
    lake: LakeHarness, positions: GivenPositions, last_event: bool
) -> None:
    """Right after a bootstrap, the tables and the tag have the position of the binlog's end."""
    mirror = with_two_tables(lake)
    mirror.advance(mirror.context.log.offsets()[1])
    table, context = TableId("shop", "bills"), mirror.context
    for role in LakeRole:
        found = context.lake.load(context.ledger.namespace(role), "bills")
        marker = context.ledger.progress(table).marker(role)
        assert found is not None
        assert marker is not None
        # The newest event begins at 170. A read ends behind it.
        ended = replace(
            marker, sequence=marker.sequence + 1, position=SourcePosition("mysql-bin.000001", 200)
        )
        context.writer.commit(context.writer.target(table, role, found), Staged(), ended)
    request(mirror, "noon")
    positions.binlog_end = positions.confirmed_end = end(170 if last_event else 200)
    mirror.tags.tend()
    mirror.advance(mirror.context.log.offsets()[1])
    found_tag = recorded(mirror, "noon")
    assert found_tag.state is (TagState.FAILED if last_event else TagState.COMPLETE), found_tag
    if not last_event:
        assert ids(lake, "bills") == [1, 2]


def test_table_that_is_created_after_the_position_has_no_tag(
    lake: LakeHarness, positions: GivenPositions
) -> None:
    mirror = with_two_tables(lake)
    lake.write([other_table("late", "CREATE", 180, columns=[ID]), row_of("late", 190, id=1)])
    mirror = lake.mirror()
    request(mirror, "noon")
    mirror.advance(mirror.context.log.offsets()[1])
    mirror.tags.poll_now()
    mirror.advance(mirror.context.log.offsets()[1])
    assert recorded(mirror, "noon").state is TagState.COMPLETE
    assert tag_names(lake, "shop", "late") == []
    assert len(lake.rows("late")) == 1


@pytest.mark.parametrize("crossing", [True, False])
def test_tag_has_the_columns_of_its_position(
    lake: LakeHarness, positions: GivenPositions, crossing: bool
) -> None:
    """A column that was added before the position without a later row is in the tag; a later one is not."""
    added = [*COLUMNS, ColumnSpec("a", "int", False, "7")]
    later = [*added, ColumnSpec("b", "int")]

    def alter(pos: int, columns: list[ColumnSpec]) -> Record:
        value = schema_change_event(Place(1, pos), "orders", columns, ["id"], kind="ALTER", ddl="ALTER ...")
        return Record("shop", 0, None, value)

    lake.write([DEFINITION, created(1)])
    lake.catch_up()
    lake.write([alter(140, added), alter(160, later)])
    if crossing:
        lake.write([event("c", 170, after={"id": 2, "name": "new", "a": 1, "b": 2})])
    mirror = lake.mirror()
    request(mirror, "noon")
    if not crossing:
        positions.confirmed_end = None
        mirror.advance(mirror.context.log.offsets()[1])
        positions.confirmed_end = end(150)
        mirror.tags.poll_now()
    for _ in range(2):
        mirror.advance(mirror.context.log.offsets()[1])
    assert recorded(mirror, "noon").state is TagState.COMPLETE
    assert tagged(lake, "orders") == [{"id": 1, "name": "new", "a": 7}]
    with lake.catalog() as catalog:
        assert catalog.load_table(("shop", "orders")).schema().column_names == ["id", "name", "a", "b"]


def test_tag_fails_when_a_table_waits_too_long_for_the_connector(
    lake: LakeHarness, positions: GivenPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions.confirmed_end = None
    rows = [event("c", pos, after={"id": pos, "name": "x"}, partition=p) for pos, p in ((160, 0), (115, 1))]
    lake.write([DEFINITION, *rows])
    mirror = lake.mirror()
    request(mirror, "noon")
    mirror.advance({ORDERS: {0: 1, 1: 1}})
    assert [row["id"] for row in lake.rows("orders")] == [115]
    monkeypatch.setattr("replicator.runner.tags._LONGEST_HOLD_S", 0.0)
    mirror.tags.finish()
    found = recorded(mirror, "noon")
    assert found.state is TagState.FAILED
    assert "did not confirm" in (found.reason or "")
    mirror.advance({ORDERS: {0: 1, 1: 1}})
    assert sorted(row["id"] for row in lake.rows("orders")) == [115, 160]


@pytest.mark.parametrize("skip_paused", [True, False])
def test_paused_table_makes_the_tag_fail_unless_it_is_left_out(
    lake: LakeHarness, positions: GivenPositions, skip_paused: bool
) -> None:
    mirror = with_two_tables(lake)
    table = mirror.tables.table_of(BILLS)
    mirror.tables.pause(table, SchemaError("its bills are odd"))
    request(mirror, "noon", skip_paused=skip_paused)
    for _ in range(2):
        mirror.tags.poll_now()
        mirror.advance(mirror.context.log.offsets()[1])
    found = recorded(mirror, "noon")
    if skip_paused:
        assert (found.state, found.left_out) == (TagState.COMPLETE, ("shop.bills",))
        assert tag_names(lake, "shop", "bills") == []
        assert ids(lake, "orders") == [1]
    else:
        assert (found.state, found.reason) == (TagState.FAILED, "shop.bills is paused: its bills are odd")
        # No table keeps a tag, and no table was held up.
        assert tag_names(lake, "shop", "orders") == tag_names(lake, "shop_changes", "orders") == []
        assert len(lake.rows("orders")) == 3


def test_changes_of_several_servers_make_the_tag_fail(lake: LakeHarness, positions: GivenPositions) -> None:
    with_two_tables(lake)
    lake.write([of_other_server(event("c", 130, after={"id": 9, "name": "x"}))])
    mirror = lake.mirror()
    request(mirror, "noon")
    for _ in range(2):
        mirror.advance(mirror.context.log.offsets()[1])
    found = recorded(mirror, "noon")
    assert found.state is TagState.FAILED
    assert "several MySQL servers" in (found.reason or "")
    assert tag_names(lake, "shop", "bills") == []


def of_other_server(record: Record) -> Record:
    value = json.loads(record.value or b"{}")
    value["source"]["server_id"] += 1
    return replace(record, value=json.dumps(value).encode())


def test_archive_has_no_position_to_tag(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1)])
    mirror = lake.mirror()
    request(mirror, "noon")
    mirror.advance(mirror.context.log.offsets()[1])
    found = recorded(mirror, "noon")
    assert found.state is TagState.FAILED
    assert "archive" in (found.reason or "")
    assert len(lake.rows("orders")) == 1


def test_maintenance_keeps_tagged_snapshots_until_the_tag_is_deleted(
    lake: LakeHarness, positions: GivenPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = with_two_tables(lake)
    request(mirror, "noon")
    ends = mirror.context.log.offsets()[1]
    for _ in range(2):
        mirror.advance(ends)
    settings: dict[str, Any] = {"max_snapshots": 1, "snapshot_age": "1 second", "merge_files": 2}
    lake.write([created(n) for n in range(71, 80)])
    busy = lake.mirror(lake.config(maintenance=settings))
    for stop in range(4, 13):
        busy.advance({ORDERS: {0: stop}, BILLS: {0: 2}})
    config = lake.config(maintenance=settings)
    targets = [Target(ns, "orders", "shop.orders") for ns in ("shop", "shop_changes")]
    maintain_tables(config, busy.context.lake, targets)
    with lake.catalog() as catalog:
        kept = [len(catalog.load_table((ns, "orders")).metadata.snapshots) for ns in ("shop", "shop_changes")]
    assert max(kept) < 6, "maintenance deletes other snapshots"
    assert ids(lake, "orders") == ids(lake, "orders", namespace="shop_changes") == [1]
    versions = busy.context.spark.sql("SELECT id FROM lake.shop.orders VERSION AS OF 'noon'").collect()
    assert [row.id for row in versions] == [1]

    monkeypatch.setattr("replicator.jvm.spark.running_session", lambda _config: _existing(busy))
    assert delete.delete_tag(config, "noon", 0)
    assert tag_names(lake, "shop", "orders") == tag_names(lake, "shop_changes", "bills") == []
    assert list_tags(config) == ()
    with pytest.raises(UsageError, match="no tag noon"):
        delete.delete_tag(config, "noon", 0)


class _existing:  # noqa: N801 - stands for a function
    """The session of a mirror in place of a new one."""

    def __init__(self, mirror: Scheduler) -> None:
        self.spark = mirror.context.spark

    def __enter__(self) -> Any:
        return self.spark

    def __exit__(self, *_: object) -> None:
        return


def test_running_mirror_deletes_a_tag(lake: LakeHarness, positions: GivenPositions) -> None:
    mirror = with_two_tables(lake)
    request(mirror, "noon")
    mirror.advance({ORDERS: {0: 2}, BILLS: {0: 1}})
    assert tag_names(lake, "shop", "orders") == ["noon"]
    config = lake.config()
    with lock_of(lake):
        assert not delete.delete_tag(config, "noon", 0)
    mirror.tags.poll_now()
    mirror.advance({ORDERS: {0: 3}, BILLS: {0: 1}})
    assert tag_names(lake, "shop", "orders") == tag_names(lake, "shop_changes", "orders") == []
    assert list_tags(config) == ()


def lock_of(lake: LakeHarness) -> Any:
    from replicator.runner.lock import only_one

    return only_one(lake.config())


def test_schedule_makes_tags_and_deletes_the_oldest(
    lake: LakeHarness, positions: GivenPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_two_tables(lake)
    config = lake.config()
    config = config.model_copy(update={"tags": config.tags.model_copy(update={"every": 3600.0, "keep": 2})})
    mirror, now = lake.mirror(config), 1_800_000_000_000
    positions.binlog_end = positions.confirmed_end = end(200)
    monkeypatch.setattr("replicator.runner.tags.now_ms", lambda: now)
    ends = mirror.context.log.offsets()[1]
    for _ in range(4):
        for _ in range(3):
            mirror.tags.poll_now()
            mirror.advance(ends)
        now += 3_599_000
        mirror.tags.poll_now()
        mirror.advance(ends)
        now += 1_000
    names = [tag.name for tag in list_tags(config)]
    assert names == ["auto-20270115T100000Z", "auto-20270115T110000Z"]
    assert sorted(tag_names(lake, "shop", "orders")) == names
    status: tuple[TagStatus, ...] = read_status(config).tags
    assert [(tag.scheduled, tag.state, len(tag.tables)) for tag in status] == [(True, "complete", 2)] * 2
