"""Compare the definitions of the tables in the source with those by which their events are decoded.

A thread reads the definitions, and waits until the connector has read up to where the binlog ended then. Once the
schema-change topic was read after that, the scheduler's thread compares. The log may have got a later statement
meanwhile. So a difference counts only if the next reading shows it too, beside the same version of the table. A version
whose statement the source has not executed is not compared: the source lags, or is not the server of the connector.

Then the connector misunderstood a statement, or skipped it. It must read all definitions again, and the table is read
again after that. If this changes nothing, the table stays paused.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from replicator.batch import MirrorContext
from replicator.config import KafkaLog
from replicator.errors import (
    ConnectError,
    DefinitionUnclear,
    DefinitionWrong,
    ReplicatorError,
)
from replicator.jvm.spark import first_line
from replicator.model.binlog import BinlogEnd
from replicator.model.common import now_ms
from replicator.model.compared import COMPARED_DEFINITIONS_KEY, ComparedDefinitions
from replicator.model.gtid import GtidSet, Transaction
from replicator.model.table import TableId
from replicator.recovery.request import Requests
from replicator.schema.history.comparison import SourceDefinition, differences
from replicator.schema.history.versions import SchemaVersion
from replicator.sources.connector.settings import connect_client, differing_selection
from replicator.sources.mysql.connection import connect, read_binlog_end
from replicator.sources.mysql.definitions import read_definitions
from replicator.sources.mysql.tables import tables_in_source
from replicator.sources.source_positions import source_positions
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.definitions")
_PERIOD_S: Final = 600.0
"""How often definitions are compared if no statement is seen."""
_POLL_S: Final = 1.0
_RETRY_S: Final = 10.0
_PATIENCE_S: Final = 90.0
"""How long a run that ends when it has caught up waits for the first comparison: the connector may have stopped."""
_SHARE: Final = 50
"""The source works at most this part of the time on reading definitions."""
_UNKNOWN_S: Final = 10.0
"""How long the connector may take to read a statement if Kafka Connect cannot be asked."""
_READ_TIMEOUT_S: Final = 60
_RECORD_S: Final = 60.0
_SAME_S: Final = 3600.0
"""A difference that comes again within this time is not repaired again."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The definitions in the source.

    Attributes:
        tables: the tables that the source has, also those whose definitions it cannot read.
        must_know: whether the connector must have sent a definition of each of these tables.
        executed: the transactions that the source had executed; None if it has no GTIDs.
    """

    definitions: Mapping[TableId, SourceDefinition]
    tables: Collection[TableId]
    must_know: bool = False
    executed: GtidSet | None = None

    def lacks(self, version: SchemaVersion) -> bool:
        """Return whether the source had not executed the statement with which a version begins."""
        began = Transaction.parse(version.position.gtid)
        return self.executed is not None and began is not None and began not in self.executed


@dataclass(frozen=True, slots=True)
class _Difference:
    """How the source's definition of a table differs from the version of the log that begins at `at`.

    Attributes:
        found: what differs; empty if the source has no such table.
    """

    found: tuple[str, ...]
    at: int | None

    def __str__(self) -> str:
        return "; ".join(self.found)


class DefinitionChecks:
    """Compares the definitions of one mirror's tables.

    `step`, `request` and `close` are for the scheduler's thread; the rest is for the thread that `start` starts.
    """

    def __init__(
        self, context: MirrorContext, requests: Requests, statements: Callable[[], int] = lambda: 0
    ) -> None:
        """`statements` returns how many were seen in the binlog that may have changed definitions."""
        self._context = context
        self._requests = requests
        self._rebuild = requests.connector
        self._statements = statements
        self._stop = threading.Event()
        self._wanted = threading.Event()
        self._wanted.set()
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        self._is_first = True
        self._deadline = 0.0
        self._problem: str | None = None
        # For the scheduler's thread.
        self._is_seen = False
        self._seen = (0, 0, 0)
        self._equal: dict[TableId, tuple[SourceDefinition, SchemaVersion]] = {}
        self._suspected: dict[TableId, _Difference] = {}
        self._repaired: dict[TableId, tuple[_Difference, float]] = {}
        # Their pauses told already that the versions before the ones that the connector reads again are wrong.
        self._repairing: set[TableId] = set()
        self._compared_ms: int | None = None
        self._behind: str | None = None
        self._recorded: ComparedDefinitions | None = None
        self._recorded_at = -_RECORD_S

    @property
    def is_behind(self) -> bool:
        """Whether definitions that were read are to be compared; not while the source or the connector is awaited."""
        with self._lock:
            if self._reading is not None:
                return True
            return self._is_first and self._problem is None and time.monotonic() < self._deadline

    def start(self) -> None:
        """Start to read definitions."""
        self._deadline = time.monotonic() + _PATIENCE_S
        threading.Thread(target=self._run, name="definitions", daemon=True).start()

    def close(self) -> None:
        """Stop. Does not wait for the thread, which may be in a request."""
        self._stop.set()
        self._wanted.set()

    def request(self) -> None:
        """Compare soon: a statement or a re-read may have another definition."""
        self._wanted.set()

    def give(self, reading: Reading) -> None:
        """Let the scheduler's thread compare definitions that were read, before the connector had read up to there."""
        with self._lock:
            self._reading = reading

    def step(self) -> None:
        """Compare what was read. If a table differs, pause it, and let the connector read the definitions again.

        The schema-change topic must have been read since the last call if `is_behind`.
        """
        # A re-read that begins may use another definition.
        seen = self._context.schemas.revision, self._statements(), self._requests.begun
        if seen != self._seen:
            self._seen = seen
            self.request()
        with self._lock:
            reading = self._reading
        if reading is not None and not self._is_seen:
            # All records from before it was complete are known in the next step.
            self._is_seen = True
        elif reading is not None:
            if self._rebuild.is_busy:
                self.request()
            else:
                self._act(self._compare(reading))
                self._compared_ms = now_ms()
            with self._lock:
                self._reading, self._is_first = None, False
            self._is_seen = False
        self._record()

    def _compare(self, reading: Reading) -> dict[TableId, _Difference]:
        """Return the tables that differ as they did the last time."""
        self._note_behind(reading)
        found = {table: _Difference((), version.at) for table, version in self._gone(reading)}
        for named, definition in reading.definitions.items():
            # A server that ignores letter case has another spelling than its statements.
            spelt = self._context.schemas.spelling_of(named)
            table = named if spelt in reading.definitions else spelt
            if (version := self._version(table)) is None:
                if reading.must_know:
                    found[table] = _Difference(("it has none",), None)
            elif (
                version.declared
                and not reading.lacks(version)
                and self._equal.get(table) != (definition, version)
            ):
                if texts := differences(definition, version):
                    found[table] = _Difference(texts, version.at)
                else:
                    self._note_equal(table, definition, version)
        confirmed = {t: d for t, d in found.items() if d == self._suspected.get(t)}
        self._suspected = found
        if found.keys() - confirmed.keys():
            self.request()
        return confirmed

    def _gone(self, reading: Reading) -> Iterator[tuple[TableId, SchemaVersion]]:
        """Yield the tables of the lake that the source has no more, although no statement of the log tells that."""
        ledger, present = self._context.ledger, {str(table).casefold() for table in reading.tables}
        for table in ledger.tables:
            if (
                str(table).casefold() not in present
                and table not in self._requests.paused
                and ledger.progress(table).mirror is not None
                and self._context.config.includes(str(table))
                and (version := self._version(table)) is not None
                and version.declared
                and not reading.lacks(version)
            ):
                yield table, version

    def _note_behind(self, reading: Reading) -> None:
        """Note whether the log has a statement of a table that the source has not executed."""
        versions = ((table, self._version(table)) for table in self._context.ledger.tables)
        table = next((t for t, version in versions if version is not None and reading.lacks(version)), None)
        reason = None
        if table is not None:
            reason = (
                f"the source has not executed the newest statement of {table} that the connector has read"
            )
            self.request()
        if reason is not None and self._behind is None:
            hint = "source.url must name the server that the connector reads; a replica may lag behind it"
            _LOG.warning("definitions are not compared at the moment", reason=reason, next=hint)
        self._behind = reason

    def _note_equal(self, table: TableId, definition: SourceDefinition, version: SchemaVersion) -> None:
        """Note that a version is the source's. If the connector has just read it again, the one before it was not.

        Then a table that no comparison showed has wrong rows too.
        """
        known, self._equal[table] = self._equal.get(table), (definition, version)
        versions = self._context.schemas.history(table).versions
        is_new = version.recovered and len(versions) > 1 and (known is None or known[1] != version)
        if not is_new or self._compared_ms is None:
            return
        texts = differences(definition, versions[-2])
        if texts and table not in self._repairing and table not in self._requests.paused:
            self._requests.pause(table, _wrong(table, _Difference(texts, version.at)))
        self._repairing.discard(table)

    def _version(self, table: TableId) -> SchemaVersion | None:
        """Return the newest version of a table that the connector has sent; None if it knows no such table."""
        history = self._context.schemas.history(table)
        if not history or history.gone is not None or history.versions[-1].is_given:
            return None
        return history.versions[-1]

    def _act(self, confirmed: Mapping[TableId, _Difference]) -> None:
        now = time.monotonic()
        for table in [table for table, difference in confirmed.items() if not difference.found]:
            reason = (
                f"the source has no table {table} any more: the connector could not read the statement that "
            )
            reason += "dropped or renamed it"
            self._requests.pause(
                table, DefinitionWrong(reason, f"stop the mirror, then run: replicator drop {table}")
            )
        confirmed = {table: difference for table, difference in confirmed.items() if difference.found}
        again = {
            table
            for table, difference in confirmed.items()
            if (known := self._repaired.get(table)) is not None
            and known[0].found == difference.found
            and (now < known[1] + _SAME_S or table in self._requests.paused)
        }
        for table in again if self._rebuild.is_possible else confirmed:
            if table not in self._requests.paused:
                self._requests.pause(table, _unclear(table, confirmed[table], tried=table in again))
        due = confirmed.keys() - again if self._rebuild.is_possible else ()
        if due:
            first = min(due)
            # Before the pauses, which request re-reads: these wait for it.
            self._rebuild.rebuild_history(
                f"its definition of {first} is not the source's: {confirmed[first]}"
            )
        for table in due:
            self._repaired[table] = confirmed[table], now
            self._repairing.add(table)
            self._requests.pause(table, _wrong(table, confirmed[table]))

    def _record(self) -> None:
        """Record for `status` when definitions were compared, or why they cannot be."""
        with self._lock:
            problem = self._problem or self._behind
        known, now = self._recorded, time.monotonic()
        wanted = ComparedDefinitions(self._compared_ms, problem)
        is_news = known is None or (known.problem, known.at_ms is None) != (problem, wanted.at_ms is None)
        if wanted in (known, ComparedDefinitions(None)) or (
            not is_news and now < self._recorded_at + _RECORD_S
        ):
            return
        lake, config = self._context.lake, self._context.config
        lake.set_namespace_property(config.lake.ops_namespace, COMPARED_DEFINITIONS_KEY, wanted.to_json())
        self._recorded, self._recorded_at = wanted, now

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wanted.wait(_PERIOD_S)
            self._wanted.clear()
            try:
                self._read()
                self._note_problem(None)
            except Exception as error:  # noqa: BLE001 - nothing may end the comparisons
                self._note_problem(first_line(error), error)
                self.request()
                self._stop.wait(_RETRY_S)

    def _note_problem(self, reason: str | None, error: Exception | None = None) -> None:
        with self._lock:
            is_news, self._problem = reason is not None and self._problem is None, reason
        if is_news:
            hint = error.hint if isinstance(error, ReplicatorError) else None
            trace = None if isinstance(error, ReplicatorError) else error
            _LOG.warning(
                "definitions are not compared at the moment", reason=reason, next=hint, exc_info=trace
            )

    def _read(self) -> None:
        """Read the definitions, and give them to the scheduler's thread once the connector has read up to there.

        Raises:
            ReplicatorError: the source or Kafka Connect does not answer.
        """
        config, began = self._context.config, time.monotonic()
        with connect(config.source, read_timeout=_READ_TIMEOUT_S) as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            tables = tables_in_source(connection, config)
            definitions, end = read_definitions(connection, set(tables)), read_binlog_end(connection)
        until = time.monotonic() + (time.monotonic() - began) * _SHARE
        if not self._await_connector(end):
            return
        self.give(Reading(definitions, tables, self._must_know(), end.gtids))
        while not self._stop.wait(_POLL_S):
            with self._lock:
                is_compared = self._reading is None
            if is_compared and time.monotonic() >= until:
                return

    def _await_connector(self, end: BinlogEnd) -> bool:
        """Wait until the log has everything from before `end`; return False if the check was stopped meanwhile."""
        positions = source_positions(self._context.config)
        if positions is None:
            return not self._stop.wait(_UNKNOWN_S)
        while (offset := positions.confirmed()) is None or not offset.covers(end):
            if self._stop.wait(_POLL_S):
                return False
        return True

    def _must_know(self) -> bool:
        """Return whether the connector must have sent a definition of each table that the mirror includes.

        Raises:
            ConnectError: Kafka Connect does not answer, or the connector sends no definitions.
        """
        client, log = connect_client(self._context.config), self._context.config.log
        connector = None if client is None or not isinstance(log, KafkaLog) else client.find(log.topic_prefix)
        if connector is None:
            return False
        if connector.options.get("include.schema.changes", "true") == "false":
            raise ConnectError(
                "the connector sends no definitions to compare",
                "set include.schema.changes=true; replicator connect",
            )
        return not differing_selection(self._context.config, connector.options)


def _wrong(table: TableId, difference: _Difference) -> DefinitionWrong:
    return DefinitionWrong(
        f"the connector had another definition of {table} than the source: {difference}. It reads all definitions "
        "again, and then the table is read again",
        f"if that does not begin by itself: replicator heal {table}",
    )


def _unclear(table: TableId, difference: _Difference, *, tried: bool) -> DefinitionUnclear:
    told = ", also after it has read all definitions again" if tried else ""
    step = (
        "run: replicator connect; then "
        if tried
        else "let the connector read them (snapshot.mode=recovery); then "
    )
    return DefinitionUnclear(
        f"the connector has another definition of {table} than the source{told}: {difference}",
        f"{step}run: replicator heal {table}",
    )
