"""Events in quarantine: applied after all, or dropped, whatever happened meanwhile."""

import json
from typing import Any

import pytest

from replicator import quarantine
from replicator.model.quarantined import EventPlace, Replayed, Resolution, Wanted
from replicator.model.record import BadRecord, RawRecord
from replicator.model.table import TableId
from replicator.process import open_engine
from replicator.quarantined import read_quarantine
from replicator.redo import replay_events
from replicator.source.archive import ArchiveChangeLog
from replicator.status import read_status
from tests.oracle.events import ColumnSpec, Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.spark.batches import ORDERS
from tests.spark.conftest import Lab
from tests.support.failpoints import PowerCut, power_cut

NARROW = (ColumnSpec("id", "bigint", False), ColumnSpec("number", "int"))
WIDE = (ColumnSpec("id", "bigint", False), ColumnSpec("number", "bigint"))
LARGE = 5_000_000_000
"""No int. An event that has it is bad until it is known that the column is a bigint."""


def definition(columns: tuple[ColumnSpec, ...], pos: int, kind: str) -> Record:
    return Record("shop", 0, None, schema_change_event(Place(1, pos), "orders", columns, ["id"], kind=kind))


CREATED = definition(NARROW, 4, "CREATE")
WIDENED = definition(WIDE, 5, "ALTER")
"""The same table from right after its creation on; where it comes late, events are bad until then."""


def row(number: int, value: int) -> dict[str, int]:
    return {"id": number, "number": value}


def event(op: str, pos: int, **images: Any) -> Record:
    image = images.get("after") or images.get("before")
    key = None if image is None else key_of(image, ["id"])
    return Record(
        ORDERS, 0, key, change_event(op, Place(1, pos, ts_ms=1_700_000_000_000 + pos), "orders", **images)
    )


def replayed(lab: Lab, config: Any = None, wanted: Wanted | None = None) -> Replayed:
    config = config or lab.config()
    engine = open_engine(config, ArchiveChangeLog(lab.folder / "archive"), lab.session(config))
    return replay_events(engine, read_quarantine(config, wanted or Wanted()))


def mirrored(lab: Lab) -> dict[int, int]:
    rows = lab.rows("orders")
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r["number"] for r in rows}


def recorded(lab: Lab) -> list[tuple[int, str, Any]]:
    """Offset, kind and number of every change."""
    rows = lab.rows("orders", "shop_changes")
    return sorted((r["_change"]["offset"], r["_change"]["kind"], r["number"]) for r in rows)


EVENTS = [
    event("c", 101, after=row(1, 10)),
    event("c", 102, after=row(2, 20)),
    event("c", 103, after=row(3, 30)),
    event("u", 104, before=row(1, 10), after=row(1, LARGE)),  # bad, and followed by a good one
    event("u", 105, before=row(2, 20), after=row(2, LARGE)),  # bad, and the last of its key
    event("d", 106, before=row(3, LARGE)),  # bad; then the key comes again
    event("c", 107, after=row(4, LARGE)),  # bad; a row that is new
    event("u", 108, before=row(4, LARGE), after=row(4, LARGE + 1)),  # bad, of the same key
    event("u", 109, before=row(1, 11), after=row(1, 12)),
    event("c", 110, after=row(3, 31)),
]
AFTERWARDS = {1: 12, 2: LARGE, 3: 31, 4: LARGE + 1}
CHANGES = [
    *((i, "INSERT", 10 * (i + 1)) for i in range(3)),
    (3, "UPDATE_AFTER", LARGE),
    (3, "UPDATE_BEFORE", 10),
    (4, "UPDATE_AFTER", LARGE),
    (4, "UPDATE_BEFORE", 20),
    (5, "DELETE", LARGE),
    (6, "INSERT", LARGE),
    (7, "UPDATE_AFTER", LARGE + 1),
    (7, "UPDATE_BEFORE", LARGE),
    (8, "UPDATE_AFTER", 12),
    (8, "UPDATE_BEFORE", 11),
    (9, "INSERT", 31),
]


