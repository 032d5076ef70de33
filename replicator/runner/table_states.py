"""Which tables a mirror has, and which of them it can work at: the others are paused, or tried again later."""

from collections.abc import Iterable, Mapping
from typing import Final

from replicator.batch import MirrorContext
from replicator.errors import LakeUnavailable, MissingSchema, ReplicatorError, SharedTopic, SourceError
from replicator.jvm.spark import first_line
from replicator.model.table import TableId
from replicator.runner.retries import RETRY_S, Retries
from replicator.runner.topic_tables import TopicTables
from replicator.sources.change_log import Offsets, data_topic
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")


class TableStates:
    """The tables of one mirror.

    Attributes:
        paused: those that cannot go on, and why.
        retries: those that failed and are to be tried again.
    """

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._topics = TopicTables(context.log, context.schemas, context.config.includes)
        self._included: dict[TableId, bool] = {}
        self.paused: dict[TableId, str] = {}
        self.retries = Retries()
        self._owners: dict[str, TableId] = {}
        self._asked_source: set[TableId] = set()
        self._noted: set[TableId] = set()

    def of(self, topic: str) -> TableId:
        """The source table whose changes a data topic carries."""
        return self._topics.table(topic)

    def wanted(self, offsets: Offsets) -> dict[str, Mapping[int, int]]:
        """The topics of tables that are mirrored."""
        return {t: ps for t, ps in offsets.items() if self._includes(self.of(t))}

    def _includes(self, table: TableId) -> bool:
        if table not in self._included:
            self._included[table] = self._context.config.includes(str(table))
        return self._included[table]

    def invalidate(self) -> None:
        """Ask the log again, once that matters, of topics that did not tell their table so far."""
        self._topics.invalidate()

    def is_idle(self, table: TableId) -> bool:
        """Whether nothing is to be done with a table for now."""
        return table in self.paused or self.retries.must_wait(table)

    def read_markers(self, tables: Iterable[TableId]) -> None:
        """Read what the lake has of all tables. One that cannot be read fails alone, where the lake answers.

        Raises:
            LakeUnavailable: none can be read.
        """
        failures = self._context.ledger.load(tables)
        if failures and self._context.ledger.is_empty:
            raise next(iter(failures.values()))
        for table, error in failures.items():
            if not self.retries.must_wait(table):
                self.failed(table, error)

    def readable(self, table: TableId) -> bool:
        """Whether the lake tells how far a table is; tries it again where it did not."""
        if not self._context.ledger.knows(table):
            self.read_markers({table})
        return self._context.ledger.knows(table)

    def pause(self, table: TableId, reason: str, hint: str | None) -> None:
        """Leave a table alone from now on, and record it for `status`."""
        # Where the lake is away, the table is not paused either: `status` would not know.
        self._context.ledger.pause(table, reason, hint)
        self.paused[table] = reason
        self._forget_failure(table)
        _LOG.error("table paused", table=str(table), reason=reason, next=hint)

    def failed(self, table: TableId, error: Exception) -> None:
        """Note that a table's work failed: it is tried again some times, and then paused."""
        reason = first_line(error)
        delay = self.retries.failed(table)
        if delay is not None:
            _LOG.warning("table failed, trying it again", table=str(table), reason=reason, in_seconds=delay)
            self._note_failure(table, reason, error, delay)
            return
        if isinstance(error, MissingSchema) and self.defined_by_source(table):
            self.retries.at_once(table)
            return
        hint = f"it failed {len(RETRY_S) + 1} times in a row; mend the cause, then start the mirror again"
        if isinstance(error, ReplicatorError) and error.hint and not isinstance(error, LakeUnavailable):
            hint = error.hint
        self.pause(table, reason, hint)

    def succeeded(self, table: TableId) -> None:
        """Forget a table's failures."""
        self.retries.succeeded(table)
        self._forget_failure(table)

    def _note_failure(self, table: TableId, reason: str, error: Exception, delay: float) -> None:
        hint = error.hint if isinstance(error, ReplicatorError) else None
        self._noted.add(table)
        try:
            self._context.ledger.note_failure(table, reason, hint, delay)
        except LakeUnavailable:
            # It is for people only; the failure is in the log too.
            _LOG.info("the failure could not be noted for status", table=str(table))

    def _forget_failure(self, table: TableId) -> None:
        """Remove the note for `status`, if there is one: no other table costs a call."""
        if table in self._noted:
            try:
                self._context.ledger.forget_failure(table)
            except LakeUnavailable:
                return
            self._noted.discard(table)

    def defined_by_source(self, table: TableId) -> bool:
        """Whether the source says, now for the first time, how a table is defined of which the log says nothing."""
        source = self._context.config.source
        if source.url is None or table in self._asked_source or not self._context.schemas.takes_definitions:
            return False
        self._asked_source.add(table)
        # SQLAlchemy takes a second to import, and hardly any mirror needs it.
        from replicator.sources.mysql.definitions import source_definition  # noqa: PLC0415

        try:
            schema = source_definition(source, table)
        except SourceError as error:
            _LOG.warning(
                "the source could not be asked for a definition", table=str(table), reason=error.message
            )
            return False
        if schema is None:
            return False
        _LOG.warning("types come from the source as it is now", table=str(table), columns=len(schema.columns))
        self._context.schemas.define(table, schema)
        return True

    def has_place(self, table: TableId) -> bool:
        """Whether the lake's table of this name is for `table`. Where it is another's, `table` is paused."""
        name = table.name.casefold() if self._context.config.lake.folds_case else table.name
        if name not in self._owners:
            self._owners[name] = self._owner(table)
        owner = self._owners[name]
        if owner != table:
            self.pause(
                table,
                f"{table} and {owner} would both be {table.name} in the lake, which mirrors {owner}",
                f"leave {table} out of source.tables, and mirror it by another mirror with a namespace of its own",
            )
        return owner == table

    def has_topic(self, table: TableId, topic: str) -> bool:
        """Whether the topic carries this table alone. Where it does not, `table` is paused."""
        try:
            self._topics.check_alone(topic)
        except SharedTopic as error:
            self.pause(table, error.message, error.hint)
            return False
        return True

    def _owner(self, table: TableId) -> TableId:
        """The table whose events the lake's table of the same name has; `table` where it has none of others."""
        prefix = self._context.log.topic_prefix
        topics = self._context.ledger.progress(table).topics
        found = {self.of(topic) for topic in topics if data_topic(topic, prefix)}
        known = {table} | self._context.schemas.earlier_names(table)
        return table if not found or found & known else min(found)
