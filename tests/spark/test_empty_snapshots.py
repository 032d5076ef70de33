"""Tables that were empty when the connector took its initial snapshot again: nothing replaces their mirrors' rows."""

import json
from collections.abc import Sequence

import pytest

from replicator.model.binlog import ConnectorOffset
from replicator.model.snapshot_checks import KNOWN_KEY, checks_in
from replicator.runner import empty_snapshots
from replicator.runner.empty_snapshots import ConnectorView
from replicator.runner.scheduler import Scheduler
from tests.oracle.events import Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS
from tests.support.recreated_topic import with_topic_id

FIRST, AGAIN = 10, 1000
"""Seconds at which the snapshots are taken."""
LATER = AGAIN + 100


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_snapshots, "_POLL_S", 0.0)


def defined(table: str, at: tuple[int, int], second: int, mark: str = "true") -> list[Record]:
    """Return what a snapshot sends of the definition of a table."""
    place, found = Place(*at, 0, second * 1000, server_id=0), list[Record]()
    for kind in ("DROP", "CREATE"):
        value = json.loads(schema_change_event(place, table, COLUMNS, ["id"], kind=kind))
        value["source"]["snapshot"] = mark if kind == "CREATE" else "true"
        found.append(Record("shop", 0, None, json.dumps(value).encode()))
    return found


def both(at: tuple[int, int], second: int, last: str = "true") -> list[Record]:
    return [*defined("orders", at, second), *defined("users", at, second, last)]


def row(op: str, table: str, number: int, place: Place, mark: str = "false", partition: int = 0) -> Record:
    image = {"id": number, "name": "x"}
    value = json.loads(
        change_event(
            op, place, table, before=image if op == "d" else None, after=None if op == "d" else image
        )
    )
    value["source"]["snapshot"] = mark
    return Record(f"shop.shop.{table}", partition, key_of(image, ["id"]), json.dumps(value).encode())


def read(table: str, at: tuple[int, int], second: int, *numbers: int, partitions: int = 1) -> list[Record]:
    """Return the rows that a snapshot read."""
    place = Place(*at, 0, second * 1000, server_id=0)
    marks = [*["true"] * (len(numbers) - 1), "last_in_data_collection"]
    return [row("r", table, n, place, mark, n % partitions) for n, mark in zip(numbers, marks, strict=True)]


def change(op: str, table: str, number: int, at: tuple[int, int], second: int) -> Record:
    return row(op, table, number, Place(*at, 0, second * 1000))


def applied(lake: LakeHarness, records: Sequence[Record] = ()) -> Scheduler:
    """Write records, apply everything with a new mirror, and let it check its tables."""
    if records:
        lake.write(records)
    mirror = lake.mirror()
    for _ in range(2):
        mirror.advance(mirror.context.log.offsets()[1])
    return mirror


def ids(lake: LakeHarness, table: str = "orders") -> list[int]:
    return sorted(found["id"] for found in lake.rows(table))


BEFORE = [
    *both((5, 50), FIRST),
    *read("orders", (5, 50), FIRST, 1, 2, 3),
    *read("users", (5, 50), FIRST, 1, 2),
]


@pytest.mark.parametrize("at", [(5, 90), (5, 50), (3, 70)])
@pytest.mark.fault(
    "The connector takes its snapshot again, also of another server, and a table is empty then",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table is paused",
)
def test_table_without_rows_in_a_repeated_snapshot_is_paused(lake: LakeHarness, at: tuple[int, int]) -> None:
    """The snapshot is at a later position, or of another server at the same position or at a lower file number."""
    with_topic_id(lake)
    assert applied(lake, BEFORE).summary().paused == {}
    again = [
        *both(at, AGAIN),
        *read("users", at, AGAIN, 2, 3),
        change("c", "users", 4, (at[0], at[1] + 5), LATER),
    ]
    paused = applied(lake, again).summary().paused
    assert list(paused) == ["shop.orders"]
    assert "in which shop.orders has no rows" in paused["shop.orders"]
    assert ids(lake, "users") == [2, 3, 4]
    # The pause stays: nothing would notice it again.
    assert list(applied(lake).summary().paused) == ["shop.orders"]


