"""Logs in which the connector takes its initial snapshot again, with other definitions: records and checks."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from replicator.lake.properties import RETRYING_KEY
from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
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
    """Mirror records, so many at once. Return the tables that are paused or wait for a retry, and why.

    If `size` is negative, the mirror is behind: the log has all records, and batches have so many.
    """
    if size < 0:
        lake.write(records)
        return _failures(lake.catch_up(lake.config(apply={"max_events": -size})))
    return run_in_pieces(lake, records, range(max(size, 2), len(records), size))


def run_in_pieces(lake: LakeHarness, records: Sequence[Record], cuts: Sequence[int]) -> dict[str, str]:
    """Mirror the records up to each of `cuts`, and then the rest, with one process. Return what `run` does."""
    lake.open_log = lambda path: StoryLog(path, {}, None)
    ends = [*cuts, len(records)]
    lake.write(records[: ends[0]])
    mirror = lake.mirror()
    rounds, log = Rounds(mirror, follows=False), cast("StoryLog", mirror.context.log)
    rounds.advance(mirror.check_log()[1])
    for start, end in pairwise(ends):
        lake.write(records[start:end])
        log.refresh()
        rounds.advance(mirror.check_log()[1])
    return _failures(mirror)


def rows(lake: LakeHarness, columns: Sequence[ColumnSpec]) -> list[Image]:
    """Return the rows of the mirror, ordered by key; None for a column that it lacks."""
    found: list[Image] = [{c.name: r.get(c.name) for c in columns} for r in lake.rows("orders")]
    return sorted(found, key=lambda r: str(r["id"]))


def _failures(mirror: Scheduler) -> dict[str, str]:
    context = mirror.context
    properties = context.lake.namespace_properties(context.config.lake.ops_namespace)
    waiting = {
        key.removeprefix(RETRYING_KEY): json.loads(text)["reason"]
        for key, text in properties.items()
        if key.startswith(RETRYING_KEY)
    }
    return {**waiting, **mirror.summary().paused}


def play(
    lake: LakeHarness, records: list[Record], size: int, columns: Sequence[ColumnSpec], wanted: list[Image]
) -> None:
    assert run(lake, records, size) == {}
    assert rows(lake, columns) == wanted


def dropped(place: Place) -> Record:
    value = schema_change_event(place, "orders", (), [], kind="DROP", ddl="DROP TABLE orders")
    return Record("shop", 0, None, value)


def created(place: Place, columns: Sequence[ColumnSpec]) -> Record:
    value = schema_change_event(
        place, "orders", columns, ["id"], kind="CREATE", ddl="CREATE TABLE orders (…)"
    )
    return Record("shop", 0, None, value)
