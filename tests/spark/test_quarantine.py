"""Quarantined events: replayed or dropped, whatever was applied in the meantime."""

import json
from typing import Any

import pytest

from replicator.lake import quarantine
from replicator.lake.reading.quarantine import read_quarantine
from replicator.model.events import BadRecord, RawRecord
from replicator.model.quarantine import LogCoordinate, QuarantineFilter, ReplayResult, Resolution
from replicator.model.table import TableId
from replicator.operations.quarantine import replay_events
from replicator.operations.status.read import read_status
from replicator.runner.build import open_context
from replicator.sources.archive.change_log import ArchiveChangeLog
from tests.oracle.compare import folded
from tests.oracle.events import ColumnSpec, Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS
from tests.support.recreated_topic import recreate_topic, with_topic_id

NARROW = (ColumnSpec("id", "bigint", False), ColumnSpec("number", "int"))
WIDE = (ColumnSpec("id", "bigint", False), ColumnSpec("number", "bigint"))
LARGE = 5_000_000_000
"""No INT: an event that has it is bad until a definition says that the column is a BIGINT."""


def definition(columns: tuple[ColumnSpec, ...], pos: int, kind: str) -> Record:
    return Record("shop", 0, None, schema_change_event(Place(1, pos), "orders", columns, ["id"], kind=kind))


CREATED = definition(NARROW, 4, "CREATE")
WIDENED = definition(WIDE, 5, "ALTER")
"""The definition right after the creation of the table. Events are bad until it arrives."""


def row(number: int, value: int) -> dict[str, int]:
    return {"id": number, "number": value}


def event(op: str, pos: int, **images: Any) -> Record:
    image = images.get("after") or images.get("before")
    key = None if image is None else key_of(image, ["id"])
    return Record(
        ORDERS, 0, key, change_event(op, Place(1, pos, ts_ms=1_700_000_000_000 + pos), "orders", **images)
    )


def replayed(lake: LakeHarness, config: Any = None, wanted: QuarantineFilter | None = None) -> ReplayResult:
    config = config or lake.config()
    context = open_context(config, ArchiveChangeLog(lake.folder / "archive"), lake.session(config))
    return replay_events(context, read_quarantine(config, wanted or QuarantineFilter()))


def mirrored(lake: LakeHarness) -> dict[int, int]:
    rows = lake.rows("orders")
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r["number"] for r in rows}


def recorded(lake: LakeHarness) -> list[tuple[int, str, Any]]:
    """Return offset, kind and number of every change."""
    rows = lake.rows("orders", "shop_changes")
    return sorted((r["_change"]["offset"], r["_change"]["kind"], r["number"]) for r in rows)


def read_row(id_: int, number: int, snapshot: str = "true") -> Record:
    value = json.loads(change_event("r", Place(1, 200, server_id=0), "orders", after=row(id_, number)))
    value["source"]["snapshot"] = snapshot
    return Record(ORDERS, 0, key_of(row(id_, 0), ["id"]), json.dumps(value).encode())