def test_later_rows_of_the_empty_table_do_not_hide_that(lake: LakeHarness) -> None:
    with_topic_id(lake)
    applied(lake, BEFORE)
    again = [*both((5, 90), AGAIN), *read("users", (5, 90), AGAIN, 2)]
    paused = applied(lake, [*again, change("c", "orders", 3, (5, 99), LATER)]).summary().paused
    assert list(paused) == ["shop.orders"]


@pytest.mark.parametrize("at", [(5, 90), (5, 50), (3, 70)])
@pytest.mark.parametrize("restart", [False, True])
def test_table_whose_rows_come_last_is_not_paused(
    lake: LakeHarness, at: tuple[int, int], *, restart: bool
) -> None:
    with_topic_id(lake)
    applied(lake, BEFORE)
    lake.write([*both(at, AGAIN), *read("users", at, AGAIN, 2, 3)])
    rest = [
        *read("orders", at, AGAIN, 1, 4, partitions=2),
        change("c", "users", 4, (at[0], at[1] + 5), LATER),
    ]
    if restart:
        assert applied(lake).summary().paused == {}
    mirror = applied(lake, rest)
    assert mirror.summary().paused == {}
    assert awaited(mirror) == []


def awaited(mirror: Scheduler) -> list[str]:
    properties = mirror.context.lake.namespace_properties(mirror.context.config.lake.ops_namespace)
    checks = checks_in(properties)
    assert checks is not None
    return [table.name for table in checks.awaited]


