"""Tags beside re-reads of tables: neither waits for ever for the other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.lake.tags import TagStore
from replicator.model.binlog import BinlogEnd
from replicator.model.commit_marker import CommitMarker
from replicator.model.reread import REREAD_KEY, new_request
from replicator.model.table import TableId
from replicator.model.tags import TagRecord, TagState
from replicator.recovery.connector_repair import LOST_BINLOG
from replicator.recovery.noted_failure import NotedFailure
from replicator.recovery.service import Recovery
from replicator.runner import tags
from replicator.runner.tags import TagKeeper
from tests.support.scheduler_harness import ENDS, SchedulerHarness

ORDERS = TableId("shop", "orders")
NOON = TagRecord("noon", TagState.REQUESTED, 1)
LOG = {
    "kind": "kafka",
    "bootstrap_servers": "localhost:1",
    "topic_prefix": "shop",
    "connect_url": "http://localhost:1",
}


class Harness:
    """A tag that is requested, and the re-reads of the same mirror; the connector has not confirmed its position."""

    def __init__(self, tmp_path: Path, **sections: Any) -> None:
        source = {"url": "mysql://u@h/shop", "tables": ["*.*"]}
        self.mirror = SchedulerHarness(tmp_path, log=LOG, source=source, **sections)
        self.properties: dict[str, str] = {}
        context = self.mirror.mirror.context
        self.mirror.lake.namespace_properties.side_effect = lambda _namespace: dict(self.properties)
        self.mirror.lake.set_namespace_property.side_effect = self._set
        self.mirror.lake.tables.return_value = []
        self.store = TagStore(self.mirror.lake, context.config.lake)
        self.store.write(NOON)
        positions = Mock()
        positions.end.return_value, positions.confirmed.return_value = BinlogEnd("binlog.000001", 4), None
        tables = self.mirror.mirror.tables
        self.noted = NotedFailure(context.config)
        self.recovery = Recovery(context, tables, Mock(), self.noted)
        self.tags = TagKeeper(context, tables, Mock(), lambda: ENDS, positions, self.recovery)
        # The source has no new tables.
        self.new_tables = self.recovery._new_tables
        self.new_tables.must_ask = False
        self.new_tables.ask_now = Mock()  # type: ignore[method-assign]

    def _set(self, _namespace: str, key: str, value: str | None) -> None:
        if value is None:
            self.properties.pop(key, None)
        else:
            self.properties[key] = value

    def request(self, *, held: bool = True) -> None:
        """Request a re-read as an earlier process did."""
        text = replace(new_request(ORDERS, "a test"), held=held).to_json()
        self.properties[REREAD_KEY + str(ORDERS)] = text

    def result(self) -> TagRecord:
        """Return the tag after a batch."""
        self.tags.begin(ENDS)
        self.tags.finish()
        return next(tag for tag in self.store.read() if tag.name == "noon")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_tag_fails_if_the_connector_must_begin_again(harness: Harness) -> None:
    assert harness.result().state is TagState.STARTED
    assert harness.noted.note("a.B: reads x, but this is no longer available on the server.")
    failed = harness.result()
    assert (failed.state, failed.reason) == (
        TagState.FAILED,
        f"the connector must begin again: {LOST_BINLOG}",
    )
    # The re-reads can continue.
    assert not harness.tags.is_busy


def test_tag_fails_if_a_table_must_be_read_after_its_position_was_chosen(harness: Harness) -> None:
    assert harness.result().state is TagState.STARTED
    harness.mirror.markers["orders"] = CommitMarker("shop", 1, 1, {})
    harness.request()
    harness.recovery._load()
    failed = harness.result()
    assert failed.state is TagState.FAILED
    assert failed.reason == "shop.orders lacks changes until it has been read from the source"


def test_position_of_a_tag_is_chosen_once_new_tables_are_read(harness: Harness) -> None:
    """It would be before their rows, so one of both would have to wait for ever."""
    harness.request()
    assert harness.result().state is TagState.REQUESTED
    assert not harness.tags.is_started
    harness.recovery._waiting.clear()
    assert harness.result().state is TagState.STARTED
    assert harness.tags.is_started


@pytest.mark.parametrize("end", [lambda _: None, lambda h: h.request(held=False)])
def test_other_rereads_do_not_delay_the_tag(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, end: Callable[[Harness], None]
) -> None:
    """Their tables get all events meanwhile."""
    monkeypatch.setattr(tags, "_LONGEST_HOLD_S", -1.0)
    for topic in ENDS:
        harness.mirror.markers[topic.rpartition(".")[2]] = CommitMarker("shop", 1, 1, {})
    end(harness)
    assert harness.result().state is TagState.STARTED


def test_tag_fails_at_once_if_a_new_table_has_events_and_the_source_was_not_asked_for_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert harness.recovery.requests() == []
    assert harness.result().state is TagState.STARTED
    monkeypatch.setattr(Recovery, "holds", lambda _self, table: table == ORDERS)
    pending = harness.mirror.mirror.context.tagging.pending
    assert pending is not None
    pending.proven = ENDS
    harness.mirror.mirror.tables.paused[ORDERS] = "a reason"
    assert harness.result().reason == "shop.orders is paused: a reason"
    harness.mirror.mirror.tables.paused.clear()
    harness.store.write(replace(NOON, state=TagState.REQUESTED))
    harness.tags.poll_now()
    assert harness.result().state is TagState.STARTED
    pending = harness.mirror.mirror.context.tagging.pending
    assert pending is not None
    pending.proven = ENDS
    failed = harness.result()
    assert failed.state is TagState.FAILED
    assert failed.reason == "shop.orders is new, and must be read from the source first"


def test_an_unexpected_error_of_one_table_fails_the_tag_and_nothing_else(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert harness.result().state is TagState.STARTED
    pending = harness.mirror.mirror.context.tagging.pending
    assert pending is not None

    def odd(*_arguments: Any) -> None:
        raise KeyError("odd")

    monkeypatch.setattr(tags, "tag_table", odd)
    harness.tags._settle(ORDERS, "shop.shop.orders", pending)
    failed = harness.result()
    assert (failed.state, failed.reason) == (TagState.FAILED, "shop.orders: KeyError: 'odd'")
