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


def event(op: str, place: Place, columns: Sequence[ColumnSpec], number: int, mark: str = "false") -> Record:
    row = image(columns, number)
    value = json.loads(change_event(op, place, "orders", after=row))
    value["source"]["snapshot"] = mark
    return Record(ORDERS, 0, key_of(row, ["id"]), json.dumps(value).encode())


def read(place: Place, columns: Sequence[ColumnSpec], *numbers: int) -> list[Record]:
    marks = [*["true"] * (len(numbers) - 1), "last_in_data_collection"]
    return [event("r", place, columns, n, mark) for n, mark in zip(numbers, marks, strict=True)]


def at(file: int, pos: int, second: int, transaction: int | None = None) -> Place:
    """Return a place; one without a transaction is that of an initial snapshot."""
    gtid = None if transaction is None else f"{UUID}:{transaction}"
    return Place(file, pos, 0, second * 1000, 0 if transaction is None else 1, gtid)


def first_server(columns: Sequence[ColumnSpec], action: str) -> list[Record]:
    """Return a snapshot, a change, the statement, and another change."""
    return [
        *defined(at(900, 50, 10), OLD),
        *read(at(900, 50, 10), OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        altered(at(900, 70, 30, 2), columns, action),
        event("c", at(900, 80, 40, 3), columns, 4),
    ]


def play(
    lake: LakeHarness, records: list[Record], size: int, columns: Sequence[ColumnSpec], wanted: list[Image]
) -> None:
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
    assert mirror.summary().paused == {}
    found = [{c.name: r.get(c.name) for c in columns} for r in lake.rows("orders")]
    assert sorted(found, key=lambda r: str(r["id"])) == wanted


@pytest.mark.parametrize("size", [1, 100])
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
        *defined(at(file, pos, 50), columns),
        *read(at(file, pos, 51), columns, 1, 2, 3, 4),
        event("c", at(file, pos + 10, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


@pytest.mark.parametrize("size", [1, 100])
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
        *defined(at(file, pos, 50), OLD),
        *read(at(file, pos, 51), OLD, 1, 2),
        event("c", at(file, pos + 10, 20, 1), OLD, 3),
        altered(at(file, pos + 20, 30, 2), columns, action),
        event("c", at(file, pos + 30, 40, 3), columns, 4),
        event("c", at(file, pos + 40, 60, 4), columns, 5),
    ]
    executed = {"added": 7} if kind == "add" else {}
    wanted = [image(columns, n) | executed for n in (1, 2, 3)]
    play(lake, records, size, columns, [*wanted, *(image(columns, n) for n in (4, 5))])