EVENTS = [
    event("c", 101, after=row(1, 10)),
    event("c", 102, after=row(2, 20)),
    event("c", 103, after=row(3, 30)),
    event("u", 104, before=row(1, 10), after=row(1, LARGE)),  # bad, and followed by a good one
    event("u", 105, before=row(2, 20), after=row(2, LARGE)),  # bad, and the last of its key
    event("d", 106, before=row(3, LARGE)),  # bad; later the key is inserted again
    event("c", 107, after=row(4, LARGE)),  # bad; a new row
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


@pytest.mark.parametrize("strategy", ["split", "merge", "equality"])
def test_replay_never_overwrites_newer_rows(lake: LakeHarness, strategy: str) -> None:
    config = lake.config(apply={"strategy": strategy})
    lake.write([CREATED, *EVENTS])
    lake.catch_up(config)
    assert mirrored(lake) == {1: 12, 2: 20, 3: 31}
    assert {e.place.offset for e in read_quarantine(config, QuarantineFilter())} == {3, 4, 5, 6, 7}
    assert len(replayed(lake, config).bad) == 5, "nothing was fixed yet"
    lake.write([WIDENED])
    done = replayed(lake, config)
    assert (len(done.taken), done.complete) == (5, True)
    assert mirrored(lake) == AFTERWARDS
    assert recorded(lake) == CHANGES
    changes = lake.rows("orders", "shop_changes")
    assert {id_: found["number"] for id_, found in folded(changes).items()} == AFTERWARDS
    assert read_quarantine(config, QuarantineFilter()) == []
    resolved = read_quarantine(config, QuarantineFilter(resolved=True))
    assert {e.resolution for e in resolved} == {Resolution.REPLAYED}
    assert {(e.key, e.value) for e in resolved} == {(None, None)}
    (table,) = read_status(config).tables
    # With equality deletes the number of rows is not known.
    rows = None if strategy == "equality" else 4
    assert (table.quarantined, table.events_behind, table.rows) == (0, 0, rows)
    lake.write([event("u", 111, before=row(4, LARGE + 1), after=row(4, 1))])
    lake.catch_up(config)
    assert mirrored(lake) == AFTERWARDS | {4: 1}


@pytest.mark.parametrize("crash", range(1, 12))
def test_replay_is_completed_when_repeated_after_a_crash(lake: LakeHarness, crash: int) -> None:
    lake.write([CREATED, *EVENTS])
    lake.catch_up()
    lake.write([WIDENED])
    crashed = False
    try:
        with power_cut(crash):
            replayed(lake)
    except PowerCut:
        crashed = True
    assert crashed is (crash < 11), "as many places as there are to crash at"
    if crashed:
        replayed(lake)
    assert mirrored(lake) == AFTERWARDS
    assert recorded(lake) == CHANGES
    assert read_quarantine(lake.config(), QuarantineFilter()) == []


@pytest.mark.long
def test_replay_leaves_the_same_rows_when_the_newest_event_is_replayed_first(lake: LakeHarness) -> None:
    lake.write([CREATED, *EVENTS])
    lake.catch_up()
    lake.write([WIDENED])
    for offsets in ((7,), (3, 6), (4, 5)):
        places = tuple(LogCoordinate(ORDERS, 0, offset) for offset in offsets)
        done = replayed(lake, wanted=QuarantineFilter(places=places))
        assert {p.offset for p in done.taken} == {*offsets}
    assert mirrored(lake) == AFTERWARDS
    assert recorded(lake) == CHANGES


@pytest.mark.long
def test_replay_does_not_restore_truncated_rows(lake: LakeHarness) -> None:
    truncate = event("t", 120)
    lake.write([CREATED, *EVENTS, truncate, event("c", 130, after=row(7, 70))])
    lake.catch_up()
    lake.write([WIDENED])
    assert len(replayed(lake).taken) == 5
    assert mirrored(lake) == {7: 70}
    assert len(recorded(lake)) == len(CHANGES) + 2


def test_replay_of_a_truncate_is_refused(lake: LakeHarness) -> None:
    """A TRUNCATE event is bad if its envelope is damaged; here a later definition makes it readable."""
    damaged = json.loads(event("t", 105).value or b"")
    damaged["after"] = row(0, LARGE)
    lake.write(
        [
            CREATED,
            event("c", 101, after=row(1, 1)),
            event("c", 102, after=row(2, 2)),
            Record(ORDERS, 0, None, json.dumps(damaged).encode()),
            event("u", 106, before=row(2, 2), after=row(2, 3)),
            event("c", 107, after=row(3, 3)),
        ]
    )
    lake.catch_up()
    assert mirrored(lake) == {1: 1, 2: 3, 3: 3}
    lake.write([WIDENED])
    ((_, reason),) = replayed(lake).refused
    assert "truncated" in reason
    assert mirrored(lake) == {1: 1, 2: 3, 3: 3}
    assert "TRUNCATE" not in [kind for _, kind, _ in recorded(lake)]


def test_paused_table_continues_when_its_bad_events_can_be_decoded(lake: LakeHarness) -> None:
    config = lake.config(apply={"on_bad_event": "pause", "max_events": 2})
    lake.write([CREATED, *EVENTS])
    (reason,) = lake.catch_up(config).summary().paused.values()
    assert "could not be decoded" in reason
    # No event after the bad one was applied, so there is nothing to replay yet.
    assert [p.offset for p in replayed(lake, config).ahead] == [3]
    lake.write([WIDENED])
    assert lake.catch_up(config).summary().paused == {}
    assert mirrored(lake) == AFTERWARDS
    assert recorded(lake) == CHANGES
    assert read_quarantine(config, QuarantineFilter()) == []


def test_paused_table_skips_dropped_events(lake: LakeHarness) -> None:
    config = lake.config(apply={"on_bad_event": "pause"})
    lake.write([CREATED, *EVENTS])
    assert lake.catch_up(config).summary().paused
    context = open_context(config, ArchiveChangeLog(lake.folder / "archive"), lake.session(config))
    waiting = read_quarantine(config, QuarantineFilter())
    assert len(waiting) == 5
    first, *others = (e.place for e in waiting)
    assert context.quarantine.resolve(others, Resolution.DROPPED) == 4
    assert context.quarantine.resolve(others, Resolution.DROPPED) == 0
    assert lake.catch_up(config).summary().paused, "one is left"
    assert context.quarantine.resolve([first], Resolution.DROPPED) == 1
    assert lake.catch_up(config).summary().paused == {}
    assert mirrored(lake) == {1: 12, 2: 20, 3: 31}
    assert lake.catch_up(config).advance({ORDERS: {0: 10}}) is None
    lake.write([event("u", 111, before=row(2, 20), after=row(2, LARGE))])
    assert lake.catch_up(config).summary().paused, "another one is not passed over"


def test_replay_does_not_restore_rows_that_a_later_snapshot_lacks(lake: LakeHarness) -> None:
    """The connector lost its offsets, and the deletes of rows 1 and 4 with them; the snapshot begins with a bad row."""
    reads = [read_row(6, LARGE), read_row(2, 200), read_row(5, 500, "last")]
    lake.write([CREATED, *EVENTS, *reads, event("u", 301, before=row(5, 500), after=row(5, LARGE))])
    lake.catch_up()
    assert mirrored(lake) == {2: 200, 5: 500}
    lake.write([WIDENED])
    assert len(replayed(lake).taken) == 7
    assert mirrored(lake) == {2: 200, 5: LARGE, 6: LARGE}
    assert {r["id"] for r in lake.rows("orders", "shop_changes")} == {1, 2, 3, 4, 5, 6}


def test_replay_is_refused_if_the_topic_was_recreated(lake: LakeHarness) -> None:
    """The bad event has the offset of another one in the new topic."""
    topic_id = with_topic_id(lake)
    lake.write([CREATED, *EVENTS[:5]])
    lake.catch_up()
    recreate_topic(lake, topic_id)
    reads = [read_row(n, n, "last" if n == 6 else "true") for n in (2, 3, 5, 6)]
    lake.write([CREATED, *reads, *(event("c", 300 + n, after=row(n, n)) for n in (7, 8, 9)), WIDENED])
    lake.catch_up()
    found = replayed(lake)
    assert len(found.refused) == 2
    assert "was recreated" in found.refused[0][1]
    assert mirrored(lake) == {n: n for n in (2, 3, 5, 6, 7, 8, 9)}


def test_replay_reads_the_log_when_the_quarantine_has_no_payload(lake: LakeHarness) -> None:
    config = lake.config(columns={"mask": {"secret": {"null": True}}})
    lake.write([CREATED, *EVENTS])
    lake.catch_up(config)
    assert {e.value for e in read_quarantine(config, QuarantineFilter())} == {None}
    lake.write([WIDENED])
    assert len(replayed(lake, config).taken) == 5
    assert mirrored(lake) == AFTERWARDS
    assert recorded(lake) == CHANGES


def test_replay_is_refused_when_there_is_no_changelog(lake: LakeHarness) -> None:
    config = lake.config(apply={"changelog": False})
    lake.write([CREATED, *EVENTS])
    lake.catch_up(config)
    lake.write([WIDENED])
    done = replayed(lake, config)
    assert len(done.refused) == 4, "without a changelog a delete's row need not be read"
    assert "no changelog" in done.refused[0][1]
    assert mirrored(lake) == {1: 12, 2: 20, 3: 31}
    assert len(read_quarantine(config, QuarantineFilter())) == 4


def test_unreadable_schema_changes_are_quarantined_and_can_be_dropped(lake: LakeHarness) -> None:
    lake.write([CREATED, Record("shop", 0, None, b"garbage"), EVENTS[0]])
    lake.catch_up()
    (waiting,) = read_quarantine(lake.config(), QuarantineFilter())
    assert (waiting.table, waiting.place) == (None, LogCoordinate("shop", 0, 1))
    assert len(replayed(lake).bad) == 1
    config = lake.config()
    context = open_context(config, ArchiveChangeLog(lake.folder / "archive"), lake.session(config))
    assert context.quarantine.resolve([waiting.place], Resolution.DROPPED) == 1
    assert lake.catch_up().summary().quarantined == 0
    assert read_quarantine(config, QuarantineFilter()) == []


def test_quarantine_of_an_older_version_is_read_and_replayed(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table has no columns for the resolution of an event."""
    with monkeypatch.context() as older:
        older.setattr("replicator.lake.quarantine.RESOLVED_FIELDS", ())
        older.setattr("replicator.lake.quarantine._FIELDS", quarantine._FIELDS[:-2])
        schema = json.loads(quarantine._SCHEMA)
        schema["fields"] = schema["fields"][:-2]
        older.setattr("replicator.lake.quarantine._SCHEMA", json.dumps(schema))
        lake.write([CREATED, *EVENTS])
        lake.catch_up()
    assert "state" not in lake.rows("quarantine", "shop_ops")[0]
    assert len(read_quarantine(lake.config(), QuarantineFilter())) == 5
    assert read_status(lake.config()).quarantined == 5
    lake.write([WIDENED])
    assert len(replayed(lake).taken) == 5
    assert mirrored(lake) == AFTERWARDS
    assert read_status(lake.config()).quarantined == 0


def test_quarantine_keeps_events_of_a_recreated_topic_at_the_same_offsets(lake: LakeHarness) -> None:
    config = lake.config()
    lake.write([CREATED])
    context = open_context(config, ArchiveChangeLog(lake.folder / "archive"), lake.session(config))
    table, names = TableId("shop", "orders"), "partition int, offset long, timestamp long, raw_key binary"
    columns = f"{names}, raw_value binary, bad string"

    def add(timestamp: int, value: bytes) -> None:
        bad = context.spark.createDataFrame([(0, 5, timestamp, None, value, "odd")], columns)
        context.quarantine.add(table, ORDERS, bad, 1)

    for timestamp, value in ((1000, b"old"), (2000, b"new"), (2000, b"new")):
        add(timestamp, value)
    assert sorted(r["value"] for r in lake.rows("quarantine", "shop_ops")) == [b"new", b"old"]
    found = [BadRecord(RawRecord("shop", 0, 1, at, None, b"x"), "odd") for at in (1000, 2000)]
    assert [len(context.quarantine.add_records([bad], 1)) for bad in (*found, *found)] == [1, 1, 0, 0]
