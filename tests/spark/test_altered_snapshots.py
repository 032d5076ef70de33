"""The connector takes its initial snapshot again on a server whose binlog has lower positions, soon after an ALTER.

Rows of a snapshot have no GTID. Their definition, which the snapshot sends too, tells which version they have.
"""

import json
from collections.abc import Sequence
from typing import cast

import pytest

from replicator.runner.rounds import Rounds
from tests.oracle.events import ColumnSpec, Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS
from tests.support.story_log import StoryLog

Image = dict[str, object]
UUID = "11111111-1111-1111-1111-111111111111"
OLD = (ColumnSpec("id", "bigint", False), ColumnSpec("name", "varchar"), ColumnSpec("extra", "int"))
ADDED = (*OLD, ColumnSpec("added", "int", False, "7"))
RENAMED = (OLD[0], ColumnSpec("title", "varchar"), OLD[2])
DROPPED = OLD[:2]
RETYPED = (*OLD[:2], ColumnSpec("extra", "bigint"))
SIZES = [1, -1, -3, 100]
STATEMENTS = {
    "add": (ADDED, "ADD COLUMN added INT NOT NULL DEFAULT 7"),
    "rename": (RENAMED, "RENAME COLUMN name TO title"),
    "drop": (DROPPED, "DROP COLUMN extra"),
    "retype": (RETYPED, "MODIFY extra BIGINT"),
}


def defined(place: Place, columns: Sequence[ColumnSpec]) -> list[Record]:
    """Return what a snapshot sends of the definition of the table."""
    values = (
        schema_change_event(place, "orders", columns, ["id"], kind=kind, snapshot="true")
        for kind in ("DROP", "CREATE")
    )
    return [Record("shop", 0, None, value) for value in values]


def altered(place: Place, columns: Sequence[ColumnSpec], action: str) -> Record:
    ddl = f"ALTER TABLE orders {action}"
    value = schema_change_event(place, "orders", columns, ["id"], kind="ALTER", ddl=ddl)
    return Record("shop", 0, None, value)


def image(columns: Sequence[ColumnSpec], number: int) -> Image:
    values = {"bigint": number, "int": number, "varchar": f"n{number}"}
    return {c.name: values[c.kind] for c in columns}


def event(
    op: str,
    place: Place,
    columns: Sequence[ColumnSpec],
    number: int,
    mark: str = "false",
    *,
    partition: int = 0,
) -> Record:
    row = image(columns, number)
    value = json.loads(change_event(op, place, "orders", after=row))
    value["source"]["snapshot"] = mark
    return Record(ORDERS, partition, key_of(row, ["id"]), json.dumps(value).encode())


def read(place: Place, columns: Sequence[ColumnSpec], *numbers: int) -> list[Record]:
    marks = ["first", *["true"] * (len(numbers) - 2), "last_in_data_collection"]
    return [event("r", place, columns, n, mark) for n, mark in zip(numbers, marks, strict=True)]


def at(file: int, pos: int, time: int, transaction: int | None = None) -> Place:
    """Return a place; `time` is in tens of seconds.

    One without a transaction is that of an initial snapshot; 0 stands for one without a GTID.
    """
    gtid = f"{UUID}:{transaction}" if transaction else None
    return Place(file, pos, 0, time * 10_000, 0 if transaction is None else 1, gtid)


def snapshot(file: int, pos: int, time: int, columns: Sequence[ColumnSpec], *numbers: int) -> list[Record]:
    """Return the definition and the rows that an initial snapshot sends."""
    return [*defined(at(file, pos, time), columns), *read(at(file, pos, time + 1), columns, *numbers)]


def existing(columns: Sequence[ColumnSpec], *numbers: int) -> list[Image]:
    """Return rows from before a statement; an added column has its default in them."""
    default: Image = {c.name: 7 for c in columns if c.name == "added"}
    return [image(columns, n) | default for n in numbers]


def first_server(columns: Sequence[ColumnSpec], action: str) -> list[Record]:
    """Return a snapshot, a change, the statement, and another change."""
    return [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        altered(at(900, 70, 30, 2), columns, action),
        event("c", at(900, 80, 40, 3), columns, 4),
    ]


def run(lake: LakeHarness, records: list[Record], size: int) -> dict[str, str]:
    """Mirror records, so many at once. Return the tables that are paused, and why.

    If `size` is negative, the mirror is behind: the log has all records, and batches have so many.
    """
    if size < 0:
        lake.write(records)
        return dict(lake.catch_up(lake.config(apply={"max_events": -size})).summary().paused)
    first = max(size, 2)
    lake.open_log = lambda path: StoryLog(path, {}, None)
    lake.write(records[:first])
    mirror = lake.mirror()
    rounds, log = Rounds(mirror, follows=False), cast("StoryLog", mirror.context.log)
    rounds.advance(mirror.check_log()[1])
    for start in range(first, len(records), size):
        lake.write(records[start : start + size])
        log.refresh()
        rounds.advance(mirror.check_log()[1])
    return dict(mirror.summary().paused)


