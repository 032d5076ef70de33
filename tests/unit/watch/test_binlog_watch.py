"""Watching the binlog beside the stream: what is paused, and when, and up to where it is recorded to be watched."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Connection

from replicator.batch import MirrorContext
from replicator.batch.state.prepared_transactions import PreparedTransactions
from replicator.config import Config
from replicator.errors import PrivilegeError, ReplicatorError, SourceUnavailable
from replicator.model.binlog import WATCHED_KEY, BinlogEnd, ConnectorOffset, Watched
from replicator.model.compared import may_differ_in
from replicator.model.gtid import GtidSet
from replicator.model.table import TableId
from replicator.recovery.request import Requests
from replicator.watch import binlog_watch
from replicator.watch.binlog_watch import BinlogWatch
from tests.support.config_files import load_text
from tests.support.listed_events import (
    CASCADES,
    FILE,
    ROLLED_BACK,
    SERVER,
    STATEMENTS,
    UUID,
    ListingServer,
    listed,
)

A, B, C = (TableId("shop", name) for name in "abc")
START = Watched(SERVER, FILE, 867, FILE, 867)
CONFIG = """
[mirror]
name = "shop"
[source]
cascades = "reread"
url = "mysql://root@127.0.0.1:3306/shop"
tables = ["shop.*"]
[log]
kind = "kafka"
bootstrap_servers = "127.0.0.1:9092"
topic_prefix = "shop"
connect_url = "http://127.0.0.1:8083"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"
"""


class Harness:
    """A watch of a server's binlog, and what it did."""

    def __init__(self, config: Config, server: ListingServer) -> None:
        self.server = server
        self.properties = {WATCHED_KEY: START.to_json()}
        self.paused: list[tuple[TableId, ReplicatorError]] = []
        self.connector_has_read = threading.Event()
        self.connector_offset: ConnectorOffset | None = None
        self.failure: ReplicatorError | None = None
        self.prepared = PreparedTransactions()
        lake = SimpleNamespace(
            namespace_properties=lambda _: dict(self.properties),
            set_namespace_property=lambda _, key, value: self.properties.update({key: value}),
        )
        context = SimpleNamespace(lake=lake, config=config, prepared=self.prepared)
        requests = SimpleNamespace(pause=lambda table, cause: self.paused.append((table, cause)))
        self.watch = BinlogWatch(cast("MirrorContext", context), cast("Requests", requests))

    @contextlib.contextmanager
    def connect(self, *_: object, **__: object) -> Iterator[Connection]:
        if self.failure is not None:
            raise self.failure
        yield self.server.connection

    @property
    def connector(self) -> Any:
        if self.connector_offset is not None:
            return binlog_watch._Connector(runs=True, offset=self.connector_offset)
        read = self.connector_has_read.is_set()
        offset = ConnectorOffset(
            FILE, 9_999 if read else 4, GtidSet.parse(f"{UUID}:{'1-99' if read else '1'}")
        )
        return binlog_watch._Connector(runs=True, offset=offset)

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            self.watch.step()

    def await_last_pending(self, end: int) -> None:
        self.until(lambda: self.pending[-1:] == [end])

    @property
    def pending(self) -> list[int]:
        """The ends of the deviations that the connector has not read."""
        return [suspected.deviation.end.pos for suspected in list(self.watch._pending)]

    @property
    def recorded(self) -> Watched:
        return Watched.from_json(self.properties[WATCHED_KEY])


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(load_text(tmp_path / "mirror.toml", CONFIG), ListingServer({FILE: listed(ROLLED_BACK)}))
    monkeypatch.setattr(binlog_watch, "connect", harness.connect)
    monkeypatch.setattr(binlog_watch, "_POLL_S", 0.001)
    monkeypatch.setattr(binlog_watch, "_RETRY_S", 0.001)
    monkeypatch.setattr(binlog_watch, "_RECORD_S", 0.0)
    monkeypatch.setattr(binlog_watch, "tables_in_source", lambda *_: [A, B, C])
    monkeypatch.setattr(
        binlog_watch,
        "changed_in_source",
        lambda _, changed, tables: [t for t in tables if changed.may_have(t)],
    )
    monkeypatch.setattr(binlog_watch._Connector, "of", lambda _: harness.connector)
    yield harness
    harness.watch.close()


