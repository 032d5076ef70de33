"""Bad events and tables that cannot continue: quarantine, pauses, and recovery from them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replicator.batch import MirrorContext, TableTask, apply_task
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import MARKER_KEY
from replicator.recovery.retries import Retries
from replicator.runner.archive_run import apply_archive
from replicator.runner.build import open_scheduler
from replicator.runner.scheduler import Scheduler
from replicator.runner.table_states import TableStates
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.telemetry import Stopwatch
from tests.oracle.events import (
    Place,
    change_event,
    schema_change_event,
)
from tests.oracle.model import Record
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.logs import captured_logs
from tests.support.orders_table import COLUMNS, DEFINITION, ORDERS, created, priced


def without_delays(context: MirrorContext) -> TableStates:
    """Return the states of the tables, which are retried at once."""
    return TableStates(context, Retries((0.0, 0.0)))


GARBAGE = [Record(ORDERS, 0, b"k", b"garbage{"), Record(ORDERS, 0, None, b'{"schema":{},"payload":{}}')]


@pytest.mark.fault(
    "The mirror is killed while it quarantines events",
    area="Events",
    on="Iceberg; events by hand",
    outcome="the quarantine has each event once",
)
def test_quarantine_contains_each_bad_event_once(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1), *GARBAGE, created(2)])
    for crash in (2, 3, 5):
        with pytest.raises(PowerCut), power_cut(crash):
            lake.catch_up()
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lake.rows("orders")) == [1, 2]
    found = sorted(lake.rows("quarantine", "shop_ops"), key=lambda r: r["offset"])
    assert [(r["table"], r["topic"], r["partition"], r["offset"], r["key"], r["value"]) for r in found] == [
        ("shop.orders", ORDERS, 0, 1, b"k", b"garbage{"),
        ("shop.orders", ORDERS, 0, 2, None, GARBAGE[1].value),
    ]
    assert all(r["reason"] for r in found)


def test_bad_schema_changes_are_quarantined_once_and_pause_no_table(lake: LakeHarness) -> None:
    bad = [
        Record("shop", 0, b"k", b"garbage{"),
        Record("shop", 0, None, b"\xff"),
        Record("shop", 0, None, b'{"a":1}'),
    ]
    lake.write([bad[0], DEFINITION, Record("shop", 0, None, None), *bad[1:], created(1)])
    for crash in (1, 2):
        with pytest.raises(PowerCut), power_cut(crash):
            lake.catch_up()
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert lake.rows("orders") == [{"id": 1, "name": "new"}]
    for _ in range(2):
        found = sorted(lake.rows("quarantine", "shop_ops"), key=lambda r: r["offset"])
        assert [(r["table"], r["topic"], r["offset"], r["key"], r["value"]) for r in found] == [
            (None, "shop", offset, record.key, record.value)
            for offset, record in zip((0, 3, 4), bad, strict=True)
        ]
        assert all("not a schema-change event" in r["reason"] and r["timestamp"] for r in found)
        lake.write([created(2)])
        lake.catch_up()
    lake.write([bad[0]])
    with captured_logs() as logged:
        assert lake.catch_up().summary().quarantined == 1
    (fields,) = [entry for entry in logged if entry["log_level"] == "warning"]
    assert "schema change" in fields["event"]
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("shop", 0, 5)
    assert len(lake.rows("quarantine", "shop_ops")) == 4


def test_other_tables_continue_when_tables_without_key_or_definition_pause(lake: LakeHarness) -> None:
    nokey = schema_change_event(Place(1, 4), "nokey", COLUMNS, [], kind="CREATE")
    lake.write([DEFINITION, Record("shop", 0, None, nokey), created(1)])
    row = {"id": 1, "name": "x"}
    for name in ("nokey", "unknown"):
        value = change_event("c", Place(1, 9), name, after=row)
        lake.write([Record(f"shop.shop.{name}", 0, None, value)])
    pausing = lake.config(apply={"keyless": "pause"})
    summary = lake.catch_up(pausing).summary()
    assert set(summary.paused) == {"shop.nokey", "shop.unknown"}
    assert "no primary key" in summary.paused["shop.nokey"]
    assert lake.rows("orders") == [row | {"name": "new"}]
    with_key = lake.config(apply={"keyless": "pause"}, table=[{"name": "shop.nokey", "key": ["id"]}])
    assert set(lake.catch_up(with_key).summary().paused) == {"shop.unknown"}
    assert lake.rows("nokey") == [row]


@pytest.mark.fault(
    "The batch of one table fails in Spark or Java",
    area="Events",
    on="Iceberg; events by hand",
    outcome="that table pauses, and the others continue",
)
@pytest.mark.parametrize("kind", ["spark", "java"])
def test_other_tables_continue_when_a_table_pauses_because_its_batch_failed(
    lake: LakeHarness, kind: str
) -> None:
    def failing(context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats:
        if task.table.name != "orders":
            return apply_task(context, task, watch)
        if kind == "spark":
            context.spark.sql("SELECT raise_error('this is odd')").collect()
        jvm: Any = context.spark._jvm
        jvm.java.util.ArrayDeque().pop()
        raise AssertionError

    lake.schedule = lambda context: Scheduler(context, tables=without_delays(context), apply=failing)
    others = schema_change_event(Place(1, 4), "others", COLUMNS, ["id"], kind="CREATE")
    row = {"id": 5, "name": "x"}
    lake.write([DEFINITION, Record("shop", 0, None, others), created(1)])
    lake.write([Record("shop.shop.others", 0, None, change_event("c", Place(1, 9), "others", after=row))])
    mirror = lake.mirror()
    apply_archive(mirror)
    (reason,) = mirror.summary().paused.values()
    assert ("this is odd" if kind == "spark" else "java.util.NoSuchElementException") in reason
    assert lake.rows("others") == [row]
    lake.schedule = open_scheduler
    assert lake.catch_up().summary().paused == {}
    assert [r["id"] for r in lake.rows("orders")] == [1]


def test_progress_is_committed_when_a_batch_has_only_bad_events(lake: LakeHarness) -> None:
    lake.write([priced(1, 2.5, with_schema=True)])
    lake.catch_up()
    lake.write([*GARBAGE, Record(ORDERS, 0, b"k", None)])
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    assert len(lake.rows("quarantine", "shop_ops")) == 2
    with lake.catalog() as catalog:
        for namespace in ("shop", "shop_changes"):
            properties = catalog.load_table((namespace, "orders")).properties
            assert json.loads(properties[MARKER_KEY])["topics"][ORDERS]["0"]["next"] == 4
    pausing = lake.config(apply={"on_bad_event": "pause"})
    lake.write(GARBAGE)
    (reason,) = lake.catch_up(pausing).summary().paused.values()
    assert "could not be decoded" in reason


@pytest.mark.fault(
    "The metadata file of one lake table is missing",
    area="Lake",
    on="Iceberg; events by hand",
    outcome="that table pauses, and the others continue",
)
@pytest.mark.parametrize("restarted", [False, True])
def test_other_tables_continue_when_the_lake_metadata_of_a_table_cannot_be_read(
    lake: LakeHarness, restarted: bool
) -> None:
    lake.schedule = lambda context: Scheduler(context, tables=without_delays(context))
    others = schema_change_event(Place(1, 4), "others", COLUMNS, ["id"], kind="CREATE")
    lake.write([DEFINITION, Record("shop", 0, None, others), created(1)])
    other = [change_event("c", Place(1, 9 + n), "others", after={"id": n, "name": "x"}) for n in (1, 2)]
    lake.write([Record("shop.shop.others", 0, None, other[0])])
    mirror = lake.mirror()
    apply_archive(mirror)
    with lake.catalog() as catalog:
        file = Path(catalog.load_table(("shop", "orders")).metadata_location.removeprefix("file:"))
    text = file.read_text()
    # The catalog would try to read a damaged file for a minute and a half.
    file.unlink()
    lake.write([created(2), Record("shop.shop.others", 0, None, other[1])])
    if restarted:
        mirror = lake.mirror()
    else:
        mirror.context = replace(mirror.context, log=ArchiveChangeLog(lake.folder / "archive"))
    apply_archive(mirror)
    (reason,) = mirror.summary().paused.values()
    assert "orders" in reason
    assert len(lake.rows("others")) == 2
    file.write_text(text)
    assert lake.catch_up().summary().paused == {}
    assert sorted(r["id"] for r in lake.rows("orders")) == [1, 2]
