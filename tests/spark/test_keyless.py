"""Tables without a key: rows are identified by all their values, and equal rows are counted."""

import random
from collections import Counter
from typing import Any

import pytest

from tests.oracle.events import ColumnSpec, Place, change_event, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness

VISITS = "shop.shop.visits"
COLUMNS = (
    ColumnSpec("page", "varchar"),
    ColumnSpec("seconds", "int"),
    ColumnSpec("price", "decimal"),
)
DEFINITION = Record("shop", 0, None, schema_change_event(Place(1, 4), "visits", COLUMNS, [], kind="CREATE"))
Row = tuple[str | None, int | None]


def image(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {"page": row[0], "seconds": row[1], "price": 1.5}


def event(
    op: str,
    pos: int,
    before: Row | None = None,
    after: Row | None = None,
    *,
    number: int = 0,
    partition: int = 0,
) -> Record:
    place = Place(1, pos, number, server_id=0 if op == "r" else 1)
    return Record(
        VISITS, partition, None, change_event(op, place, "visits", before=image(before), after=image(after))
    )


def mirrored(lake: LakeHarness) -> Counter[Row]:
    return Counter((row["page"], row["seconds"]) for row in lake.rows("visits"))


A: Row = ("a", 1)
B: Row = ("b", None)
C: Row = (None, 3)


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_equal_rows_of_a_keyless_table_are_counted(lake: LakeHarness, driver_max_events: int) -> None:
    lake.write([DEFINITION, event("r", 10, after=A), event("r", 10, after=A), event("r", 10, after=B)])
    lake.driver_max_events = driver_max_events
    lake.catch_up()
    assert mirrored(lake) == {A: 2, B: 1}
    lake.write([event("c", 20, after=A), event("u", 30, B, C), event("d", 40, before=A)])
    lake.catch_up()
    assert mirrored(lake) == {A: 2, C: 1}
    lake.write([event("d", 50, before=A), event("u", 60, A, B), event("c", 70, after=C)])
    assert lake.catch_up().summary().paused == {}
    assert mirrored(lake) == {B: 1, C: 2}
    kinds = Counter(row["_change"]["kind"] for row in lake.rows("visits", "shop_changes"))
    assert kinds == {"INSERT": 5, "UPDATE_BEFORE": 2, "UPDATE_AFTER": 2, "DELETE": 2}


@pytest.mark.parametrize("seed", [1, 2])
def test_keyless_mirror_equals_the_source_for_any_batches_and_redelivery(
    lake: LakeHarness, seed: int
) -> None:
    chance, rows, log = random.Random(seed), list[Row](), [DEFINITION]
    choices: list[Row] = [A, B, C, ("a", 2), (None, None)]
    for pos in range(100, 160):
        op = chance.choice("ccud" if rows else "c")
        old = rows.pop(chance.randrange(len(rows))) if op in "ud" else None
        new = chance.choice(choices) if op in "cu" else None
        if new is not None:
            rows.append(new)
        log.append(event(op, pos, old, new))
    again = chance.randrange(20, len(log))
    delivered = [*log[:again], *log[again - 10 :]]
    lake.write(delivered)
    mirror = lake.mirror()
    for end in sorted(chance.randint(0, len(delivered) - 1) for _ in range(3)):
        mirror.advance({VISITS: {0: end}})
    mirror.advance({VISITS: {0: len(delivered) - 1}})
    assert mirror.summary().paused == {}
    assert mirrored(lake) == Counter(rows)
    assert len({row["_change"]["pos"] for row in lake.rows("visits", "shop_changes")}) == len(log) - 1


def test_keyless_table_gets_added_columns_and_is_truncated(lake: LakeHarness) -> None:
    lake.write([DEFINITION, event("c", 10, after=A), event("c", 20, after=A), event("c", 25, after=B)])
    lake.catch_up()
    wider = [*COLUMNS, ColumnSpec("kind", "varchar", False, "new")]
    altered = schema_change_event(Place(1, 30), "visits", wider, [], kind="ALTER")
    row = {"page": "a", "seconds": 1, "price": 1.5, "kind": "new"}
    gone = Record(VISITS, 0, None, change_event("d", Place(1, 40), "visits", before=row))
    lake.write([Record("shop", 0, None, altered), gone])
    assert lake.catch_up().summary().paused == {}
    assert sorted((r["page"], r["kind"]) for r in lake.rows("visits")) == [("a", "new"), ("b", "new")]
    lake.write([event("t", 50), event("c", 60, after=C)])
    lake.catch_up()
    assert mirrored(lake) == {C: 1}


def test_keyless_table_pauses_when_a_deleted_row_is_missing(lake: LakeHarness) -> None:
    lake.write([DEFINITION, event("c", 10, after=A), event("d", 20, before=B)])
    (reason,) = lake.catch_up().summary().paused.values()
    assert "no key" in reason
    assert lake.rows("visits") == []


def lab_has(lake: LakeHarness) -> bool:
    with lake.catalog() as catalog:
        return bool(catalog.table_exists(("shop", "visits")))


def test_keyless_table_has_only_a_changelog_when_configured(lake: LakeHarness) -> None:
    config = lake.config(table=[{"name": "shop.visits", "keyless": "changelog"}])
    lake.write([DEFINITION, event("c", 10, after=A), event("c", 20, after=A)])
    lake.catch_up(config)
    lake.write([event("d", 30, before=B), event("m", 31)])
    mirror = lake.mirror(config)
    ranges = mirror._unread(mirror.context.log.offsets()[1])[0][0].ranges
    assert [(r.start, r.end) for r in ranges] == [(2, 4)], "what the changelog has is not read again"
    mirror.advance(mirror.context.log.offsets()[1])
    assert mirror.summary().paused == {}
    assert not lab_has(lake)
    assert [r["_change"]["op"] for r in lake.rows("visits", "shop_changes")].count("c") == 2
    assert len(lake.rows("visits", "shop_changes")) == 3


def test_keyless_table_pauses_when_its_topic_has_several_partitions(lake: LakeHarness) -> None:
    lake.write([DEFINITION, event("c", 10, after=A), event("d", 20, before=A, partition=1)])
    (reason,) = lake.catch_up().summary().paused.values()
    assert "several partitions" in reason
