"""Which re-reads a mirror requests, replaces and forgets. Reading itself is in tests/spark and tests/e2e."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from replicator.config import Config
from replicator.errors import EventsWrong, NoSuchTable
from replicator.jvm.spark import first_line
from replicator.lake.ledger import Progress
from replicator.model.reread import REREAD_KEY, KeySpan, Narrowed, Phase, Request, new_request
from replicator.model.table import TableId
from replicator.recovery import running
from replicator.recovery.connector_repair import LOST_BINLOG
from replicator.recovery.noted_failure import NotedFailure
from replicator.recovery.request import Requests
from replicator.recovery.running import RunningRereads
from replicator.recovery.service import MakeWatches, Recovery
from replicator.recovery.table_reread import TableReread
from replicator.sources.mysql import tables as source_tables
from tests.support.scheduler_harness import SchedulerHarness

ORDERS, USERS, BILLS = TableId("shop", "orders"), TableId("shop", "users"), TableId("shop", "bills")


class Mirror:
    """The re-reads of a mirror that has no table yet."""

    def __init__(self, folder: Path, watches: MakeWatches = lambda _: ()) -> None:
        self.harness = SchedulerHarness(
            folder,
            source={"url": "mysql://mirror@127.0.0.1:1/shop", "tables": ["shop.*"]},
            log={
                "kind": "kafka",
                "bootstrap_servers": "127.0.0.1:1",
                "topic_prefix": "shop",
                "connect_url": "http://127.0.0.1:1",
            },
        )
        self.harness.ledger.incomplete.return_value = {}
        self.harness.ledger.tables = ()
        self.harness.lake.tables.return_value = ()
        scheduler = self.harness.mirror
        self.tables = scheduler.tables
        self.noted: Any = Mock(spec=NotedFailure, lacks_binlogs=False)
        self.recovery = Recovery(scheduler.context, scheduler.tables, scheduler.stopping, self.noted, watches)
        self.running = self.recovery._running
        self.new_tables = self.recovery._new_tables

    def recorded(self, table: TableId) -> list[Request]:
        """Return the requests of a table in the order in which the lake got them."""
        calls = self.harness.lake.set_namespace_property.call_args_list
        key = REREAD_KEY + str(table)
        return [Request.from_json(call.args[2]) for call in calls if call.args[1] == key]

    def begin(self, request: Request) -> Mock:
        """Let a re-read be under way."""
        reread = Mock(request=request)
        self.running._active[request.table] = reread
        return reread

    def end(self, request: Request, phase: Phase) -> None:
        """Let a re-read be under way, and end it."""
        self.running._ended(request.table, self.begin(replace(request, phase=phase, ended_ms=1)).request)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path)


def test_rows_that_were_read_before_the_connector_begins_again_do_not_count(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of tables that have no mirror yet: the log lacks the changes after them."""

    def included(_config: Config) -> list[TableId]:
        return [ORDERS, USERS, BILLS]

    monkeypatch.setattr(source_tables, "included_tables", included)
    monkeypatch.setattr(source_tables, "ignores_case", lambda _config: False)
    active = mirror.begin(new_request(USERS, "new table"))
    waiting = new_request(BILLS, "new table")
    mirror.recovery._waiting[BILLS] = waiting
    mirror.harness.markers["orders"] = Mock()
    begin_again = mirror.recovery.connector.begin_again = Mock()  # type: ignore[method-assign]
    assert mirror.recovery._recover()
    active.cancel.assert_called_once_with()
    begin_again.assert_called_once_with(LOST_BINLOG)
    mirror.noted.begins_again.assert_called_once_with()
    for table, former in ((ORDERS, None), (USERS, active.request), (BILLS, waiting)):
        (request,) = mirror.recorded(table)
        assert (request.reason, request.held) == (LOST_BINLOG, True)
        assert former is None or request.id != former.id
        assert mirror.recovery._waiting[table] == request
    assert mirror.running.requests == {}


def test_a_table_is_read_without_a_command_again_after_it_was_read_on_command(mirror: Mirror) -> None:
    mirror.end(new_request(ORDERS, "wrong"), Phase.FAILED)
    mirror.tables.pause(ORDERS, EventsWrong("wrong"))
    assert mirror.recorded(ORDERS) == []
    mirror.end(new_request(ORDERS, "on command"), Phase.DONE)
    mirror.tables.pause(ORDERS, EventsWrong("wrong again"))
    assert [request.reason for request in mirror.recorded(ORDERS)] == ["wrong again"]


PART = Narrowed("id", (KeySpan(1, 9, 9),))
OTHER_PART = Narrowed("id", (KeySpan(5, 9, 5),))


