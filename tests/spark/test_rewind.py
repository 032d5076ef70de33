"""Events that the log has lost are sent again, behind those that it has, together with many that the lake has."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from replicator.model.table import TableId
from tests.oracle.events import ColumnSpec, Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness

NOTES = "shop.shop.notes"
COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("text", "varchar"))
WIDER = (*COLUMNS, ColumnSpec("more", "varchar"))
ALTER_POS = 1_495
Row = dict[str, Any]
Change = tuple[int, int, str]
"""Offset in the binlog, row in the event, and operation."""


def definition(columns: Sequence[ColumnSpec], pos: int, key: Sequence[str], ddl: str) -> Record:
    kind = ddl.split(maxsplit=1)[0]
    value = schema_change_event(Place(1, pos), "notes", columns, key, kind=kind, ddl=ddl)
    return Record("shop", 0, None, value)


def random_changes(seed: int, key: Sequence[str]) -> tuple[dict[Change, Record], list[Row]]:
    """Return changes, some of one statement, and the rows after them. A column is added on the way."""
    chance, rows, log = random.Random(seed), dict[int, Row](), dict[Change, Record]()
    for pos in range(1_000, 1_600, 10):
        wider = pos > ALTER_POS
        if wider:
            rows = {n: {"more": None} | row for n, row in rows.items()}
        for number in range(chance.choice((1, 1, 3))):
            n = chance.randrange(9)
            before = rows.pop(n, None)
            if before is None or chance.random() < 0.6:
                rows[n] = {"id": n, "text": chance.choice("ab")} | (
                    {"more": chance.choice("xy")} if wider else {}
                )
            after = rows.get(n)
            op = "c" if before is None else "d" if after is None else "u"
            value = change_event(op, Place(1, pos, number), "notes", before=before, after=after)
            log[pos, number, op] = Record(NOTES, 0, key_of({"id": n}, key) if key else None, value)
    return log, list(rows.values())


def assert_applied_once(lake: LakeHarness, changes: dict[Change, Record], rows: list[Row]) -> None:
    mirror = lake.catch_up()
    assert (mirror.summary().paused, mirror.summary().quarantined) == ({}, 0)
    recorded = [row["_change"] for row in lake.rows("notes", "shop_changes")]
    found = Counter((c["pos"], c["row"], c["op"], c["kind"]) for c in recorded)
    assert set(found.values()) == {1}
    assert {change[:3] for change in found} == changes.keys()
    assert sorted(map(values, lake.rows("notes"))) == sorted(map(values, rows))


def values(row: Row) -> tuple[str, ...]:
    return tuple(str(row[column.name]) for column in WIDER)


@pytest.mark.fault(
    "Lost events come again, after later ones and together with many that the lake has",
    area="Log",
    on="Iceberg; events by hand",
    outcome="each is applied once",
)
@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "keyless"])
@pytest.mark.parametrize("seed", [1, 2])
def test_lost_events_that_come_again_are_applied_once(
    lake: LakeHarness, seed: int, key: Sequence[str]
) -> None:
    changes, rows = random_changes(seed, key)
    log, chance = list(changes.values()), random.Random(seed)
    # The lake has the first ones; the table skips all others that the topic has.
    applied, skipped = chance.randrange(20, 50), len(log) - chance.randrange(10, 20)
    altered = definition(WIDER, ALTER_POS, key, "ALTER TABLE notes ADD COLUMN more VARCHAR(200)")
    lake.write([definition(COLUMNS, 4, key, "CREATE TABLE notes (...)"), *log[:applied]])
    writer = lake.catch_up().context.writer
    lake.write([altered, *log[applied:skipped]])
    writer.skip_events(TableId("shop", "notes"), NOTES, {0: skipped})
    lake.write([altered, *log[chance.randrange(applied) :]])
    assert_applied_once(lake, changes, rows)


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "keyless"])
def test_a_table_that_lacks_nothing_drops_what_comes_again_from_before_its_columns_changed(
    lake: LakeHarness, key: Sequence[str]
) -> None:
    changes, rows = random_changes(3, key)
    log = list(changes.values())
    altered = definition(WIDER, ALTER_POS, key, "ALTER TABLE notes ADD COLUMN more VARCHAR(200)")
    lake.write([definition(COLUMNS, 4, key, "CREATE TABLE notes (...)"), *log[:30]])
    lake.catch_up()
    lake.write([altered, *log[30:]])
    assert_applied_once(lake, changes, rows)
    # Each in a mirror of its own, as after a restart.
    lake.write(log[10:40])
    assert_applied_once(lake, changes, rows)
    lake.write([altered, *log[40:]])
    assert_applied_once(lake, changes, rows)
