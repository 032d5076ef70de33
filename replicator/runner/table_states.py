"""Track which tables a mirror has, and which of them are paused or wait for a retry."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from replicator.batch import MirrorContext, known_names
from replicator.batch.state.partition_counts import number_of
from replicator.config import SourceConfig
from replicator.errors import (
    CommitConflict,
    LakeUnavailable,
    LateDefinition,
    MissingSchema,
    NameTaken,
    PartitionsAdded,
    ReplicatorError,
    SharedTopic,
    SourceError,
    SourceUnavailable,
    UnknownPast,
)
from replicator.jvm.spark import first_line, is_explained
from replicator.model.common import matches
from replicator.model.table import TableId, TableSchema
from replicator.recovery.request import OnPause
from replicator.recovery.retries import Retries
from replicator.runner.log_check import compacted, lost_events, partitions_added
from replicator.runner.table_policy import Verdict, verdict
from replicator.runner.topic_tables import TopicTables
from replicator.schema.history.versions import SchemaVersion
from replicator.sources.change_log import Offsets, data_topic
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")

ReadDefinition = Callable[[SourceConfig, TableId], TableSchema | None]
"""Reads the current definition of a table from the source; None if the source has no such table."""


def _read_definition(source: SourceConfig, table: TableId) -> TableSchema | None:
    # SQLAlchemy takes a second to import, and most mirrors do not need it.
    from replicator.sources.mysql.definitions import source_definition  # noqa: PLC0415

    return source_definition(source, table)


_LATE_S: Final = 300.0
"""How long a table waits for a definition that is late, before it pauses."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A table whose definition is late: since when, and the versions that are known."""

    since: float
    known: tuple[SchemaVersion, ...]


