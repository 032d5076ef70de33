"""Values that the connector skips: which tables are read again, and when."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicator.batch import MirrorContext
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.table import TableId
from replicator.recovery.request import Requests
from replicator.sources.binlog.deviations import BinlogPlace, DeviationScanner, RowChanges
from replicator.sources.connector.settings import FAIL_AT_EVENTS, SKIP_EVENTS
from replicator.watch import skipped_events
from replicator.watch.binlog_watch import BinlogWatch
from replicator.watch.skipped_events import SKIPPED_KEY, SkippedEvents
from tests.support.listed_events import FILE, ROLLED_BACK, ROWS, SERVER, listed

A, B, C = (TableId("shop", name) for name in "abc")
REASON = "Error while deserializing binlog data of date: Invalid date 'FEBRUARY 31'"


def changes(upto: int, server: str = SERVER, first: int = 4) -> RowChanges:
    """Return what a scanner knows of transactions that change `a` and `b` (at 1048), and then `a` alone (at 3627)."""
    scanner = DeviationScanner()
    scanner.scan(listed(ROLLED_BACK) + listed(ROWS))
    return RowChanges(server, BinlogPlace(FILE, first), BinlogPlace(FILE, upto), scanner.newest)


class Harness:
    """A source whose binlog ends at `end`, its connector, and what was requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str] | None = None) -> None:
        self.properties = properties or {}
        self.end = 4000
        self.now = 0.0
        self.settings: list[Any] = []
        self.read: list[TableId] = []
        lake = SimpleNamespace(
            namespace_properties=lambda _: self.properties,
            set_namespace_property=lambda _, key, value: self.properties.update({key: value}),
        )
        config = SimpleNamespace(lake=SimpleNamespace(ops_namespace="ops"))
        self.watch = SimpleNamespace(changes=changes(1000))
        requests = SimpleNamespace(
            connector=SimpleNamespace(add_settings=self.settings.append),
            replace=lambda requests: self.read.extend(request.table for request in requests),
        )
        monkeypatch.setattr(skipped_events, "read_end", lambda _: BinlogEnd(FILE, self.end))
        monkeypatch.setattr("replicator.watch.skipped_events.time.monotonic", lambda: self.now)
        monkeypatch.setattr("replicator.sources.mysql.tables.included_tables", lambda _: [A, B, C])
        context = SimpleNamespace(lake=lake, config=config)
        self.skipped = SkippedEvents(
            cast("MirrorContext", context), cast("Requests", requests), cast("BinlogWatch", self.watch)
        )

    def begin(self, at: int, file: str = FILE) -> None:
        self.skipped.begin(REASON, ConnectorOffset(file, at))

    def step(self, at: int = 9999) -> None:
        self.skipped.step(lambda: ConnectorOffset(FILE, at))

    def complete(self) -> list[TableId]:
        """Return the tables that are read again once the connector and the watch have read everything."""
        self.step()
        self.step()
        return self.read


@pytest.mark.parametrize(
    ("at", "watched", "read"),
    [
        (1000, changes(4000), [A, B]),
        # The connector may have confirmed events behind the one at which it failed.
        (3800, changes(4000), [A, B]),
        (3800, changes(4000, server="other"), [A, B, C]),
        (3800, changes(4000, first=3000), [A, B, C]),
        (2, changes(4000), [A, B, C]),
    ],
)
def test_tables_that_changed_meanwhile_are_read_again(
    monkeypatch: pytest.MonkeyPatch, at: int, watched: RowChanges, read: list[TableId]
) -> None:
    harness = Harness(monkeypatch)
    harness.begin(at)
    harness.watch.changes = watched
    assert harness.complete() == read
    assert harness.settings == [SKIP_EVENTS, FAIL_AT_EVENTS]
    assert harness.properties == {SKIPPED_KEY: ""}


def test_connector_has_its_usual_setting_again_once_it_is_past_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness(monkeypatch)
    harness.begin(3463)
    told = f"{REASON}, near {FILE}:3463 of the binlog"
    assert (harness.properties, harness.skipped.is_under_way) == ({SKIPPED_KEY: told}, True)
    harness.step(at=3999)
    assert harness.settings == [SKIP_EVENTS]
    harness.end = 5000
    harness.step(at=4000)
    assert harness.settings == [SKIP_EVENTS, FAIL_AT_EVENTS]
    # The watch is not there yet.
    harness.watch.changes = changes(4999)
    harness.step()
    assert harness.skipped.is_under_way
    harness.watch.changes = changes(5000)
    harness.step()
    assert (harness.read, harness.skipped.is_under_way) == ([A, B], False)


def test_all_tables_are_read_again_if_the_binlog_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(monkeypatch)
    harness.begin(3463)
    assert harness.complete() == []
    harness.now += 60
    harness.step()
    assert harness.read == [A, B, C]


def test_next_process_completes_it_and_reads_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(monkeypatch, {SKIPPED_KEY: REASON})
    harness.watch.changes = changes(4000)
    harness.step(at=4000)
    assert harness.settings == [FAIL_AT_EVENTS]
    harness.step()
    assert harness.read == [A, B, C]
    assert harness.properties == {SKIPPED_KEY: ""}


def test_values_that_come_again_within_an_hour_are_skipped_for_some_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness(monkeypatch)
    harness.begin(1000)
    # It was noted once more before the connector had the setting.
    harness.begin(1000)
    harness.watch.changes = changes(4000)
    harness.complete()
    harness.begin(3463)
    harness.now += 599
    harness.step()
    assert harness.settings[-1] == SKIP_EVENTS
    harness.now += 1
    harness.step()
    assert harness.settings[-1] == FAIL_AT_EVENTS
    # It fails again before the tables are read: they are read later, from the first value on.
    harness.read.clear()
    harness.begin(3800)
    harness.now += 600
    assert harness.complete() == [A, B]
