"""The connector takes its initial snapshot again: an epoch of the table ends."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from replicator.model.position import SourcePosition
from replicator.runner.archive_run import pause_unfinished
from replicator.runner.scheduler import Scheduler
from replicator.runner.table_states import TableStates
from tests.oracle.events import Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS
from tests.support.recreated_topic import with_topic_id

FIRST, AGAIN, LATER = 10, 1000, 1100
"""Seconds at which the snapshots are taken, and of a later change."""
KAFKA = {
    "kind": "kafka",
    "topic_prefix": "shop",
    "bootstrap_servers": "127.0.0.1:1",
    "connect_url": "http://127.0.0.1:1",
}


def defined(table: str, at: tuple[int, int], second: int) -> list[Record]:
    """Return what a snapshot sends of the definition of a table."""
    place, found = Place(*at, 0, second * 1000, server_id=0), list[Record]()
    for kind in ("DROP", "CREATE"):
        value = json.loads(schema_change_event(place, table, COLUMNS, ["id"], kind=kind))
        value["source"]["snapshot"] = "true"
        found.append(Record("shop", 0, None, json.dumps(value).encode()))
    return found


def both(at: tuple[int, int], second: int) -> list[Record]:
    return [*defined("orders", at, second), *defined("users", at, second)]


def row(op: str, table: str, number: int, place: Place, mark: str = "false") -> Record:
    image = {"id": number, "name": "x"}
    images = {"before": image} if op == "d" else {"after": image}
    value = json.loads(change_event(op, place, table, before=images.get("before"), after=images.get("after")))
    value["source"]["snapshot"] = mark
    return Record(f"shop.shop.{table}", 0, key_of(image, ["id"]), json.dumps(value).encode())


def read(table: str, at: tuple[int, int], second: int, *numbers: int) -> list[Record]:
    """Return the rows that a snapshot read."""
    place = Place(*at, 0, second * 1000, server_id=0)
    marks = [*["true"] * (len(numbers) - 1), "last_in_data_collection"]
    return [row("r", table, n, place, mark) for n, mark in zip(numbers, marks, strict=True)]


def change(op: str, table: str, number: int, at: tuple[int, int], second: int) -> Record:
    return row(op, table, number, Place(*at, 0, second * 1000))


def applied(lake: LakeHarness, records: Sequence[Record] = (), *, reads: bool = False) -> Scheduler:
    """Write records, and apply everything with a new mirror; `reads`: it could read tables from the source."""
    if records:
        lake.write(records)
    sections = {"log": KAFKA, "source": {"url": "mysql://reader@127.0.0.1:1", "tables": ["shop.*"]}}
    mirror = lake.mirror(lake.config(**sections) if reads else None)
    for _ in range(2):
        mirror.advance(mirror.context.log.offsets()[1])
    return mirror


def ids(lake: LakeHarness, table: str = "orders", namespace: str = "shop") -> list[int]:
    return sorted(found["id"] for found in lake.rows(table, namespace))


BEFORE = [
    *both((5, 50), FIRST),
    *read("orders", (5, 50), FIRST, 1, 2, 3),
    *read("users", (5, 50), FIRST, 1, 2),
]


@pytest.fixture
def growing(lake: LakeHarness) -> LakeHarness:
    """A lake whose log grows; nothing is read from the source."""
    with_topic_id(lake)
    lake.schedule = lambda context: Scheduler(context, tables=TableStates(context))
    return lake


@pytest.mark.parametrize("at", [(5, 90), (5, 50), (3, 70)])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.fault(
    "The connector takes its snapshot again, also of another server, or of an empty table",
    area="Source",
    on="Iceberg; events by hand",
    outcome="all its tables are read again from the source",
)
def test_tables_of_a_repeated_snapshot_are_to_be_read_again(
    growing: LakeHarness, at: tuple[int, int], *, restart: bool
) -> None:
    """The snapshot is at a later position, or of another server at the same position or at a lower file number."""
    assert applied(growing, BEFORE, reads=True).summary().paused == {}
    again = [*both(at, AGAIN), *read("users", at, AGAIN, 2, 3)]
    mirror = applied(growing, again, reads=True)
    if restart:
        mirror = applied(growing, [change("c", "users", 4, (at[0], at[1] + 5), LATER)], reads=True)
    paused = mirror.summary().paused
    assert sorted(paused) == ["shop.orders", "shop.users"]
    assert all("took its snapshot again" in reason for reason in paused.values())
    assert ids(growing, "users") == [1, 2], "no row of the snapshot was applied"


def test_rows_of_a_repeated_snapshot_tell_it_without_definitions(growing: LakeHarness) -> None:
    applied(growing, BEFORE, reads=True)
    paused = applied(growing, read("users", (3, 70), AGAIN, 2, 3), reads=True).summary().paused
    assert list(paused) == ["shop.users"]


def test_changelog_without_a_mirror_pauses_because_it_may_lack_changes(growing: LakeHarness) -> None:
    """It cannot be read again."""

    def without_key(records: Sequence[Record]) -> list[Record]:
        return [
            replace(r, key=None, value=(r.value or b"").replace(b'["id"]', b"[]"))
            for r in records
            if "users" in str(r.value)
        ]

    def apply(records: Sequence[Record]) -> Scheduler:
        growing.write(without_key(records))
        source = {"url": "mysql://reader@127.0.0.1:1", "tables": ["shop.*"]}
        alone = [{"name": "shop.users", "keyless": "changelog"}]
        return growing.catch_up(growing.config(log=KAFKA, source=source, table=alone))

    assert apply(BEFORE).summary().paused == {}
    assert ids(growing, "users", "shop_changes") == [1, 2]
    (reason,) = apply(both((5, 90), AGAIN)).summary().paused.values()
    assert "took its snapshot again" in reason


def test_definitions_that_rebuild_the_history_of_the_connector_change_nothing(growing: LakeHarness) -> None:
    mirror = applied(growing, BEFORE, reads=True)
    mirror.context.recoveries.add(SourcePosition("mysql-bin.000005", 90))
    later = change("c", "users", 9, (5, 99), LATER)
    assert applied(growing, [*both((5, 90), AGAIN), later], reads=True).summary().paused == {}
    assert ids(growing, "users") == [1, 2, 9]


def test_snapshots_that_an_earlier_version_had_treated_change_nothing(growing: LakeHarness) -> None:
    mirror = applied(growing, BEFORE, reads=True)
    config = mirror.context.config
    mirror.context.lake.set_namespace_property(
        config.lake.ops_namespace, "replicator.snapshots-known", str(AGAIN * 1000)
    )
    assert applied(growing, both((5, 90), AGAIN), reads=True).summary().paused == {}


def test_definitions_that_are_delivered_again_are_no_snapshot(growing: LakeHarness) -> None:
    applied(growing, BEFORE, reads=True)
    later = change("c", "users", 9, (5, 99), LATER)
    records = [*both((5, 50), FIRST), later, *both((5, 50), FIRST)]
    assert applied(growing, records, reads=True).summary().paused == {}


@pytest.mark.parametrize("reads", [False, True])
def test_table_that_was_empty_at_the_first_snapshot_is_not_paused(
    growing: LakeHarness, *, reads: bool
) -> None:
    first = [*both((5, 50), FIRST), *read("users", (5, 50), FIRST, 1)]
    later = [change("c", "orders", 1, (5, 60), LATER), change("c", "users", 2, (5, 70), LATER)]
    for records in ([*first, later[0]], [later[1]]):
        assert applied(growing, records, reads=reads).summary().paused == {}


@pytest.mark.parametrize("at", [(5, 90), (3, 70)])
@pytest.mark.fault(
    "The connector took its snapshot again, in an archive that is replayed without a source",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the first row removes earlier ones; a table without rows is paused",
)
def test_rows_of_an_archived_snapshot_replace_earlier_ones(lake: LakeHarness, at: tuple[int, int]) -> None:
    again = [
        *both(at, AGAIN),
        *read("users", at, AGAIN, 2, 3),
        change("c", "users", 4, (at[0], at[1] + 5), LATER),
    ]
    for records in ([*BEFORE, *again], []):
        mirror = applied(lake, records)
        pause_unfinished(mirror, mirror.context.log.offsets()[1])
        paused = mirror.summary().paused
        assert list(paused) == ["shop.orders"]
        assert "sent no rows of shop.orders" in paused["shop.orders"]
        assert ids(lake, "users") == [2, 3, 4]


def test_first_snapshot_may_be_interrupted(lake: LakeHarness) -> None:
    applied(lake, [*both((5, 50), FIRST), *read("orders", (5, 50), FIRST, 1, 2)])
    again = [*both((5, 90), AGAIN), *read("orders", (5, 90), AGAIN, 1), *read("users", (5, 90), AGAIN, 1)]
    assert applied(lake, [*again, change("c", "users", 2, (5, 99), LATER)]).summary().paused == {}
    assert ids(lake) == [1]


def test_mirror_without_rows_follows_a_snapshot_without_rows(lake: LakeHarness) -> None:
    gone = [change("d", "orders", n, (5, 60 + n), FIRST + 1) for n in (1, 2, 3)]
    applied(lake, [*BEFORE, *gone])
    again = [*both((5, 90), AGAIN), *read("users", (5, 90), AGAIN, 2)]
    mirror = applied(lake, [*again, change("c", "users", 4, (5, 99), LATER)])
    pause_unfinished(mirror, mirror.context.log.offsets()[1])
    assert mirror.summary().paused == {}


def test_growing_log_without_a_source_waits_for_rows(growing: LakeHarness) -> None:
    applied(growing, BEFORE)
    mirror = applied(growing, both((5, 90), AGAIN))
    assert mirror.summary().paused == {}
    assert ids(growing) == [1, 2, 3]
    rows = [*read("users", (5, 90), AGAIN, 2), *read("orders", (5, 90), AGAIN, 7)]
    assert applied(growing, rows).summary().paused == {}
    assert (ids(growing), ids(growing, "users")) == ([7], [2])


def test_snapshot_without_rows_is_followed_by_one_with_rows(growing: LakeHarness) -> None:
    """So it is too if the topic with the rows of the first one was deleted."""
    applied(growing, BEFORE)
    twice = [*both((5, 90), AGAIN), *both((5, 150), LATER), *read("users", (5, 150), LATER, 2, 3)]
    for records in (twice, [change("c", "users", 4, (5, 160), LATER)], []):
        assert applied(growing, records).summary().paused == {}
    assert ids(growing, "users") == [2, 3, 4]
