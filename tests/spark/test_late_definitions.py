"""Definitions that arrive after the events that need them."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from replicator.errors import LateDefinition
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from replicator.runner.scheduler import Scheduler
from replicator.runner.table_states import TableStates
from replicator.sources.archive.change_log import ArchiveChangeLog
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness

ORDERS = TableId("shop", "orders")
ID, NAME, MAIL = (
    ColumnSpec("id", "bigint", False),
    ColumnSpec("name", "varchar"),
    ColumnSpec("mail", "varchar"),
)
WAIT_S = 300.0


class GrowingLog(ArchiveChangeLog):
    """An archive that may still get events; `late` are definitions that arrive at the next batch."""

    grows = True
    late: Sequence[bytes] = ()

    def schema_changes(self) -> Iterator[RawRecord]:
        yield from super().schema_changes()
        late, self.late = self.late, ()
        for value in late:
            yield RawRecord("shop", 0, 1_000, 0, None, value)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def defined(pos: int, *columns: ColumnSpec, table: str = "orders", kind: str = "CREATE") -> Record:
    return Record("shop", 0, None, schema_change_event(Place(1, pos), table, columns, ["id"], kind=kind))


def altered(pos: int, ddl: str, *columns: ColumnSpec) -> bytes:
    return schema_change_event(Place(1, pos), "orders", columns, ["id"], kind="ALTER", ddl=ddl)


def change(pos: int, op: str = "c", table: str = "orders", **row: Any) -> Record:
    images: dict[str, Any] = {"before": row} if op == "d" else {"after": row}
    value = change_event(op, Place(1, pos), table, **images)
    return Record(f"shop.shop.{table}", 0, key_of(row, ["id"]), value)


def tombstone(number: int) -> Record:
    return Record("shop.shop.orders", 0, key_of({"id": number}, ["id"]), None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["driver", "executors"])
def growing(request: pytest.FixtureRequest, lake: LakeHarness, clock: Clock) -> LakeHarness:
    lake.open_log = GrowingLog
    lake.driver_max_events = None if request.param == "driver" else 0
    lake.schedule = lambda context: Scheduler(context, tables=TableStates(context, now=clock))
    return lake


def advance(mirror: Scheduler, *late: bytes) -> None:
    log: Any = mirror.context.log
    log.late = late
    if mirror.failing:
        mirror.tables.retries.retry_now(ORDERS)
    mirror.advance(log.offsets()[1])


def rows(lake: LakeHarness, table: str = "orders") -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in lake.rows(table)), key=str)


@pytest.mark.fault(
    "The definition of a table arrives after the first events that need it",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the table waits, the others continue; it pauses after five minutes, until the definition arrives",
)
def test_event_with_a_column_that_its_definition_lacks_waits_for_it(growing: LakeHarness) -> None:
    growing.write([defined(4, ID, NAME), defined(5, ID, table="users"), change(100, id=1, name="a")])
    growing.catch_up()
    growing.write([change(300, id=2, name="b", mail="b@"), change(301, table="users", id=7)])
    mirror = growing.mirror()
    advance(mirror)
    assert rows(growing) == [(1, "a")]
    assert [row["id"] for row in growing.rows("users")] == [7]
    assert mirror.failing
    advance(mirror)
    assert rows(growing) == [(1, "a")]
    advance(mirror, altered(200, "ALTER TABLE orders ADD mail VARCHAR(200)", ID, NAME, MAIL))
    assert rows(growing) == [(1, "a", None), (2, "b", "b@")]
    assert not mirror.failing
    assert mirror.summary().paused == {}


def test_table_pauses_if_the_definition_does_not_arrive_and_continues_once_it_does(
    growing: LakeHarness, clock: Clock
) -> None:
    causes: list[Exception] = []
    growing.write([defined(4, ID, NAME), change(100, id=1, name="a"), change(300, id=2, mail="b@")])
    mirror = growing.mirror()
    mirror.tables.on_pause(lambda _, cause: causes.append(cause))
    advance(mirror)
    clock.now = WAIT_S - 1
    advance(mirror)
    assert mirror.summary().paused == {}
    clock.now = WAIT_S
    advance(mirror)
    (reason,) = mirror.summary().paused.values()
    assert reason == "events of shop.orders differ from its definition: the definition lacks mail"
    assert [type(cause) for cause in causes] == [LateDefinition]
    sql = "ALTER TABLE orders RENAME COLUMN name TO mail"
    advance(mirror, altered(200, sql, ID, MAIL))
    assert mirror.summary().paused == {}
    assert rows(growing) == [(1, "a"), (2, "b@")]


def test_differences_that_are_no_late_definitions_are_not_waited_for(growing: LakeHarness) -> None:
    """A column that the connector leaves out; an event of an older definition; one older than all."""
    ddl = "ALTER TABLE orders DROP mail"
    growing.write(
        [
            defined(50, ID, NAME, MAIL, ColumnSpec("secret", "varchar")),
            Record("shop", 0, None, altered(200, ddl, ID, NAME, ColumnSpec("secret", "varchar"))),
            change(100, id=1, name="a", mail="a@"),
            change(300, id=2, name="b"),
            change(110, id=3, name="c", mail="c@"),
        ]
    )
    mirror = growing.mirror()
    advance(mirror)
    assert not mirror.failing
    growing.write([change(20, id=4, name="d", older="x")])
    other = growing.mirror()
    advance(other)
    assert not other.failing
    assert mirror.summary().paused == {}


def test_events_that_carry_their_schema_do_not_wait(growing: LakeHarness) -> None:
    def carried(record: Record, *columns: ColumnSpec) -> Record:
        assert record.key is not None
        assert record.value is not None
        value = with_value_schema(record.value, columns, record.topic)
        return Record(record.topic, 0, with_key_schema(record.key, columns, ["id"], record.topic), value)

    growing.write(
        [
            defined(4, ID, NAME),
            carried(change(100, id=1, name="a"), ID, NAME),
            carried(change(300, id=2, name="b", mail="b@"), ID, NAME, MAIL),
        ]
    )
    mirror = growing.mirror()
    advance(mirror)
    assert not mirror.failing
    assert rows(growing) == [(1, "a", None), (2, "b", "b@")]


@pytest.mark.parametrize("newest", [130, 180], ids=["in time", "late"])
def test_rows_of_a_recreated_table_are_not_removed_if_that_becomes_known_late(
    lake: LakeHarness, newest: int
) -> None:
    lake.write([defined(4, ID, NAME), change(101, id=1, name="a"), change(newest, id=2, name="b")])
    lake.catch_up()
    lake.write([defined(150, ID, NAME, kind="DROP"), defined(160, ID, NAME)])
    paused = "".join(lake.catch_up().summary().paused.values())
    assert ("became known after its later changes" in paused) is (newest > 150)
    assert len(rows(lake)) == (2 if newest > 150 else 0)