def test_table_waits_until_the_snapshot_has_ended(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector's earlier offset, and one of the snapshot itself, do not tell that."""
    with_topic_id(lake)
    applied(lake, BEFORE)
    lake.write([*both((5, 90), AGAIN), *read("users", (5, 90), AGAIN, 2)])
    mirror = lake.mirror()
    offsets = [
        None,
        ConnectorOffset("binlog.000005", 60, ts_sec=AGAIN),
        ConnectorOffset("binlog.000005", 90, ts_sec=AGAIN - 500),
        ConnectorOffset("binlog.000005", 90, in_snapshot=True, ts_sec=AGAIN),
    ]
    for offset in offsets:
        seen = ConnectorView("initial", offset)
        monkeypatch.setattr(empty_snapshots, "view_connector", lambda _config, seen=seen: seen)
        for _ in range(3):
            mirror.advance(mirror.context.log.offsets()[1])
        assert mirror.summary().paused == {}
        assert awaited(mirror) == ["orders"]
    ended = ConnectorView("initial", ConnectorOffset("binlog.000005", 90, ts_sec=AGAIN))
    monkeypatch.setattr(empty_snapshots, "view_connector", lambda _config: ended)
    for _ in range(2):
        mirror.advance(mirror.context.log.offsets()[1])
    assert list(mirror.summary().paused) == ["shop.orders"]
    assert awaited(mirror) == []


@pytest.mark.parametrize("mode", ["no_data", "recovery", "schema_only"])
def test_snapshot_that_was_to_read_no_rows_pauses_tables_if_the_offset_was_lost(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(empty_snapshots, "view_connector", lambda _config: ConnectorView(mode))
    with_topic_id(lake)
    gone = [change("d", "users", row, (5, 60 + row), FIRST + 1) for row in (1, 2)]
    assert applied(lake, [*BEFORE, *gone]).summary().paused == {}
    mirror = applied(lake, both((5, 90), AGAIN, "last"))
    paused = mirror.summary().paused
    # An empty table may lack changes too.
    assert sorted(paused) == ([] if mode == "recovery" else ["shop.orders", "shop.users"])
    assert all("the connector lost its offset" in reason for reason in paused.values())
    assert awaited(mirror) == []
    assert applied(lake).summary().paused.keys() == paused.keys()


def test_all_tables_may_be_empty(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_snapshots, "view_connector", lambda _config: ConnectorView("initial"))
    with_topic_id(lake)
    applied(lake, BEFORE)
    mirror = applied(lake, both((5, 90), AGAIN, "last"))
    assert sorted(mirror.summary().paused) == ["shop.orders", "shop.users"]


def test_without_kafka_connect_the_operator_says_why_a_snapshot_has_no_rows(lake: LakeHarness) -> None:
    with_topic_id(lake)
    # An empty mirror may lack changes too.
    gone = [change("d", "users", row, (5, 60 + row), FIRST + 1) for row in (1, 2)]
    applied(lake, [*BEFORE, *gone])
    mirror = applied(lake, both((5, 90), AGAIN, "last"))
    paused = mirror.summary().paused
    assert sorted(paused) == ["shop.orders", "shop.users"]
    assert "or the connector was not to read rows" in paused["shop.orders"]
    mirror = applied(lake)
    assert mirror.summary().paused == {}
    assert awaited(mirror) == []


def test_definitions_that_are_delivered_again_are_no_snapshot(lake: LakeHarness) -> None:
    with_topic_id(lake)
    applied(lake, BEFORE)
    later = change("c", "users", 9, (5, 99), LATER)
    mirror = applied(lake, [*both((5, 50), FIRST), later, *both((5, 50), FIRST)])
    assert mirror.summary().paused == {}


def test_table_that_was_empty_at_the_first_snapshot_is_not_paused(lake: LakeHarness) -> None:
    with_topic_id(lake)
    first = [*both((5, 50), FIRST), *read("users", (5, 50), FIRST, 1)]
    later = [change("c", "orders", 1, (5, 60), LATER), change("c", "users", 2, (5, 70), LATER)]
    for records in ([*first, later[0]], [later[1]]):
        assert applied(lake, records).summary().paused == {}


def test_first_snapshot_may_be_interrupted(lake: LakeHarness) -> None:
    with_topic_id(lake)
    applied(lake, [*both((5, 50), FIRST), *read("orders", (5, 50), FIRST, 1, 2)])
    again = [*both((5, 90), AGAIN), *read("orders", (5, 90), AGAIN, 1), *read("users", (5, 90), AGAIN, 1)]
    mirror = applied(lake, [*again, change("c", "users", 2, (5, 99), LATER)])
    assert mirror.summary().paused == {}
    assert awaited(mirror) == []


def test_mirror_without_rows_is_not_paused(lake: LakeHarness) -> None:
    with_topic_id(lake)
    gone = [change("d", "orders", n, (5, 60 + n), FIRST + 1) for n in (1, 2, 3)]
    applied(lake, [*BEFORE, *gone])
    again = [*both((5, 90), AGAIN), *read("users", (5, 90), AGAIN, 2)]
    mirror = applied(lake, [*again, change("c", "users", 4, (5, 99), LATER)])
    assert mirror.summary().paused == {}
    assert awaited(mirror) == []


def test_mirror_of_an_earlier_version_knows_no_snapshots(lake: LakeHarness) -> None:
    """Which of them its tables have is not known, so only later ones are checked."""
    with_topic_id(lake)
    mirror = applied(lake, [*BEFORE, change("c", "orders", 4, (5, 60), FIRST + 1)])
    mirror.context.lake.set_namespace_property(mirror.context.config.lake.ops_namespace, KNOWN_KEY, None)
    assert applied(lake, [change("c", "users", 5, (5, 70), LATER)]).summary().paused == {}
    again = [*both((5, 90), LATER), *read("users", (5, 90), LATER, 2)]
    mirror = applied(lake, [*again, change("c", "users", 6, (5, 99), LATER + 100)])
    assert list(mirror.summary().paused) == ["shop.orders"]


def test_renamed_table_is_known_by_its_new_name(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    with_topic_id(lake)
    applied(lake, BEFORE)
    again = [*both((5, 90), AGAIN), *read("users", (5, 90), AGAIN, 2)]
    place = Place(5, 95, 0, (AGAIN + 1) * 1000)
    renamed = schema_change_event(place, "bills", COLUMNS, ["id"], kind="ALTER", old_name="orders")
    mirror = applied(lake, [*again, Record("shop", 0, None, renamed)])
    assert mirror.summary().paused == {}
    ended = ConnectorView("initial", ConnectorOffset("binlog.000005", 99, ts_sec=AGAIN))
    monkeypatch.setattr(empty_snapshots, "view_connector", lambda _config: ended)
    assert list(applied(lake).summary().paused) == ["shop.bills"]


def test_replay_of_an_archive_pauses_the_table_each_time(lake: LakeHarness) -> None:
    """Also into an empty lake. An archive has no source from which the table could be read."""
    again = [*both((5, 90), AGAIN), *read("users", (5, 90), AGAIN, 2)]
    for records in ([*BEFORE, *again], []):
        mirror = applied(lake, records)
        assert list(mirror.summary().paused) == ["shop.orders"]
        assert ids(lake, "users") == [2]