class TableStates:
    """The tables of one mirror.

    Attributes:
        paused: the reason, by paused table.
        retries: the failed tables that will be retried.
    """

    def __init__(
        self,
        context: MirrorContext,
        retries: Retries | None = None,
        read_definition: ReadDefinition = _read_definition,
        *,
        only: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `only`, the mirror has only the tables that one of these patterns matches, under any of their names."""
        self._context = context
        self._only = tuple(only)
        self._topics = TopicTables(context.log, context.schemas, context.config.includes)
        self._included: dict[TableId, bool] = {}
        self.paused: dict[TableId, str] = {}
        self.retries = Retries() if retries is None else retries
        self._listeners: list[OnPause] = []
        self._read_definition = read_definition
        self._owners: dict[str, TableId] = {}
        self._asked_source: set[TableId] = set()
        self._recorded_failures: set[TableId] = set()
        self._any_resumed = False
        self._known_policies: set[str] = set()
        self._kept: dict[TableId, UnknownPast] = {}
        self._now = now
        self._late: dict[TableId, _Awaited] = {}

    def on_pause(self, listener: OnPause) -> None:
        """Call `listener` after each pause."""
        self._listeners.append(listener)

    def table_of(self, topic: str) -> TableId:
        """Return the source table of a data topic."""
        return self._topics.table(topic)

    def mirrored(self, offsets: Offsets) -> dict[str, Mapping[int, int]]:
        """Return the topics of mirrored tables, with their offsets."""
        return {t: ps for t, ps in offsets.items() if self.includes(self.table_of(t))}

    def includes(self, table: TableId) -> bool:
        """Return whether the table is one of the mirror's that were chosen."""
        if table not in self._included:
            self._included[table] = self._context.config.includes(str(table))
        return self._included[table] and (not self._only or self._is_chosen(table))

    def _is_chosen(self, table: TableId) -> bool:
        # Not remembered: later schema changes tell of further names.
        return any(matches(name, self._only) for name in known_names(self._context.schemas, table))

    def names(self, topic: str) -> tuple[str, ...]:
        """Return every name that the table of a topic has or had, as `database.table`."""
        return known_names(self._context.schemas, self.table_of(topic))

    def invalidate(self) -> None:
        """Forget that topics had no event that names their table; the log is asked again when it matters."""
        self._topics.invalidate()

    def is_idle(self, table: TableId) -> bool:
        """Whether a table must not be processed now: it is paused, or its retry is not due."""
        return table in self.paused or self.retries.must_wait(table)

    def read_markers(self, tables: Collection[TableId]) -> None:
        """Read the markers of `tables` from the lake. If some of them can be read, only the others fail.

        A table whose lake tables are not the mirror's, or were rolled back, is paused, as by `pause`.

        Raises:
            LakeUnavailable: no table can be read.
        """
        failures = self._context.ledger.load(tables)
        if failures and self._context.ledger.is_empty:
            raise next(iter(failures.values()))
        for table, error in failures.items():
            if not self.retries.must_wait(table):
                self.failed(table, error)
        for table in tables:
            self._refuse_problem(table)

    def _refuse_problem(self, table: TableId) -> None:
        """Pause a table if one of its lake tables is not the mirror's, or was rolled back."""
        ledger = self._context.ledger
        problem = ledger.progress(table).problem if ledger.knows(table) else None
        if problem is not None and table not in self.paused:
            self.pause(table, problem)

    def read_unknown_markers(self, tables: Iterable[TableId]) -> None:
        """Read the markers of `tables` that are not known, except those of tables that are paused or wait for a retry.

        Raises:
            LakeUnavailable: no table can be read.
        """
        knows = self._context.ledger.knows
        if unknown := {t for t in tables if not knows(t) and not self.is_idle(t)}:
            self.read_markers(unknown)

    def refuse_compacted(self, topics: Mapping[str, TableId]) -> None:
        """Pause the tables whose topics are compacted. Each topic is looked up once.

        Raises:
            LogUnavailable, LakeUnavailable: the log, or the lake, does not answer.
        """
        unknown = topics.keys() - self._known_policies
        for topic in sorted(self._context.log.compacted(unknown)):
            self.pause(topics[topic], compacted(topic, topics[topic]))
        self._known_policies |= unknown

    def note_partitions(self, topics: Collection[str], ends: Offsets) -> None:
        """Note how many partitions `topics` have now, also those of paused tables: it matters since when."""
        log, counts = self._context.log, self._context.partition_counts
        for topic in ends.keys() & topics:
            if (first := log.first_partitions(topic)) is not None:
                counts.note(topic, first)
            if log.lists_partitions:
                counts.note(topic, number_of(ends[topic]))

    def check_topic(
        self, topic: str, table: TableId, first: Mapping[int, int], ends: Mapping[int, int]
    ) -> None:
        """Compare a topic, which begins at `first` and ends at `ends`, with what the lake has of it.

        A table whose topic was recreated continues with the new topic. A table whose topic lacks events, or has more
        partitions than before, is paused.

        Raises:
            LakeUnavailable: the lake does not answer.
        """
        ledger, log = self._context.ledger, self._context.log
        if log.grows and ledger.is_another_topic(table, topic, log.topic_id(topic)):
            _LOG.warning("the topic was deleted and recreated", topic=topic, table=str(table))
            counts = self._context.partition_counts
            counts.forget(topic)
            self.note_partitions({topic}, {topic: ends})
            self._context.writer.reset_topic(table, topic, log.topic_id(topic), counts.first(topic))
        marker = ledger.progress(table).resume_marker
        if marker is not None:
            lost = lost_events(topic, marker, first, ends, log.topic_id(topic), log_grows=log.grows)
            if lost is not None:
                self.pause(table, lost)
                return
        self.refuse_new_partitions(topic, table, ends)

    def refuse_new_partitions(self, topic: str, table: TableId, ends: Mapping[int, int]) -> None:
        """Pause a table whose topic, which ends at `ends`, has more partitions than before.

        Raises:
            LakeUnavailable: the pause cannot be recorded.
        """
        if (error := self.new_partitions(topic, table, ends)) is not None:
            self.pause(table, error)

    def new_partitions(self, topic: str, table: TableId, ends: Mapping[int, int]) -> PartitionsAdded | None:
        """Return the error of `refuse_new_partitions`; None if the topic has as many partitions as before."""
        self.note_partitions({topic}, {topic: ends})
        progress = self._context.ledger.progress(table)
        known = progress.known_partitions(topic)
        if known is None:
            known = self._context.log.first_partitions(topic)
        if known is None and topic in progress.topics:
            # Markers of older versions of the engine lack the number until the next commit.
            known = self._context.partition_counts.first(topic)
        return partitions_added(topic, table, known, ends)

    def is_readable(self, table: TableId) -> bool:
        """Whether the table's markers are known and it may be written; reads them if they could not be read before."""
        if not self._context.ledger.knows(table):
            self.read_markers({table})
        self._refuse_problem(table)
        return self._context.ledger.knows(table) and table not in self.paused

    def pause(self, table: TableId, cause: ReplicatorError) -> None:
        """Stop processing a table, and record that for `status`.

        Raises:
            LakeUnavailable: it cannot be recorded. Then the table is not paused, because `status` would not show it.
        """
        self._pause(table, cause, cause.message, cause.hint, stays=cause.stays_paused)

    def keep_lasting_pauses(self) -> None:
        """Pause the tables again whose pause stays at a restart, because its cause could not be noticed again.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        for table, (reason, hint) in self._context.ledger.lasting_pauses().items():
            if table not in self.paused:
                self.paused[table] = reason
                self._kept[table] = UnknownPast(reason, hint)

    def announce_kept_pauses(self) -> None:
        """Tell the listeners of the kept pauses, once the log is known to be complete: these tables are read again."""
        kept, self._kept = self._kept, {}
        for table, cause in kept.items():
            _LOG.error("table paused", table=str(table), reason=cause.message, next=cause.hint)
            self._tell_pause(table, cause)

    def _pause(
        self, table: TableId, cause: Exception, reason: str, hint: str | None, *, stays: bool = False
    ) -> None:
        hint = _named(hint, table)
        self._context.ledger.pause(table, reason, hint, stays=stays)
        self._kept.pop(table, None)
        if not isinstance(cause, LateDefinition):
            self._late.pop(table, None)
        self.paused[table] = reason
        self.forget_failures(table)
        _LOG.error("table paused", table=str(table), reason=reason, next=hint)
        self._tell_pause(table, cause)

    def _tell_pause(self, table: TableId, cause: Exception) -> None:
        for listener in self._listeners:
            listener(table, cause)

    def resume(self, table: TableId) -> None:
        """Process a table again that was paused, or that got no events because it was read from the source.

        Raises:
            LakeUnavailable: it cannot be recorded; the table stays paused.
        """
        if table in self.paused:
            self._context.ledger.resume(table)
            del self.paused[table]
            _LOG.info("table resumed", table=str(table))
        self._any_resumed = True

    def take_resumed(self) -> bool:
        """Return whether a table can continue since the last call: its events came when it could not take them."""
        resumed, self._any_resumed = self._any_resumed, False
        return resumed

    def failed(self, table: TableId, error: Exception) -> None:
        """Count a table's failure: it is retried some times, and then paused. What ends by itself never pauses it.

        Raises:
            LakeUnavailable: the pause cannot be recorded.
        """
        reason = first_line(error)
        if isinstance(error, LateDefinition) and self._waits_too_long(table):
            self.pause(table, error)
            return
        # Another writer, such as a compaction, and an outage of the source end by themselves.
        gives_up = not isinstance(error, (CommitConflict, LateDefinition, SourceUnavailable))
        delay = self.retries.failed(table, gives_up=gives_up)
        if delay is not None:
            if not is_explained(error):
                _LOG.error("unexpected error of a table", table=str(table), exc_info=error)
            _LOG.warning("table failed, retrying", table=str(table), reason=reason, in_seconds=delay)
            self._record_failure(table, reason, error, delay)
            return
        if isinstance(error, MissingSchema) and self.defined_by_source(table):
            self.retries.retry_now(table)
            return
        hint = f"it failed {len(self.retries.delays) + 1} times in a row; fix the cause, then start the mirror again"
        if isinstance(error, ReplicatorError) and error.hint and not isinstance(error, LakeUnavailable):
            hint = error.hint
        self._pause(table, error, reason, hint)

    def probe_lake(self, failed: Collection[TableId] = ()) -> bool:
        """Query the catalog, and read and write beside a table that has not failed, to tell a failure from an outage.

        Return False if there is no other table.

        Raises:
            LakeUnavailable: the catalog, the storage or Java does not answer.
        """
        self._context.lake.namespace_properties(self._context.config.lake.ops_namespace)
        return self._context.ledger.probe(failed)

    @contextmanager
    def alone(self, table: TableId) -> Iterator[None]:
        """Let an error of the block be that of `table`, unless it concerns all tables: pause it, or try it again later.

        Raises:
            LakeUnavailable, LogError, FencedError, ConfigError: it concerns all tables.
        """
        try:
            yield
        except LakeUnavailable:
            raise
        except Exception as error:
            match verdict(error, log_grows=self._context.log.grows):
                case Verdict.RAISE:
                    raise
                case Verdict.PAUSE if isinstance(error, ReplicatorError):
                    self.pause(table, error)
                case _:
                    self.failed(table, error)

    def _waits_too_long(self, table: TableId) -> bool:
        known = self._context.schemas.history(table).versions
        return self._now() >= self._late.setdefault(table, _Awaited(self._now(), known)).since + _LATE_S

    def notice_definitions(self) -> None:
        """Let the tables continue whose late definitions have arrived, also those that were paused.

        Raises:
            LakeUnavailable: it cannot be recorded.
        """
        for table, awaited in list(self._late.items()):
            if self._context.schemas.history(table).versions == awaited.known:
                continue
            if table in self.paused:
                self.resume(table)
            else:
                self.retries.retry_now(table)
            del self._late[table]

    def forget_failures(self, table: TableId) -> None:
        """Forget a table's failures."""
        if table not in self.paused:
            self._late.pop(table, None)
        self.retries.forget(table)
        self._forget_recorded_failure(table)

    def _record_failure(self, table: TableId, reason: str, error: Exception, delay: float) -> None:
        hint = _named(error.hint, table) if isinstance(error, ReplicatorError) else None
        self._recorded_failures.add(table)
        try:
            self._context.ledger.note_failure(table, reason, hint, delay)
        except LakeUnavailable:
            # The record is only shown to the operator, and the failure is logged too.
            _LOG.info("the failure could not be recorded for status", table=str(table))

    def _forget_recorded_failure(self, table: TableId) -> None:
        """Remove the record for `status`, if there is one: other tables must not cost a call."""
        if table in self._recorded_failures:
            try:
                self._context.ledger.forget_failure(table)
            except LakeUnavailable:
                return
            self._recorded_failures.discard(table)

    def defined_by_source(self, table: TableId) -> bool:
        """Read the definition of a table that the log does not define from the source, once per table.

        Returns whether there is a new definition.
        """
        source = self._context.config.source
        if (
            source.url is None
            or table in self._asked_source
            or not self._context.schemas.format.takes_definitions
        ):
            return False
        self._asked_source.add(table)
        try:
            schema = self._read_definition(source, table)
        except SourceError as error:
            _LOG.warning(
                "the definition could not be read from the source", table=str(table), reason=error.message
            )
            return False
        if schema is None:
            return False
        _LOG.warning("using the source's current definition", table=str(table), columns=len(schema.columns))
        self._context.schemas.define(table, schema)
        return True

    def owns_lake_name(self, table: TableId) -> bool:
        """Whether the lake's table of this name belongs to `table`; if it belongs to another one, pauses `table`."""
        name = table.name.casefold() if self._context.config.lake.folds_case else table.name
        if name not in self._owners:
            self._owners[name] = self._owner(table)
        owner = self._owners[name]
        if owner != table:
            self.pause(
                table,
                NameTaken(
                    f"{table} and {owner} would both be {table.name} in the lake, which mirrors {owner}",
                    f"exclude {table} from source.tables, and mirror it with another mirror and a namespace of its "
                    "own",
                ),
            )
        return owner == table

    def owns_topic(self, table: TableId, topic: str) -> bool:
        """Whether the topic carries this table alone; if it does not, pauses `table`."""
        try:
            self._topics.check_alone(topic)
        except SharedTopic as error:
            self.pause(table, error)
            return False
        return True

    def _owner(self, table: TableId) -> TableId:
        """Return the source table whose events the lake's table has: `table`, unless it has only those of others."""
        prefix = self._context.log.topic_prefix
        topics = self._context.ledger.progress(table).topics
        found = {self.table_of(topic) for topic in topics if data_topic(topic, prefix)}
        known = {table} | self._context.schemas.earlier_names(table)
        return table if not found or found & known else min(found)


def _named(hint: str | None, table: TableId) -> str | None:
    """Return a next step whose commands name the table, so that they can be copied."""
    return None if hint is None else hint.replace("DATABASE.TABLE", str(table))