def play(
    lake: LakeHarness, records: list[Record], size: int, columns: Sequence[ColumnSpec], wanted: list[Image]
) -> None:
    assert run(lake, records, size) == {}
    found = [{c.name: r.get(c.name) for c in columns} for r in lake.rows("orders")]
    assert sorted(found, key=lambda r: str(r["id"])) == wanted


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions, soon after an ALTER TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the rows have the columns that the snapshot's definition shows",
)
def test_rows_of_a_snapshot_have_its_definition(lake: LakeHarness, kind: str, size: int, file: int) -> None:
    (columns, action), pos = STATEMENTS[kind], 65
    records = [
        *first_server(columns, action),
        *snapshot(file, pos, 50, columns, 1, 2, 3, 4),
        event("c", at(file, pos + 10, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again from a replica that lags behind an ALTER TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the columns go back, and the statement is executed again when the replica executes it",
)
def test_replica_that_lags_behind_a_statement_executes_it_again(
    lake: LakeHarness, kind: str, size: int, file: int
) -> None:
    (columns, action), pos = STATEMENTS[kind], 65
    records = [
        *first_server(columns, action),
        *snapshot(file, pos, 50, OLD, 1, 2),
        event("c", at(file, pos + 10, 20, 1), OLD, 3),
        altered(at(file, pos + 20, 30, 2), columns, action),
        event("c", at(file, pos + 30, 40, 3), columns, 4),
        event("c", at(file, pos + 40, 60, 4), columns, 5),
    ]
    wanted = [*existing(columns, 1, 2, 3), *(image(columns, n) for n in (4, 5))]
    play(lake, records, size, columns, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions and without GTIDs, soon after an "
    "ALTER TABLE; changes follow it",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the changes have the columns that the snapshot's definition shows",
)
def test_changes_after_a_snapshot_have_its_definition_without_gtids(
    lake: LakeHarness, kind: str, size: int, file: int
) -> None:
    (columns, action), pos = STATEMENTS[kind], 65
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 0), OLD, 3),
        altered(at(900, 70, 30, 0), columns, action),
        event("c", at(900, 80, 40, 0), columns, 4),
        *snapshot(file, pos, 50, columns, 1, 2, 3, 4),
        event("c", at(file, pos + 10, 60, 0), columns, 5),
        event("c", at(file + 1, 4, 61, 0), columns, 6),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5, 6)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_rows_of_two_snapshots_at_one_position_have_their_own_definitions(
    lake: LakeHarness, kind: str, size: int
) -> None:
    """The second one is of another server."""
    columns, action = STATEMENTS[kind]
    records = [
        *first_server(columns, action),
        *snapshot(900, 50, 50, columns, 1, 2, 3, 4),
        event("c", at(900, 60, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


def dropped(place: Place) -> Record:
    value = schema_change_event(place, "orders", (), [], kind="DROP", ddl="DROP TABLE orders")
    return Record("shop", 0, None, value)


def created(place: Place, columns: Sequence[ColumnSpec]) -> Record:
    value = schema_change_event(
        place, "orders", columns, ["id"], kind="CREATE", ddl="CREATE TABLE orders (…)"
    )
    return Record("shop", 0, None, value)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [OLD, ADDED, DROPPED], ids=["same", "more", "fewer"])
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again from a replica that lags behind a DROP TABLE and CREATE TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the old rows come back, and go when the replica executes the statements",
)
def test_replica_that_lags_behind_a_new_table_executes_its_statements_again(
    lake: LakeHarness, columns: Sequence[ColumnSpec], size: int, file: int
) -> None:
    pos = 65
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), columns),
        event("c", at(900, 80, 40, 4), columns, 4),
        *snapshot(file, pos, 50, OLD, 1, 2),
        event("c", at(file, pos + 10, 20, 1), OLD, 3),
        dropped(at(file, pos + 20, 30, 2)),
        created(at(file, pos + 21, 31, 3), columns),
        event("c", at(file, pos + 30, 40, 4), columns, 4),
        event("c", at(file, pos + 40, 60, 5), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (4, 5)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.fault(
    "The connector takes its initial snapshot again from a replica that lags behind an ALTER TABLE, and then reads a "
    "third server, with lower positions",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table pauses, and is read again",
)
def test_second_fail_over_before_a_statement_comes_again_pauses_the_table(
    lake: LakeHarness, kind: str, size: int
) -> None:
    columns, action = STATEMENTS[kind]
    records = [
        *first_server(columns, action),
        *snapshot(901, 65, 50, OLD, 1, 2),
        event("c", at(3, 75, 20, 1), OLD, 3),
        altered(at(3, 85, 30, 2), columns, action),
        event("c", at(3, 95, 40, 3), columns, 4),
        event("c", at(3, 105, 60, 4), columns, 5),
    ]
    paused = run(lake, records, size)
    assert list(paused) == ["shop.orders"]
    assert f"{UUID}:2" in paused["shop.orders"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_first_server_sends_a_statement_again_after_the_snapshot_of_a_replica_that_lags(
    lake: LakeHarness, kind: str, size: int
) -> None:
    columns, action = STATEMENTS[kind]
    first = first_server(columns, action)
    records = [
        *first,
        *snapshot(3, 65, 50, OLD, 1, 2),
        *first[4:],
        event("c", at(900, 90, 60, 4), columns, 5),
    ]
    wanted = [*existing(columns, 1, 2, 3), *(image(columns, n) for n in (4, 5))]
    play(lake, records, size, columns, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.fault(
    "An ALTER TABLE on a server with lower positions than those of the snapshot; the mirror is behind",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the rows of the snapshot have the columns from before it",
)
def test_rows_of_a_snapshot_do_not_have_a_later_definition(lake: LakeHarness, kind: str, size: int) -> None:
    columns, action = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(3, 60, 20, 1), OLD, 3),
        altered(at(3, 70, 30, 2), columns, action),
        event("c", at(3, 80, 40, 3), columns, 4),
    ]
    play(lake, records, size, columns, [*existing(columns, 1, 2, 3), image(columns, 4)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions, and an ALTER TABLE was not sent",
    area="Source",
    on="Iceberg; events by hand",
    outcome="changes from before the snapshot have the columns from before it",
)
def test_changes_from_before_a_snapshot_do_not_have_its_definition(
    lake: LakeHarness, kind: str, size: int, file: int
) -> None:
    columns, _ = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        event("c", at(900, 70, 30, 2), OLD, 4),
        *snapshot(file, 65, 50, columns, 1, 2, 3, 4),
        event("c", at(file, 75, 60, 5), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])
    changes = [r for r in lake.rows("orders", "shop_changes") if r["_change"]["op"] == "c" and r["id"] < 5]
    assert sorted((r["name"], r["extra"]) for r in changes) == [("n3", 3), ("n4", 4)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_changes_after_a_snapshot_have_its_definition_in_partitions_without_its_rows(
    lake: LakeHarness, kind: str, size: int
) -> None:
    """The time of a change is that of its statement: here, before the snapshot, as in a long transaction."""
    columns, _ = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3, partition=1),
        *snapshot(901, 65, 50, columns, 1, 2),
        event("c", at(901, 75, 40, 4), columns, 4, partition=1),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 4)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [OLD, ADDED, DROPPED], ids=["same", "more", "fewer"])
