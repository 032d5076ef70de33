"""Which tables a mirror has, and which of them it can work at: the others are paused, or tried again later."""

from collections.abc import Iterable, Mapping
from typing import Final

from replicator.batch import Engine
from replicator.errors import LakeUnavailable, MissingSchema, ReplicatorError, SharedTopic, SourceError
from replicator.mirror.retries import RETRY_S, Retries
from replicator.model.table import TableId
from replicator.observe import get_logger
from replicator.source.log import Offsets, data_topic
from replicator.spark import first_line
from replicator.topics import TopicTables

_LOG: Final = get_logger("replicator.mirror")


class Tables:
    """The tables of one mirror.

    Attributes:
        paused: those that cannot go on, and why.
        retries: those that failed and are to be tried again.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._topics = TopicTables(engine.log, engine.book, engine.config.includes)
        self._included: dict[TableId, bool] = {}
        self.paused: dict[TableId, str] = {}
        self.retries = Retries()
        self._owners: dict[str, TableId] = {}
        self._asked_source: set[TableId] = set()

    def of(self, topic: str) -> TableId:
        """The source table whose changes a data topic carries."""
        return self._topics.table(topic)

    def wanted(self, offsets: Offsets) -> dict[str, Mapping[int, int]]:
        """The topics of tables that are mirrored."""
        return {t: ps for t, ps in offsets.items() if self._includes(self.of(t))}

    def _includes(self, table: TableId) -> bool:
        if table not in self._included:
            self._included[table] = self._engine.config.includes(str(table))
        return self._included[table]

    def look_again(self) -> None:
        """Ask the log again, once that matters, of topics that did not tell their table so far."""
        self._topics.look_again()

    def rests(self, table: TableId) -> bool:
        """Whether nothing is to be done with a table for now."""
        return table in self.paused or self.retries.must_wait(table)

    def read_markers(self, tables: Iterable[TableId]) -> None:
        """Read what the lake has of all tables. One that cannot be read fails alone, where the lake answers.

        Raises:
            LakeUnavailable: none can be read.
        """
        failures = self._engine.ledger.load(tables)
        if failures and self._engine.ledger.knows_nothing:
            raise next(iter(failures.values()))
        for table, error in failures.items():
            if not self.retries.must_wait(table):
                self.failed(table, error)

    def readable(self, table: TableId) -> bool:
        """Whether the lake tells how far a table is; tries it again where it did not."""
        if not self._engine.ledger.knows(table):
            self.read_markers({table})
        return self._engine.ledger.knows(table)

    def pause(self, table: TableId, reason: str, hint: str | None) -> None:
        """Leave a table alone from now on, and record it for `status`."""
        # Where the lake is away, the table is not paused either: `status` would not know.
        self._engine.ledger.pause(table, reason, hint)
        self.paused[table] = reason
        _LOG.error("table paused", table=str(table), reason=reason, next=hint)

    def failed(self, table: TableId, error: Exception) -> None:
        """Note that a table's work failed: it is tried again some times, and then paused."""
        reason = first_line(error)
        delay = self.retries.failed(table)
        if delay is not None:
            _LOG.warning("table failed, trying it again", table=str(table), reason=reason, in_seconds=delay)
            return
        if isinstance(error, MissingSchema) and self.defined_by_source(table):
            self.retries.at_once(table)
            return
        hint = f"it failed {len(RETRY_S) + 1} times in a row; mend the cause, then start the mirror again"
        if isinstance(error, ReplicatorError) and error.hint and not isinstance(error, LakeUnavailable):
            hint = error.hint
        self.pause(table, reason, hint)

    def defined_by_source(self, table: TableId) -> bool:
        """Whether the source says, now for the first time, how a table is defined of which the log says nothing."""
        source = self._engine.config.source
        if source.url is None or table in self._asked_source or not self._engine.book.takes_definitions:
            return False
        self._asked_source.add(table)
        # SQLAlchemy takes a second to import, and hardly any mirror needs it.
        from replicator.definitions import source_definition  # noqa: PLC0415

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
        self._engine.book.define(table, schema)
        return True

    def has_place(self, table: TableId) -> bool:
        """Whether the lake's table of this name is for `table`. Where it is another's, `table` is paused."""
        name = table.name.casefold() if self._engine.config.lake.folds_case else table.name
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
        prefix = self._engine.log.topic_prefix
        topics = self._engine.ledger.progress(table).topics
        found = {self.of(topic) for topic in topics if data_topic(topic, prefix)}
        known = {table} | self._engine.book.earlier_names(table)
        return table if not found or found & known else min(found)