@pytest.mark.parametrize("strategy", ["split", "merge"])
def test_a_replay_never_puts_an_old_row_over_a_newer_one(lab: Lab, strategy: str) -> None:
    config = lab.config(apply={"strategy": strategy})
    lab.write([CREATED, *EVENTS])
    lab.catch_up(config)
    assert mirrored(lab) == {1: 12, 2: 20, 3: 31}
    assert {e.place.offset for e in read_quarantine(config, Wanted())} == {3, 4, 5, 6, 7}
    assert len(replayed(lab, config).bad) == 5, "nothing was mended yet"
    lab.write([WIDENED])
    done = replayed(lab, config)
    assert (len(done.taken), done.complete) == (5, True)
    assert mirrored(lab) == AFTERWARDS
    assert recorded(lab) == CHANGES
    assert read_quarantine(config, Wanted()) == []
    resolved = read_quarantine(config, Wanted(resolved=True))
    assert {e.resolution for e in resolved} == {Resolution.REPLAYED}
    assert {(e.key, e.value) for e in resolved} == {(None, None)}
    (table,) = read_status(config).tables
    assert (table.quarantined, table.events_behind, table.rows) == (0, 0, 4)
    lab.write([event("u", 111, before=row(4, LARGE + 1), after=row(4, 1))])
    lab.catch_up(config)
    assert mirrored(lab) == AFTERWARDS | {4: 1}


@pytest.mark.parametrize("crash", range(1, 12))
def test_a_replay_that_is_killed_and_repeated(lab: Lab, crash: int) -> None:
    lab.write([CREATED, *EVENTS])
    lab.catch_up()
    lab.write([WIDENED])
    crashed = False
    try:
        with power_cut(crash):
            replayed(lab)
    except PowerCut:
        crashed = True
    assert crashed is (crash < 11), "as many places as there are to crash at"
    if crashed:
        replayed(lab)
    assert mirrored(lab) == AFTERWARDS
    assert recorded(lab) == CHANGES
    assert read_quarantine(lab.config(), Wanted()) == []


def test_newest_first(lab: Lab) -> None:
    lab.write([CREATED, *EVENTS])
    lab.catch_up()
    lab.write([WIDENED])
    for offset in (7, 3, 6, 5, 4):
        done = replayed(lab, wanted=Wanted(places=(EventPlace(ORDERS, 0, offset),)))
        assert [p.offset for p in done.taken] == [offset]
    assert mirrored(lab) == AFTERWARDS
    assert recorded(lab) == CHANGES


def test_a_truncate_is_not_undone(lab: Lab) -> None:
    truncate = event("t", 120)
    lab.write([CREATED, *EVENTS, truncate, event("c", 130, after=row(7, 70))])
    lab.catch_up()
    lab.write([WIDENED])
    assert len(replayed(lab).taken) == 5
    assert mirrored(lab) == {7: 70}
    assert len(recorded(lab)) == len(CHANGES) + 2


def test_a_truncate_that_was_set_aside_spares_what_came_after_it(lab: Lab) -> None:
    """A truncate is bad where its envelope is damaged; here a definition that comes late mends it."""
    damaged = json.loads(event("t", 105).value or b"")
    damaged["after"] = row(0, LARGE)
    lab.write(
        [
            CREATED,
            event("c", 101, after=row(1, 1)),
            event("c", 102, after=row(2, 2)),
            Record(ORDERS, 0, None, json.dumps(damaged).encode()),
            event("u", 106, before=row(2, 2), after=row(2, 3)),
            event("c", 107, after=row(3, 3)),
        ]
    )
    lab.catch_up()
    assert mirrored(lab) == {1: 1, 2: 3, 3: 3}
    lab.write([WIDENED])
    assert len(replayed(lab).taken) == 1
    assert mirrored(lab) == {2: 3, 3: 3}
    assert [kind for offset, kind, _ in recorded(lab) if offset == 2] == ["TRUNCATE"]


def test_a_table_that_paused_goes_on_once_the_cause_is_mended(lab: Lab) -> None:
    config = lab.config(apply={"on_bad_event": "pause", "max_events": 2})
    lab.write([CREATED, *EVENTS])
    (reason,) = lab.catch_up(config).summary().paused.values()
    assert "could not be decoded" in reason
    # Nothing behind the bad event was taken in, so there is nothing to replay yet.
    assert [p.offset for p in replayed(lab, config).ahead] == [3]
    lab.write([WIDENED])
    assert lab.catch_up(config).summary().paused == {}
    assert mirrored(lab) == AFTERWARDS
    assert recorded(lab) == CHANGES
    assert read_quarantine(config, Wanted()) == []