def test_tables_pause_once_the_connector_is_past_the_transaction(harness: Harness) -> None:
    harness.watch.start()
    harness.until(lambda: harness.prepared.why_wait(C, BinlogEnd(FILE, 1610)) is None)
    assert harness.watch.is_behind
    assert (harness.paused, harness.recorded) == ([], START)
    harness.connector_has_read.set()
    harness.until(lambda: not harness.watch.is_behind and harness.recorded != START)
    assert {table for table, _ in harness.paused} == {A, B}
    assert str(harness.paused[0][1]).endswith(f"was rolled back, at {FILE}:1428 ({UUID}:5)")
    assert harness.recorded == Watched(SERVER, FILE, 1610, FILE, 1610)


def test_each_statement_pauses_its_tables(harness: Harness) -> None:
    harness.server.files[FILE] = listed(STATEMENTS)
    harness.properties[WATCHED_KEY] = Watched(SERVER, FILE, 4429, FILE, 4429).to_json()
    harness.connector_has_read.set()
    harness.watch.start()
    harness.until(lambda: not harness.watch.is_behind)
    assert {table for table, _ in harness.paused} == {A, B}
    last = max(str(cause) for table, cause in harness.paused if table == B)
    assert last.endswith(f"at {FILE}:5979 ({UUID}:19)")


def test_rereads_wait_for_the_outcome_of_prepared_transactions(harness: Harness) -> None:
    events = listed(ROLLED_BACK)
    harness.server.files[FILE] = events[:-2]
    end = BinlogEnd(FILE, 1428)
    harness.watch.start()
    assert harness.prepared.why_wait(A, end) is not None
    harness.until(lambda: harness.prepared.is_open(A))
    assert harness.prepared.why_wait(A, end) == "a prepared XA transaction has changed rows of it"
    assert harness.prepared.why_wait(C, end) is None
    harness.until(lambda: harness.recorded == Watched(SERVER, FILE, 867, FILE, 1428))
    harness.server.files[FILE] = events
    harness.until(lambda: not harness.prepared.is_open(A))
    harness.watch.close()
    assert harness.prepared.why_wait(A, BinlogEnd(FILE, 9999)) is None


