"""Bad events and tables that cannot go on: quarantine, pauses, and how things go on."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from replicator.batch import Engine, Work, process
from replicator.follow import go_through
from replicator.model.census import Census
from replicator.model.commit import MARKER_KEY
from replicator.observe import Stopwatch
from replicator.source.archive import ArchiveChangeLog
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    schema_change_event,
)
from tests.oracle.model import Record
from tests.spark.batches import COLUMNS, DEFINITION, ORDERS, created, event, priced
from tests.spark.conftest import Lab
from tests.support.failpoints import PowerCut, power_cut

GARBAGE = [Record(ORDERS, 0, b"k", b"garbage{"), Record(ORDERS, 0, None, b'{"schema":{},"payload":{}}')]


def test_quarantine_holds_each_bad_event_once(lab: Lab) -> None:
    lab.write([DEFINITION, created(1), *GARBAGE, created(2)])
    for crash in (2, 3, 5):
        with pytest.raises(PowerCut), power_cut(crash):
            lab.catch_up()
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2]
    found = sorted(lab.rows("quarantine", "shop_ops"), key=lambda r: r["offset"])
    assert [(r["table"], r["topic"], r["partition"], r["offset"], r["key"], r["value"]) for r in found] == [
        ("shop.orders", ORDERS, 0, 1, b"k", b"garbage{"),
        ("shop.orders", ORDERS, 0, 2, None, GARBAGE[1].value),
    ]
    assert all(r["reason"] for r in found)


def test_bad_schema_changes_go_to_quarantine_once_and_stop_nothing(lab: Lab) -> None:
    bad = [
        Record("shop", 0, b"k", b"garbage{"),
        Record("shop", 0, None, b"\xff"),
        Record("shop", 0, None, b'{"a":1}'),
    ]
    lab.write([bad[0], DEFINITION, Record("shop", 0, None, None), *bad[1:], created(1)])
    for crash in (1, 2):
        with pytest.raises(PowerCut), power_cut(crash):
            lab.catch_up()
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert lab.rows("orders") == [{"id": 1, "name": "new"}]
    for _ in range(2):
        found = sorted(lab.rows("quarantine", "shop_ops"), key=lambda r: r["offset"])
        assert [(r["table"], r["topic"], r["offset"], r["key"], r["value"]) for r in found] == [
            (None, "shop", offset, record.key, record.value)
            for offset, record in zip((0, 3, 4), bad, strict=True)
        ]
        assert all("not a schema-change event" in r["reason"] and r["timestamp"] for r in found)
        lab.write([created(2)])
        lab.catch_up()
    lab.write([bad[0]])
    with patch("replicator.mirror.mirror._LOG") as log:
        assert lab.catch_up().summary().quarantined == 1
    ((event,), fields) = log.warning.call_args
    assert "schema change" in event
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("shop", 0, 5)
    assert len(lab.rows("quarantine", "shop_ops")) == 4


def test_a_table_may_pause_for_bad_events_and_go_on_later(lab: Lab) -> None:
    others = (ColumnSpec("id", "bigint", False),)
    lab.write(
        [
            DEFINITION,
            Record(
                "shop", 0, None, schema_change_event(Place(1, 4), "others", others, ["id"], kind="CREATE")
            ),
        ]
    )
    lab.write([created(1), *GARBAGE, created(2)])
    lab.write(
        [Record("shop.shop.others", 0, None, change_event("c", Place(1, 9), "others", after={"id": 5}))]
    )
    pausing = lab.config(table=[{"name": "shop.orders", "on_bad_event": "pause"}])
    for _ in range(2):
        mirror = lab.catch_up(pausing)
        assert list(mirror.summary().paused) == ["shop.orders"]
    assert lab.rows("others") == [{"id": 5}]
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2]
    assert len(lab.rows("quarantine", "shop_ops")) == 2


def test_tables_that_cannot_be_mirrored_pause_alone(lab: Lab) -> None:
    nokey = schema_change_event(Place(1, 4), "nokey", COLUMNS, [], kind="CREATE")
    lab.write([DEFINITION, Record("shop", 0, None, nokey), created(1)])
    row = {"id": 1, "name": "x"}
    for name in ("nokey", "unknown"):
        value = change_event("c", Place(1, 9), name, after=row)
        lab.write([Record(f"shop.shop.{name}", 0, None, value)])
    pausing = lab.config(apply={"keyless": "pause"})
    summary = lab.catch_up(pausing).summary()
    assert set(summary.paused) == {"shop.nokey", "shop.unknown"}
    assert "no primary key" in summary.paused["shop.nokey"]
    assert lab.rows("orders") == [row | {"name": "new"}]
    with_key = lab.config(apply={"keyless": "pause"}, table=[{"name": "shop.nokey", "key": ["id"]}])
    assert set(lab.catch_up(with_key).summary().paused) == {"shop.unknown"}
    assert lab.rows("nokey") == [row]


@pytest.mark.parametrize("kind", ["spark", "java"])
def test_a_table_whose_work_fails_pauses_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def failing(engine: Engine, work: Work, watch: Stopwatch) -> Census:
        if work.table.name != "orders":
            return process(engine, work, watch)
        if kind == "spark":
            engine.spark.sql("SELECT raise_error('this is odd')").collect()
        engine.spark._jvm.java.util.ArrayDeque().pop()
        raise AssertionError

    monkeypatch.setattr("replicator.mirror.mirror.process", failing)
    monkeypatch.setattr("replicator.mirror.retries.RETRY_S", (0.0, 0.0))
    others = schema_change_event(Place(1, 4), "others", COLUMNS, ["id"], kind="CREATE")
    row = {"id": 5, "name": "x"}
    lab.write([DEFINITION, Record("shop", 0, None, others), created(1)])
    lab.write([Record("shop.shop.others", 0, None, change_event("c", Place(1, 9), "others", after=row))])
    mirror = lab.mirror()
    go_through(mirror, None)
    (reason,) = mirror.summary().paused.values()
    assert ("this is odd" if kind == "spark" else "java.util.NoSuchElementException") in reason
    assert lab.rows("others") == [row]
    monkeypatch.undo()
    assert lab.catch_up().summary().paused == {}
    assert [r["id"] for r in lab.rows("orders")] == [1]


def test_a_type_that_cannot_be_converted_pauses_the_table(lab: Lab) -> None:
    lab.write([DEFINITION, created(1)])
    lab.catch_up()
    changed = [ColumnSpec("id", "bigint", False), ColumnSpec("name", "int")]
    altered = schema_change_event(Place(1, 500), "orders", changed, ["id"], kind="ALTER")
    lab.write([Record("shop", 0, None, altered), event("c", 600, after={"id": 2, "name": 5})])
    (reason,) = lab.catch_up().summary().paused.values()
    assert (
        "column name became VARCHAR(200) to INT, and 1 of its values in the lake cannot be converted"
        in reason
    )
    assert [r["id"] for r in lab.rows("orders")] == [1]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_that_begins_with_garbage_goes_on_with_the_first_good_event(
    lab: Lab, restarted: bool
) -> None:
    """Nothing defines the table but the events themselves."""
    lab.write([*GARBAGE, priced(1, 2.5, with_schema=True), Record(ORDERS, 0, b"k", None)])
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 2}})
    assert mirror.summary().paused == {}
    assert len(lab.rows("quarantine", "shop_ops")) == 2
    if restarted:
        mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 4}})
    assert mirror.summary().paused == {}
    assert [r["id"] for r in lab.rows("orders")] == [1]
    assert len(lab.rows("orders", "shop_changes")) == 1
    found = lab.rows("quarantine", "shop_ops")
    assert sorted(r["offset"] for r in found) == [0, 1]
    assert all(r["reason"] for r in found)


def test_garbage_alone_after_a_restart_is_passed_over(lab: Lab) -> None:
    lab.write([priced(1, 2.5, with_schema=True)])
    lab.catch_up()
    lab.write([*GARBAGE, Record(ORDERS, 0, b"k", None)])
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert len(lab.rows("quarantine", "shop_ops")) == 2
    with lab.catalog() as catalog:
        for namespace in ("shop", "shop_changes"):
            properties = catalog.load_table((namespace, "orders")).properties
            assert json.loads(properties[MARKER_KEY])["topics"][ORDERS]["0"]["next"] == 4
    pausing = lab.config(apply={"on_bad_event": "pause"})
    lab.write(GARBAGE)
    (reason,) = lab.catch_up(pausing).summary().paused.values()
    assert "could not be decoded" in reason


@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_that_the_lake_cannot_read_pauses_alone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr("replicator.mirror.retries.RETRY_S", (0.0, 0.0))
    others = schema_change_event(Place(1, 4), "others", COLUMNS, ["id"], kind="CREATE")
    lab.write([DEFINITION, Record("shop", 0, None, others), created(1)])
    other = [change_event("c", Place(1, 9 + n), "others", after={"id": n, "name": "x"}) for n in (1, 2)]
    lab.write([Record("shop.shop.others", 0, None, other[0])])
    mirror = lab.mirror()
    go_through(mirror, None)
    with lab.catalog() as catalog:
        file = Path(catalog.load_table(("shop", "orders")).metadata_location.removeprefix("file:"))
    text = file.read_text()
    # One that is there and broken would be read for a minute and a half before the catalog gives it up.
    file.unlink()
    lab.write([created(2), Record("shop.shop.others", 0, None, other[1])])
    if restarted:
        mirror = lab.mirror()
    else:
        mirror.engine = replace(mirror.engine, log=ArchiveChangeLog(lab.folder / "archive"))
    go_through(mirror, None)
    (reason,) = mirror.summary().paused.values()
    assert "orders" in reason
    assert len(lab.rows("others")) == 2
    file.write_text(text)
    assert lab.catch_up().summary().paused == {}
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2]
