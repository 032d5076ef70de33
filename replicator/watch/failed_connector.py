"""Bring a connector back that failed because of one statement, or of one event of one table.

A monitoring thread notes the failure; the scheduler's thread treats it. The connector leaves the table out, and so
continues with all others. Once it is past the event, it takes the table in again, with all definitions read again, and
the table is read again after that.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from replicator.batch import MirrorContext
from replicator.errors import ConnectError, EventsRejected, SourceError
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.recovery.noted_failure import NotedFailure
from replicator.recovery.request import Requests
from replicator.sources.connector.failure import Failure
from replicator.sources.connector.settings import ONLY_CAPTURED, SKIP_STATEMENTS
from replicator.sources.source_positions import source_positions
from replicator.telemetry import get_logger
from replicator.watch.skipped_events import SkippedEvents, read_end

if TYPE_CHECKING:
    # It imports SQLAlchemy, which takes a second.
    from replicator.watch.binlog_watch import BinlogWatch

_LOG: Final = get_logger("replicator.repair")
_POLL_S: Final = 1.0
_RETRY_S: Final = 5.0
_SAME_S: Final = 3600.0
"""A table whose events fail again within this time is not taken in again by itself."""


class FailedConnector:
    """Treats the failures of one mirror's connector. For the scheduler's thread."""

    def __init__(
        self,
        context: MirrorContext,
        requests: Requests,
        noted: NotedFailure,
        binlog: "BinlogWatch | None" = None,
    ) -> None:
        self._context = context
        self._requests = requests
        self._repair = requests.connector
        self._noted = noted
        self._skipped = SkippedEvents(context, requests, binlog)
        self._ends: dict[TableId, BinlogEnd] = {}
        self._rejected: dict[TableId, float] = {}
        # The connector cannot start with their types as they are in its history.
        self._mistyped: set[TableId] = set()
        self._due_at = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether the connector skips values, so that tables are to be read again."""
        return self._skipped.is_under_way

    def start(self) -> None:
        """Do nothing: a monitoring thread notes the failures."""

    def close(self) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Treat what was noted, and take tables in again of which the connector is past the event."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _POLL_S
        failure, is_busy = self._noted.take(), self._repair.is_busy
        with self._retrying():
            if failure is not None and (not is_busy or failure.is_of_unreadable_table):
                # What is not treated now is noted again.
                self._treat(failure)
            elif not is_busy:
                self._skipped.step(self._offset)
                if aside := self._repair.aside:
                    self._take_in(aside)

    def _treat(self, failure: Failure) -> None:
        if failure.is_of_statement:
            _LOG.warning("the connector skips statements that it cannot parse", reason=failure.reason)
            self._repair.add_settings(SKIP_STATEMENTS)
            return
        if failure.is_of_value:
            self._skipped.begin(failure.reason, self._offset())
            return
        from replicator.sources.mysql.tables import included_tables, merge_tables  # noqa: PLC0415

        config = self._context.config
        present, gone = included_tables(config), set[TableId]()
        if failure.is_of_unreadable_table:
            self._repair.add_settings(ONLY_CAPTURED)
            found = merge_tables(config)
        elif not (found := failure.tables(present)):
            known = [*present, *self._context.schemas.defined_columns()]
            found = [t for t in failure.gone_tables({t.database for t in known}) if config.includes(str(t))]
            gone = set(found)
        found = [table for table in found if table not in self._repair.aside]
        if not found and not failure.is_of_unreadable_table:
            self._noted.decline(failure)
        for table in found:
            reason, hint = failure.explain(table)
            again = (
                failure.is_of_unreadable_table
                or time.monotonic() < self._rejected.get(table, -_SAME_S) + _SAME_S
            )
            _LOG.warning("the connector leaves a table out", table=str(table), reason=reason)
            if table not in gone:
                self._rejected[table] = time.monotonic()
                if again:
                    self._requests.pause(table, EventsRejected(reason, hint))
                else:
                    # First, because the settings of the connector do not tell that it must be read again.
                    self._requests.replace([new_request(table, reason)])
            self._repair.without_table(table)
        if failure.column is not None:
            self._mistyped.update(found)

    def _take_in(self, aside: frozenset[TableId]) -> None:
        """Take tables in again once the connector is past what it could not process.

        They are to be read again, or did not exist any more. A paused one stays aside until its re-read is requested.
        """
        awaited = {r.table for r in self._requests.requests() if not r.has_ended}
        due = aside & awaited | aside - self._requests.paused.keys()
        if not due:
            return
        if due - self._ends.keys():
            end = read_end(self._context.config)
            self._ends |= dict.fromkeys(due - self._ends.keys(), end)
            return
        offset = self._offset()
        past = [table for table in due if offset is not None and offset.covers(self._ends[table])]
        if not past:
            return
        if mistyped := self._mistyped.intersection(past):
            # Tables that are left out are defined again too, with the types that MySQL shows.
            self._repair.rebuild_history("types of " + ", ".join(map(str, sorted(mistyped))))
            self._mistyped -= mistyped
            return
        from replicator.sources.mysql.tables import included_tables  # noqa: PLC0415

        # One that exists again may have had events meanwhile.
        again = {*past} - awaited & {*included_tables(self._context.config)}
        self._requests.replace([new_request(table, "it was created again") for table in sorted(again)])
        self._repair.rebuild_history("taken in again: " + ", ".join(map(str, sorted(past))))
        for table in past:
            del self._ends[table]
            self._repair.with_table(table)

    def _offset(self) -> ConnectorOffset | None:
        positions = source_positions(self._context.config)
        return None if positions is None else positions.confirmed()

    @contextmanager
    def _retrying(self) -> Iterator[None]:
        """Try again later if a server does not answer; the connector is noted again while it fails."""
        try:
            yield
        except (ConnectError, SourceError) as error:
            self._due_at = time.monotonic() + _RETRY_S
            _LOG.warning("the connector cannot be brought back yet", reason=error.message, next=error.hint)