def test_without_the_privilege_nothing_is_watched(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    warned = threading.Event()
    monkeypatch.setattr(binlog_watch._LOG, "warning", lambda *_, **__: warned.set())
    harness.failure = PrivilegeError("the MySQL user shop lacks a privilege: REPLICATION SLAVE")
    harness.watch.start()
    harness.until(lambda: not harness.watch.is_behind)
    assert warned.wait(10)
    harness.until(lambda: harness.prepared.why_wait(A, BinlogEnd(FILE, 9999)) is None)


def test_outage_of_the_source_is_waited_for(harness: Harness) -> None:
    harness.failure = SourceUnavailable("cannot reach MySQL")
    harness.connector_has_read.set()
    harness.watch.start()
    harness.until(lambda: not harness.watch.is_behind)
    assert harness.prepared.why_wait(A, BinlogEnd(FILE, 1610)) is not None
    harness.failure = None
    harness.until(lambda: harness.paused)
    assert {table for table, _ in harness.paused} <= {A, B}


def test_binlog_that_was_deleted_is_told_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(binlog_watch._LOG, "warning", lambda _, **fields: told.append(fields))
    harness.server.files = {"mysql-bin.000002": listed(STATEMENTS, "mysql-bin.000002")}
    harness.connector_has_read.set()
    harness.watch.start()
    harness.until(lambda: harness.recorded.file == "mysql-bin.000002" and not harness.watch.is_behind)
    assert [line["since"] for line in told] == [f"{FILE}:867"]


def test_all_tables_are_read_again_if_another_server_has_no_gtids(harness: Harness) -> None:
    harness.server.uuid = "4f22"
    harness.connector_has_read.set()
    harness.watch.start()
    harness.until(lambda: harness.paused)
    assert {table for table, _ in harness.paused} >= {A, B}
    assert all("another server without GTIDs" in error.message for _, error in harness.paused)


def watch_cascades(harness: Harness) -> None:
    """Watch transactions that change rows of A, whose children are B and, through B, C."""
    harness.server.files[FILE] = listed(CASCADES)
    harness.server.cascades = [
        ("shop", "a", "shop", "b", "CASCADE", "NO ACTION"),
        ("shop", "b", "shop", "c", "SET NULL", "RESTRICT"),
    ]
    harness.properties[WATCHED_KEY] = Watched(SERVER, FILE, 1466, FILE, 1466).to_json()
    harness.connector_has_read.set()
    harness.watch.start()
    harness.until(lambda: not harness.watch.is_behind)


def test_watching_is_recorded_up_to_what_the_connector_has_not_read(harness: Harness) -> None:
    harness.server.files[FILE] = listed(CASCADES)[:5]
    harness.server.cascades = [("shop", "a", "shop", "b", "CASCADE", "NO ACTION")]
    harness.properties[WATCHED_KEY] = Watched(SERVER, FILE, 1466, FILE, 1466).to_json()
    harness.connector_offset = ConnectorOffset(FILE, 1466, GtidSet.parse(f"{UUID}:1-5"))
    harness.watch.start()
    harness.until(lambda: harness.pending == [1758])
    later = listed(CASCADES)[10:]
    for n in range(3):
        shifted = [event._replace(pos=event.pos + n * 400, end=event.end + n * 400) for event in later]
        harness.server.files[FILE] = [*harness.server.files[FILE], *shifted]
        harness.await_last_pending(shifted[-1].end)
    assert harness.pending == [1758, 3205]
    assert (harness.paused, harness.recorded) == ([], Watched(SERVER, FILE, 1466, FILE, 1466))
    harness.connector_offset = ConnectorOffset(FILE, 1758, GtidSet.parse(f"{UUID}:1-6"))
    harness.until(lambda: harness.recorded == Watched(SERVER, FILE, 2805, FILE, 2805))
    assert [table for table, _ in harness.paused] == [B]
    assert harness.watch.is_behind


def test_cascades_are_only_told_if_the_configuration_says_so(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(binlog_watch._LOG, "warning", lambda _, **fields: told.append(fields))
    config = harness.watch._context.config
    monkeypatch.setattr(
        harness.watch._context,
        "config",
        config.model_copy(update={"source": config.source.model_copy(update={"cascades": "warn"})}),
    )
    watch_cascades(harness)
    assert harness.paused == []
    assert sorted(line["table"] for line in told) == ["shop.b", "shop.c"]
    harness.until(lambda: harness.recorded.pos >= 2405)
    # Before that place, the last transaction of each table was recorded.
    noted = may_differ_in(harness.properties)
    assert {table: (found.file, found.pos) for table, found in noted.items()} == {
        "shop.b": (FILE, 2405),
        "shop.c": (FILE, 2405),
    }


def test_unexpected_error_does_not_end_the_watch_and_no_deviation_is_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([RuntimeError("unexpected"), UnicodeDecodeError("utf-8", b"\xf6", 0, 1, "invalid")])

    def tables(*_: object) -> list[TableId]:
        if (failure := next(failures, None)) is not None:
            raise failure
        return [A, B, C]

    monkeypatch.setattr(binlog_watch, "tables_in_source", tables)
    harness.connector_has_read.set()
    harness.watch.start()
    harness.until(lambda: {table for table, _ in harness.paused} == {A, B})


def test_re_reads_do_not_wait_for_a_binlog_that_cannot_be_read(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binlog_watch, "_UNWATCHED_S", 0.0)
    harness.failure = SourceUnavailable("no answer")
    harness.watch.start()
    end = BinlogEnd(FILE, 1610)
    harness.until(lambda: harness.prepared.why_wait(C, end) is None)
    harness.failure = None
    harness.until(lambda: harness.prepared.is_open(A) or harness.prepared.why_wait(C, end) is None)
    harness.until(lambda: not harness.watch._failure)
    assert harness.prepared._is_watched
