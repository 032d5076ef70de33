"""Let the connector skip a value that it cannot read, and read the tables again that changed meanwhile.

Debezium reads the values of rows before it looks whether their table is included. So one value stops it for all
tables: a date such as 2024-02-31, which a session with ALLOW_INVALID_DATES may write, in any database. Another setting
lets it go on, but with that, it may leave out events without telling which. Therefore all tables that changed meanwhile
are read again once it has its usual setting.

A record in the lake tells that this was begun: the next process completes it, and then reads all tables again.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from replicator.batch import MirrorContext
from replicator.config import Config
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.recovery.request import Requests
from replicator.sources.binlog.deviations import BinlogPlace, RowChanges
from replicator.sources.connector.settings import FAIL_AT_EVENTS, SKIP_EVENTS
from replicator.telemetry import get_logger

if TYPE_CHECKING:
    # It imports SQLAlchemy, which takes a second.
    from replicator.watch.binlog_watch import BinlogWatch

SKIPPED_KEY: Final = "replicator.skipped-events"
"""The property of the `_ops` namespace that tells why the connector skips values; empty if it does not."""

_LOG: Final = get_logger("replicator.repair")
_SAME_S: Final = 3600.0
_HOLD_S: Final = 600.0
"""If it comes again within an hour, the connector skips for so long, so that tables are not read all the time."""
_WATCH_S: Final = 60.0
"""How long to wait until the binlog is watched up to the end."""
_READ_TIMEOUT_S: Final = 30


class SkippedEvents:
    """What the connector of one mirror skips. For the scheduler's thread; `LakeUnavailable` may be raised by all."""

    def __init__(self, context: MirrorContext, requests: Requests, binlog: "BinlogWatch | None") -> None:
        self._context = context
        self._requests = requests
        self._binlog = binlog
        self._reason: str | None = None
        self._since: BinlogPlace | None = None
        self._before: RowChanges | None = None
        self._began_at: float | None = None
        self._hold_until = 0.0
        self._end: BinlogEnd | None = None
        self._is_restored = False
        # Where the binlog ended when the connector had its usual setting again, and until when the watch is awaited.
        self._last: tuple[BinlogEnd, float] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the connector skips values, as far as that is known."""
        return bool(self._reason)

    def begin(self, reason: str, offset: ConnectorOffset | None) -> None:
        """Let the connector go on from its `offset`, where it failed.

        Raises:
            SourceError: the source does not answer.
        """
        self._load()
        now, end, watch = time.monotonic(), read_end(self._context.config), self._binlog
        if offset is not None:
            # Debezium tells where the value is in its log only.
            reason = f"{reason}, near {offset} of the binlog"
        if not self._reason:
            self._since = None if offset is None else BinlogPlace(offset.file, offset.pos)
            self._before = None if watch is None else watch.changes
            _LOG.warning("the connector skips values that it cannot read", reason=reason)
        if not self._reason or self._is_restored:
            is_repeated = self._began_at is not None and now < self._began_at + _SAME_S
            self._began_at, self._hold_until = now, now + (_HOLD_S if is_repeated else 0.0)
        self._record(reason)
        self._end, self._is_restored, self._last = end, False, None
        self._requests.connector.add_settings(SKIP_EVENTS)

    def step(self, offset: Callable[[], ConnectorOffset | None]) -> None:
        """End it if the connector is past what it could not read; no repair may be under way.

        Raises:
            ConnectError, SourceError: a server does not answer.
        """
        self._load()
        if not self._reason or time.monotonic() < self._hold_until:
            return
        if self._end is None:
            self._end = read_end(self._context.config)
        if not self._is_restored:
            confirmed = offset()
            if confirmed is not None and confirmed.covers(self._end):
                self._requests.connector.add_settings(FAIL_AT_EVENTS)
                self._is_restored = True
            return
        if self._last is None:
            self._last = read_end(self._context.config), time.monotonic() + _WATCH_S
        self._read_again(*self._last)

    def _read_again(self, last: BinlogEnd, deadline: float) -> None:
        watch = self._binlog
        now = None if watch is None else watch.changes
        reached = now is not None and now.upto.order >= BinlogPlace(last.file, last.pos).order
        if watch is not None and not reached and time.monotonic() < deadline:
            return
        requests = [
            new_request(table, self._reason or "") for table in self._changed(now if reached else None)
        ]
        self._requests.replace(requests)
        self._record("")

    def _changed(self, now: RowChanges | None) -> list[TableId]:
        """Return the tables that changed meanwhile; all if that is not known."""
        from replicator.sources.mysql.tables import included_tables  # noqa: PLC0415

        included = included_tables(self._context.config)
        changed = None
        if now is not None and self._since is not None:
            # Before it stops, the connector may confirm events that follow the one which it could not read.
            begin = BinlogPlace(self._since.file, 0)
            if begin.order < now.first.order <= self._since.order:
                begin = now.first
            changed = now.since(begin, self._before)
        return included if changed is None else [table for table in included if changed.may_have(table)]

    def _load(self) -> None:
        """Learn whether an earlier process has begun it."""
        if self._reason is None:
            lake, namespace = self._context.lake, self._context.config.lake.ops_namespace
            self._reason = lake.namespace_properties(namespace).get(SKIPPED_KEY, "")

    def _record(self, reason: str) -> None:
        lake, namespace = self._context.lake, self._context.config.lake.ops_namespace
        lake.set_namespace_property(namespace, SKIPPED_KEY, reason)
        self._reason = reason


def read_end(config: Config) -> BinlogEnd:
    """Return the end of the source's binlog.

    Raises:
        SourceError: it does not answer.
    """
    from replicator.sources.mysql.connection import connect, read_binlog_end  # noqa: PLC0415

    with connect(config.source, read_timeout=_READ_TIMEOUT_S) as connection:
        return read_binlog_end(connection)