@pytest.mark.parametrize(
    ("known", "wanted", "is_replaced"),
    [
        (PART, None, True),
        (PART, OTHER_PART, True),
        (PART, PART, False),
        (None, PART, False),
        (None, None, False),
    ],
)
def test_a_known_request_is_replaced_if_it_reads_less_than_is_wanted(
    mirror: Mirror, known: Narrowed | None, wanted: Narrowed | None, is_replaced: bool
) -> None:
    mirror.harness.markers["orders"] = Mock()
    mirror.recovery._load()
    former = new_request(ORDERS, "repair", narrowed=known)
    mirror.recovery._waiting[ORDERS] = former
    mirror.recovery.request([ORDERS], "on command", narrowed={} if wanted is None else {ORDERS: wanted})
    request = mirror.recovery._waiting[ORDERS]
    assert (request.id != former.id) is is_replaced
    assert request.narrowed == (wanted if is_replaced else known)


@pytest.mark.parametrize(
    ("error", "attempts"), [(NoSuchTable("the source has no table shop.orders"), 4), (KeyError("odd"), 4)]
)
def test_reread_ends_soon_if_the_source_has_no_such_table_or_the_engine_fails(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, error: Exception, attempts: int
) -> None:
    """A run until everything is caught up would never end; other re-reads go on."""
    monkeypatch.setattr(running, "_FEW_DELAYS_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(running, "_DELAYS_S", (0.0,) * 99)
    context, stopping = mirror.harness.mirror.context, mirror.harness.mirror.stopping
    fresh = RunningRereads(context, mirror.tables, mirror.new_tables, Mock(), stopping, Mock())
    fresh._staging = Mock()
    reread = TableReread(Mock(), Mock(), new_request(ORDERS, "lost"), "shop.shop.orders", fresh._record)
    reread.is_published = Mock(side_effect=error)  # type: ignore[method-assign]
    other = Mock(request=new_request(USERS, "lost"))
    fresh._active = {ORDERS: reread, USERS: other}
    for _ in range(attempts):
        assert not reread.request.has_ended
        fresh.step({}, publishes=True)
    assert reread.request.phase is Phase.FAILED
    assert first_line(error) in (reread.request.problem or "")
    assert other.finish_published.call_count == attempts
    assert list(fresh._active) == [USERS]


def test_table_that_was_missing_is_healed_once_the_source_has_it_again(mirror: Mirror) -> None:
    mirror.harness.markers["orders"] = Mock()
    mirror.running._failed = {ORDERS, USERS}
    mirror.running._missing = {ORDERS}
    mirror.new_tables.step = Mock(return_value=[ORDERS, USERS])  # type: ignore[method-assign]
    mirror.recovery._discover()
    assert mirror.running._failed == {USERS}


def test_error_in_looking_at_one_new_table_stops_no_other(mirror: Mirror) -> None:
    mirror.new_tables.step = Mock(return_value=[BILLS, ORDERS])  # type: ignore[method-assign]
    mirror.harness.ledger.knows.return_value = True
    mirror.harness.ledger.progress = Mock(side_effect=_progress_of_all_but(BILLS))
    mirror.recovery._discover()
    assert [request.table for request in mirror.recovery._waiting.values()] == [ORDERS]
    assert mirror.tables.retries


def _progress_of_all_but(odd: TableId) -> Any:
    def progress(table: TableId) -> Progress:
        if table == odd:
            raise KeyError("odd")
        return Progress(None, None, True)

    return progress


def test_nothing_is_published_while_a_tag_is_made(mirror: Mirror) -> None:
    """Reading goes on."""
    reread = mirror.begin(new_request(ORDERS, "lost"))
    reread.is_published.return_value = reread.is_reading = False
    reread.read_failure.return_value = None
    for publishes in (False, True):
        mirror.running.step({}, publishes=publishes)
        assert reread.catch_up.called
        assert reread.publish.called is publishes


class Watching:
    """A watch that finds, in its first step, that the events of a table are wrong."""

    def __init__(self, requests: Requests, done: list[str]) -> None:
        self.requests = requests
        self.done = done
        self.is_behind = True

    def start(self) -> None:
        self.done.append("start")

    def step(self) -> None:
        if self.is_behind:
            self.requests.pause(ORDERS, EventsWrong("wrong"))
        self.is_behind = False

    def close(self) -> None:
        self.done.append("close")


def test_what_a_watch_finds_is_in_the_lake_before_the_table_could_go_on(tmp_path: Path) -> None:
    done = list[str]()
    mirror = Mirror(tmp_path, lambda requests: [Watching(requests, done)])
    mirror.new_tables.must_ask = False
    mirror.recovery._start_some = Mock()  # type: ignore[method-assign]
    mirror.recovery.start()
    assert mirror.recovery.is_busy
    mirror.recovery.step({})
    assert [(request.reason, request.held) for request in mirror.recorded(ORDERS)] == [("wrong", True)]
    assert mirror.recovery.holds(ORDERS)
    mirror.recovery.close()
    assert done == ["start", "close"]
    assert mirror.harness.mirror.stopping.is_set()