def test_first_server_creates_a_table_again_after_the_snapshot_of_a_replica_that_lags(
    lake: LakeHarness, columns: Sequence[ColumnSpec], size: int
) -> None:
    first = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), columns),
        event("c", at(900, 80, 40, 4), columns, 4),
    ]
    records = [
        *first,
        *snapshot(3, 65, 50, OLD, 1, 2),
        *first[4:],
        event("c", at(900, 90, 60, 5), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (4, 5)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_second_snapshot_at_the_position_of_the_first_has_its_own_definition(
    lake: LakeHarness, kind: str, size: int
) -> None:
    """The second one is of another server, and nothing was sent between them."""
    columns, _ = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        *snapshot(900, 50, 50, columns, 1, 2, 3),
        event("c", at(900, 60, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 5)])
    changes = [r for r in lake.rows("orders", "shop_changes") if r["_change"]["offset"] < 2]
    assert sorted((r["name"], r["extra"]) for r in changes) == [("n1", 1), ("n2", 2)]


@pytest.mark.parametrize("file", [1, 3, 900, 901])
@pytest.mark.parametrize("server", [3, 901])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.fault(
    "The offsets of the connector are set back to before its last snapshot and a DROP TABLE and CREATE TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table has all rows, or pauses and is read again",
)
def test_table_that_is_created_again_because_offsets_were_set_back_loses_nothing(
    lake: LakeHarness, size: int, server: int, file: int
) -> None:
    again = 20 if file == server else 0
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), OLD),
        event("c", at(900, 80, 40, 4), OLD, 4),
        *snapshot(server, 65, 50, OLD, 4, 5),
        event("c", at(server, 75, 60, 6), OLD, 6),
        dropped(at(file, again + 70, 30, 2)),
        created(at(file, again + 71, 31, 3), OLD),
        *(event("c", at(file, again + 80 + n, n * 10, n), OLD, n) for n in (4, 5, 6)),
        event("c", at(file, again + 90, 61, 7), OLD, 7),
    ]
    paused = run(lake, records, size)
    if paused:
        assert "its offsets were set back" in paused["shop.orders"]
        assert size > 0
    else:
        assert sorted(row["id"] for row in lake.rows("orders")) == [4, 5, 6, 7]


def test_backlog_that_spark_reads_past_a_statement_has_the_definition_of_each_batch(
    lake: LakeHarness,
) -> None:
    """The last records of the table, which show whether a definition is late, are of a later version."""
    lake.driver_max_events, lake.open_log = 0, lambda path: StoryLog(path, {}, None)
    lake.write(first_server(ADDED, STATEMENTS["add"][1]))
    assert lake.catch_up(lake.config(apply={"max_events": 2})).summary().paused == {}
    assert sorted(row["id"] for row in lake.rows("orders")) == [1, 2, 3, 4]
