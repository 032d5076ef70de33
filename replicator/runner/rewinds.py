"""Let the connector send events again that the log has lost, if the source still has them in its binlogs.

A rewind stops the connector, sets its offset to the beginning of a binlog file, and lets it continue. All events from
there on come again, of all tables, after what the topics have. A table whose events were lost skips what its topic had
until then, and continues once all of them are there; every table drops what it has already, as after any restart of a
connector. What a rewind has done is recorded in the lake, and repeating it from its beginning is harmless: whatever the
topics got from an interrupted one is skipped too, and comes again.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from replicator import failpoints
from replicator.batch import MirrorContext
from replicator.config import KafkaLog
from replicator.errors import (
    CommitConflict,
    ConnectError,
    ConnectRefused,
    EventsLost,
    LogError,
    PrivilegeError,
    SourceError,
)
from replicator.jvm.spark import first_line
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.clock import now_ms
from replicator.model.commit_marker import HighWater
from replicator.model.gtid import NO_GTIDS
from replicator.model.position import binlog_number
from replicator.model.rewind import REWIND_KEY, Rewind, RewindPhase, rewinds_in
from replicator.model.table import TableId, topic_name
from replicator.runner.lost_binlog import LostBinlog
from replicator.runner.rewind_plan import LostTable, RewindPlan, lost_table, plan_rewind
from replicator.runner.table_states import TableStates
from replicator.sources.change_log import Offsets
from replicator.sources.connector_history import first_known_file
from replicator.sources.connector_policy import Observation
from replicator.sources.connector_settings import connect_client
from replicator.sources.kafka_connect import Connector, KafkaConnect
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.rewind")
_FILE_START: Final = 4
"""The offset at which a binlog file begins."""
_POLL_S: Final = 1.0
_RETRY_S: Final = 10.0
_STOP_S: Final = 60.0
"""How long the connector's tasks may take to stop."""
_STUCK_S: Final = 300.0
"""After this time in which the connector has failed, it does not send the events any more."""
_READ_TIMEOUT_S: Final = 60
_NO_OFFSET: Final = "the connector has not exactly one source offset"
_SIGNALS: Final = "signal.data.collection"


@dataclass(frozen=True, slots=True)
class _Source:
    """The connector of the mirror, and how to ask it."""

    client: KafkaConnect
    connector: Connector
    log: KafkaLog

    @property
    def name(self) -> str:
        return self.connector.name