def test_a_table_that_paused_passes_over_what_was_dropped(lab: Lab) -> None:
    config = lab.config(apply={"on_bad_event": "pause"})
    lab.write([CREATED, *EVENTS])
    assert lab.catch_up(config).summary().paused
    engine = open_engine(config, ArchiveChangeLog(lab.folder / "archive"), lab.session(config))
    waiting = read_quarantine(config, Wanted())
    assert len(waiting) == 5
    first, *others = (e.place for e in waiting)
    assert engine.quarantine.resolve(others, Resolution.DROPPED) == 4
    assert engine.quarantine.resolve(others, Resolution.DROPPED) == 0
    assert lab.catch_up(config).summary().paused, "one is left"
    assert engine.quarantine.resolve([first], Resolution.DROPPED) == 1
    assert lab.catch_up(config).summary().paused == {}
    assert mirrored(lab) == {1: 12, 2: 20, 3: 31}
    assert lab.catch_up(config).advance({ORDERS: {0: 10}}) is None
    lab.write([event("u", 111, before=row(2, 20), after=row(2, LARGE))])
    assert lab.catch_up(config).summary().paused, "another one is not passed over"


def test_without_payload_the_log_is_asked(lab: Lab) -> None:
    config = lab.config(columns={"mask": {"secret": {"null": True}}})
    lab.write([CREATED, *EVENTS])
    lab.catch_up(config)
    assert {e.value for e in read_quarantine(config, Wanted())} == {None}
    lab.write([WIDENED])
    assert len(replayed(lab, config).taken) == 5
    assert mirrored(lab) == AFTERWARDS
    assert recorded(lab) == CHANGES


def test_without_a_changelog_a_replay_is_refused(lab: Lab) -> None:
    config = lab.config(apply={"changelog": False})
    lab.write([CREATED, *EVENTS])
    lab.catch_up(config)
    lab.write([WIDENED])
    done = replayed(lab, config)
    assert len(done.refused) == 4, "without a changelog a delete's row need not be read"
    assert "no changelog" in done.refused[0][1]
    assert mirrored(lab) == {1: 12, 2: 20, 3: 31}
    assert len(read_quarantine(config, Wanted())) == 4


def test_schema_changes_that_cannot_be_read(lab: Lab) -> None:
    lab.write([CREATED, Record("shop", 0, None, b"garbage"), EVENTS[0]])
    lab.catch_up()
    (waiting,) = read_quarantine(lab.config(), Wanted())
    assert (waiting.table, waiting.place) == (None, EventPlace("shop", 0, 1))
    assert len(replayed(lab).bad) == 1
    config = lab.config()
    engine = open_engine(config, ArchiveChangeLog(lab.folder / "archive"), lab.session(config))
    assert engine.quarantine.resolve([waiting.place], Resolution.DROPPED) == 1
    assert lab.catch_up().summary().quarantined == 0
    assert read_quarantine(config, Wanted()) == []


def test_a_quarantine_of_an_older_engine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table has no columns that say what became of an event."""
    with monkeypatch.context() as older:
        older.setattr("replicator.quarantine.RESOLVED_FIELDS", ())
        older.setattr("replicator.quarantine._FIELDS", quarantine._FIELDS[:-2])
        schema = json.loads(quarantine._SCHEMA)
        schema["fields"] = schema["fields"][:-2]
        older.setattr("replicator.quarantine._SCHEMA", json.dumps(schema))
        lab.write([CREATED, *EVENTS])
        lab.catch_up()
    assert "state" not in lab.rows("quarantine", "shop_ops")[0]
    assert len(read_quarantine(lab.config(), Wanted())) == 5
    assert read_status(lab.config()).quarantined == 5
    lab.write([WIDENED])
    assert len(replayed(lab).taken) == 5
    assert mirrored(lab) == AFTERWARDS
    assert read_status(lab.config()).quarantined == 0


def test_a_topic_made_anew_has_other_events_at_the_same_places(lab: Lab) -> None:
    config = lab.config()
    lab.write([CREATED])
    engine = open_engine(config, ArchiveChangeLog(lab.folder / "archive"), lab.session(config))
    table, names = TableId("shop", "orders"), "partition int, offset long, timestamp long, raw_key binary"
    columns = f"{names}, raw_value binary, bad string"

    def add(timestamp: int, value: bytes) -> None:
        bad = engine.spark.createDataFrame([(0, 5, timestamp, None, value, "odd")], columns)
        engine.quarantine.add(table, ORDERS, bad, 1)

    for timestamp, value in ((1000, b"old"), (2000, b"new"), (2000, b"new")):
        add(timestamp, value)
    assert sorted(r["value"] for r in lab.rows("quarantine", "shop_ops")) == [b"new", b"old"]
    found = [BadRecord(RawRecord("shop", 0, 1, at, None, b"x"), "odd") for at in (1000, 2000)]
    assert [len(engine.quarantine.add_records([bad], 1)) for bad in (*found, *found)] == [1, 1, 0, 0]