class Rewinds:
    """The rewinds of one mirror. All methods are for the scheduler's thread.

    Attributes:
        lost_binlog: told if the connector cannot send the events; None if nothing monitors the connector.
    """

    def __init__(self, context: MirrorContext, tables: TableStates, stopping: threading.Event) -> None:
        self._context = context
        self._tables = tables
        self._stopping = stopping
        config = context.config
        self._enabled = config.can_read_source and config.heal.mode == "auto" and config.heal.max_binlog > 0
        # Paused tables that lack events, until it is decided how they get them.
        self._noted: set[TableId] = set()
        self._undecided = False
        self._active: dict[TableId, Rewind] = {}
        self._given_up: set[TableId] = set()
        self._newest: dict[TableId, Rewind] = {}
        self._due_at = 0.0
        self._failed_since: float | None = None
        # A process that was killed may have left the connector stopped.
        self._must_resume = False
        self.lost_binlog: LostBinlog | None = None

    @property
    def any_left(self) -> bool:
        """Whether something is left to do or to decide."""
        undecided = self._undecided and not self._noted.isdisjoint(self._tables.paused)
        return undecided or bool(self._active.keys() - self._given_up)

    def wants(self, table: TableId) -> bool:
        """Whether the lost events of a table are sent again, or that is not decided yet."""
        undecided = self._undecided and table in self._noted
        return undecided or (table in self._active and table not in self._given_up)

    def load(self) -> None:
        """Continue the rewinds in the lake that have not ended. Their tables stay paused until the events are there.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        context = self._context
        rewinds = rewinds_in(context.lake.namespace_properties(context.config.lake.ops_namespace))
        lasting = context.ledger.lasting_pauses() if any(not r.has_ended for r in rewinds) else {}
        for rewind in rewinds:
            table = rewind.table
            self._newest[table] = rewind
            if rewind.has_ended:
                continue
            self._active[table], self._must_resume = rewind, True
            if table in lasting:
                # The events that are sent again do not remove its cause.
                self._read_again(table, lasting[table][0])
            else:
                context.ledger.pause(table, rewind.reason, None)
                self._tables.paused[table] = rewind.reason

    def note(self, table: TableId, cause: Exception) -> None:
        """Note that a table was paused. If it lacks events, `decide` looks at it with all others that do.

        If it pauses for another reason while its events are sent again, these do not suffice.
        """
        if isinstance(cause, EventsLost) and self._enabled and table not in self._active:
            self._noted.add(table)
            self._undecided = True
        else:
            self._noted.discard(table)
        if table in self._active and not isinstance(cause, EventsLost):
            self._read_again(table, first_line(cause))

    def _read_again(self, table: TableId, problem: str) -> None:
        """Let a table be read again instead. Its rewind is over once that was requested."""
        self._given_up.add(table)
        self._active[table] = replace(self._active[table], problem=problem)

    def decide(self, due: Mapping[TableId, str], first: Offsets) -> None:
        """Request one rewind for all tables that lack events and are in `due` (table → reason), as far as possible.

        The others must be read again. `first` is the first offsets of the log.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        candidates = sorted(self._noted & due.keys())
        if not candidates:
            self._undecided = False
            return
        if self._active.keys() - self._given_up or time.monotonic() < self._due_at:
            return
        try:
            plan = self._plan(candidates, first)
        except (ConnectRefused, PrivilegeError, LogError) as error:
            plan = RewindPlan((), None, 0, dict.fromkeys(candidates, error.message))
        except (ConnectError, SourceError) as error:
            self._retry_later(error)
            return
        self._undecided = False
        self._noted -= set(candidates)
        for table, reason in plan.refused.items():
            _LOG.warning("lost events cannot be sent again", table=str(table), reason=reason)
        for table in plan.tables:
            rewind = Rewind(table, due[table], plan.file or "", plan.bytes, now_ms())
            self._record(rewind)
            self._active[table] = rewind
            _LOG.info("lost events are to be sent again", table=str(table), file=plan.file, bytes=plan.bytes)

    def step(self) -> None:
        """Do what can be done now for the rewinds that were requested.

        Raises:
            LogUnavailable, LakeUnavailable: Kafka or the catalog does not answer.
            FencedError: another process writes this mirror.
        """
        if not (self._current() or self._must_resume) or time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _POLL_S
        try:
            if not self._current():
                self._resume(self._source())
            elif all(rewind.phase is RewindPhase.SENDING for rewind in self._current()):
                self._await_sent()
            else:
                self._rewind()
        except (ConnectRefused, PrivilegeError) as error:
            self._give_up(first_line(error))
        except (ConnectError, SourceError, CommitConflict) as error:
            self._retry_later(error)

    def abandon(self, reason: str) -> None:
        """End all rewinds, because all tables are read again.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        for rewind in list(self._active.values()):
            self._end(replace(rewind, phase=RewindPhase.FAILED, problem=reason))

    def replaced(self, table: TableId) -> None:
        """Record that a table is read again instead, or was.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        rewind = self._active.get(table)
        if rewind is not None:
            self._end(replace(rewind, phase=RewindPhase.FAILED, problem=rewind.problem or "it is read again"))

    def _current(self) -> list[Rewind]:
        return [rewind for table, rewind in self._active.items() if table not in self._given_up]

    def _retry_later(self, error: ConnectError | SourceError | CommitConflict) -> None:
        self._due_at = time.monotonic() + _RETRY_S
        for table in self._active:
            # A commit may have failed because of another one.
            self._context.ledger.forget(table)
        _LOG.warning("lost events cannot be sent again yet, retrying", reason=error.message, next=error.hint)

    def _source(self) -> _Source:
        """Return the connector of the mirror.

        Raises:
            ConnectError: Kafka Connect does not answer, or has no such connector.
        """
        client, log = connect_client(self._context.config), self._context.config.log
        if client is None or not isinstance(log, KafkaLog):
            raise ConnectRefused("log.connect_url is not set")
        connector = client.find(log.topic_prefix)
        if connector is None:
            raise ConnectError("no connector has the topic prefix of the mirror", "run: replicator connect")
        return _Source(client, connector, log)

    # The decision.

    def _plan(self, tables: list[TableId], first: Offsets) -> RewindPlan:
        # SQLAlchemy takes a second to import, and hardly any mirror needs it here.
        from replicator.sources.mysql.binlogs import has_event, read_binlogs  # noqa: PLC0415
        from replicator.sources.mysql.connection import connect  # noqa: PLC0415

        lost = [self._lost(table, first) for table in tables]
        source = self._source()
        if (obstacle := _obstacle(source)) is not None:
            return RewindPlan((), None, 0, dict.fromkeys(tables, obstacle))
        known_from = first_known_file(source.log, source.connector.options)
        with connect(self._context.config.source, read_timeout=_READ_TIMEOUT_S) as connection:
            logs = read_binlogs(connection)
            for i, entry in enumerate(lost):
                at = None if entry.reached is None else entry.reached.position
                name = None if at is None or not at.file else logs.named(binlog_number(at.file))
                if at is not None and name is not None and not has_event(connection, name, at):
                    lost[i] = LostTable(entry.table, None, f"MySQL has another binlog at its position {at}")
        return plan_rewind(
            lost,
            logs,
            self._others(set(tables), first),
            max_bytes=self._context.config.heal.max_binlog,
            first_known_file=known_from,
            numbered=source.log.transactions,
        )

    def _lost(self, table: TableId, first: Offsets) -> LostTable:
        context, topic, before = self._context, self._topic(table), self._newest.get(table)
        if before is not None and before.ended_ms is not None:
            interval_ms = context.config.heal.min_interval * 1000
            if now_ms() < before.ended_ms + interval_ms:
                return LostTable(table, None, "its events were sent again not long ago")
        progress = context.ledger.progress(table)
        return lost_table(table, topic, progress, context.log.topic_id(topic), first.get(topic, {}))

    def _others(self, besides: set[TableId], first: Offsets) -> Iterator[HighWater]:
        """Yield the last events of all other tables that the lake has."""
        ledger = self._context.ledger
        for table in {self._tables.table_of(topic) for topic in self._tables.mirrored(first)} - besides:
            marker = ledger.progress(table).resume_marker if ledger.knows(table) else None
            for partitions in () if marker is None else marker.progress.values():
                yield from (p.high_water for p in partitions.values() if p.high_water is not None)

    # The steps.

    def _rewind(self) -> None:
        """Stop the connector, set it back, let the tables skip what their topics have, and let it continue.

        Raises:
            ConnectError, SourceError, CommitConflict: try again.
            ConnectRefused: Kafka Connect cannot set the offset.
        """
        from replicator.sources.mysql.binlogs import previous_gtids, read_binlogs  # noqa: PLC0415
        from replicator.sources.mysql.connection import connect, read_binlog_end  # noqa: PLC0415

        source, file = self._source(), min((r.file for r in self._current()), key=binlog_number)
        partitions = source.client.source_partitions(source.name)
        with connect(self._context.config.source, read_timeout=_READ_TIMEOUT_S) as connection:
            logs = read_binlogs(connection)
            if file not in logs.sizes:
                self._give_up(f"MySQL has deleted {file}")
                return
            if len(partitions) != 1:
                self._give_up(_NO_OFFSET)
                return
            offset: dict[str, object] = {"file": file, "pos": _FILE_START}
            if logs.has_gtids:
                offset["gtids"] = previous_gtids(connection, file) or NO_GTIDS
            try:
                self._stop(source)
                failpoints.reach("after-rewind-stop")
                source.client.set_offset(source.name, partitions[0], offset)
                _check_offset(source, offset)
                failpoints.reach("after-rewind-offset")
                self._skip(read_binlog_end(connection))
            finally:
                self._resume(source)
        _LOG.warning(
            "the connector sends events again",
            connector=source.name,
            file=file,
            bytes=logs.bytes_from(binlog_number(file)),
            tables=[str(table) for table in self._active],
        )

    def _resume(self, source: _Source) -> None:
        source.client.resume(source.name)
        self._must_resume = False

    def _stop(self, source: _Source) -> None:
        """Stop the connector, and wait until it writes nothing more."""
        deadline, self._must_resume = time.monotonic() + _STOP_S, True
        source.client.stop(source.name)
        while not source.client.has_stopped(source.name):
            if self._stopping.is_set() or time.monotonic() > deadline:
                raise ConnectError(f"the connector {source.name} has not stopped")
            time.sleep(0.2)

    def _skip(self, end: BinlogEnd) -> None:
        """Let the tables skip what their topics have. `end` is the end of the binlog since the connector stopped."""
        ends = self._context.log.offsets()[1]
        for rewind in self._current():
            topic = self._topic(rewind.table)
            self._context.writer.skip_events(rewind.table, topic, ends.get(topic, {}))
            failpoints.reach("after-rewind-skip")
        for rewind in self._current():
            self._update(replace(rewind, phase=RewindPhase.SENDING, end_file=end.file, end_pos=end.pos))
        failpoints.reach("after-rewind-record")

    def _await_sent(self) -> None:
        """Let the tables continue if all events were sent again.

        Raises:
            ConnectError: Kafka Connect does not answer.
        """
        source = self._source()
        if self._must_resume:
            self._resume(source)
        if self._is_stuck(source.connector) or not self._has_sent(source):
            return
        first, ends = self._context.log.offsets()
        for rewind in self._current():
            topic = self._topic(rewind.table)
            marker = self._context.ledger.progress(rewind.table).resume_marker
            known = {} if marker is None else marker.progress.get(topic, {})
            if not known or any(at.next_offset < first.get(topic, {}).get(p, 0) for p, at in known.items()):
                self._give_up("the log has lost events again", rewind.table)
                continue
            sent = sum(ends.get(topic, {}).get(p, 0) - at.next_offset for p, at in known.items())
            self._complete(replace(rewind, phase=RewindPhase.DONE, events=sent))

    def _has_sent(self, source: _Source) -> bool:
        """Return whether the connector is past the positions at which it was stopped."""
        raw = source.client.offset(source.name)
        try:
            offset = None if raw is None else ConnectorOffset.from_json(raw)
        except ValueError:
            return False
        ends = [BinlogEnd(r.end_file or "", r.end_pos or 0) for r in self._current()]
        # Files and positions alone: these are of one server, and a set of GTIDs may be too long to be recorded.
        return offset is not None and all(replace(offset, gtids=None).covers(end) for end in ends)

    def _is_stuck(self, connector: Connector) -> bool:
        """Return whether the connector fails; after some time, it must begin again at the end of the binlog."""
        state = connector.state
        if state.summary != "FAILED":
            self._failed_since = None
            return False
        if self._failed_since is None:
            self._failed_since = time.monotonic()
        if time.monotonic() > self._failed_since + _STUCK_S:
            reason = f"the connector could not send lost events again: {'; '.join(state.failures)}"
            if self.lost_binlog is None or not self.lost_binlog.note(reason):
                self._give_up(reason)
        return True

    def _complete(self, rewind: Rewind) -> None:
        self._end(rewind)
        self._tables.resume(rewind.table)
        if rewind.events:
            # Without new events of any table, nothing else would start a batch.
            self._tables.retries.retry_now(rewind.table)
        _LOG.info(
            "lost events were sent again",
            table=str(rewind.table),
            reason=rewind.reason,
            events=rewind.events,
            seconds=round((now_ms() - rewind.requested_ms) / 1000, 1),
        )

    def _give_up(self, reason: str, table: TableId | None = None) -> None:
        """Let one table, or all, be read again. The rewind is over once that was requested."""
        for rewind in self._current():
            if table in (None, rewind.table):
                self._read_again(rewind.table, reason)
                _LOG.warning("lost events cannot be sent again", table=str(rewind.table), reason=reason)
                lost = EventsLost(
                    f"the log lacks events of {rewind.table}, and they cannot be sent again: {reason}",
                    f"read the table again: replicator heal {rewind.table}",
                )
                self._tables.pause(rewind.table, lost)

    def _end(self, rewind: Rewind) -> None:
        self._record(replace(rewind, ended_ms=now_ms()))
        self._active.pop(rewind.table, None)
        self._given_up.discard(rewind.table)

    def _update(self, rewind: Rewind) -> None:
        self._record(rewind)
        self._active[rewind.table] = rewind

    def _record(self, rewind: Rewind) -> None:
        self._newest[rewind.table] = rewind
        self._context.lake.set_namespace_property(
            self._context.config.lake.ops_namespace, REWIND_KEY + str(rewind.table), rewind.to_json()
        )

    def _topic(self, table: TableId) -> str:
        return f"{self._context.log.topic_prefix}.{topic_name(table)}"


def _check_offset(source: _Source, wanted: Mapping[str, object]) -> None:
    """Check that no task that was still stopping has committed its own offset since.

    Raises:
        ConnectError: the connector has another offset.
    """
    found = source.client.offset(source.name) or {}
    if (found.get("file"), found.get("pos")) != (wanted["file"], wanted["pos"]):
        raise ConnectError(f"the connector {source.name} was not set back: it is at {found.get('file')}")


def _obstacle(source: _Source) -> str | None:
    """Return why a connector cannot be set back; None if it can.

    Raises:
        ConnectError: Kafka Connect does not answer, or the connector was stopped, and must not be resumed by this.
    """
    if (state := source.connector.state).state in ("STOPPED", "PAUSED"):
        seen = Observation.of_connector(state)
        raise ConnectError(seen.describe(), seen.next_step())
    if source.connector.options.get(_SIGNALS):
        return "signals in the binlog would take effect again"
    if len(source.client.source_partitions(source.name)) != 1:
        return _NO_OFFSET
    return None
