"""Find the source table of a topic, and the tables that have none.

Debezium names a topic ``prefix.database.table``, and replaces each character that Kafka does not allow with an
underscore. So the name is ambiguous: ``shop.a_b`` may belong to ``a_b``, ``a b`` or ``a$b``, and if a name has a dot,
even the end of the database's name is unknown. The tables' definitions resolve this; without a definition, the events
do, because they name their table.
"""

from collections.abc import Callable, Mapping
from typing import Final

from replicator.batch import MirrorContext
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import DataLossError, DecodeError, SharedTopic
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId, topic_name
from replicator.recovery.gaps import mirrors
from replicator.sources.change_log import ChangeLog, Offsets, TooLarge, data_topic

_SAMPLE_EVENTS: Final = 20
"""How many events of each partition are read to find the name of their table."""
_SAMPLE_BYTES: Final = 1 << 30
"""Higher than the size of any sample."""


class TopicTables:
    """The source tables of all data topics, as far as they are known now."""

    def __init__(self, log: ChangeLog, schemas: SchemaTracker, includes: Callable[[str], bool]) -> None:
        """`includes` returns whether `database.table` is mirrored."""
        self._log = log
        self._schemas = schemas
        self._includes = includes
        self._certain: dict[str, TableId] = {}
        self._named_by_events: dict[str, TableId] = {}
        # Samples that name no table. There may be later events, but the log is asked for them only once per batch.
        self._useless_samples: dict[str, list[OffsetRange]] = {}
        self._offsets: tuple[Offsets, Offsets] = ({}, {})
        self._may_ask = True
        self._revision = -1

    def table(self, topic: str) -> TableId:
        """Return the source table of a topic.

        Raises:
            DecodeError: it is not a data topic.
        """
        if self._schemas.revision != self._revision:
            self._certain.clear()
            self._revision = self._schemas.revision
        if topic in self._certain:
            return self._certain[topic]
        table, certain = self._table(topic)
        if certain:
            self._certain[topic] = table
        return table

    def invalidate(self) -> None:
        """Note that topics without an event that names their table may have new events now."""
        self._may_ask = True

    def check_alone(self, topic: str) -> None:
        """Verify that only one mirrored table writes to the topic.

        Raises:
            SharedTopic: several do.
        """
        tables = self._defined(topic)
        if len(tables) > 1:
            names = " and ".join(str(table) for table in tables)
            raise SharedTopic(
                f"{names} share the topic {topic}, because Debezium replaces characters that a topic's name cannot "
                "have with an underscore",
                "exclude all but one of them from source.tables, run: replicator connect, and mirror the others with "
                "a connector that has another topic prefix",
            )

    def _table(self, topic: str) -> tuple[TableId, bool]:
        """Return the table, and whether it is certain: a later event may show that the topic belongs to another one."""
        names = data_topic(topic, self._log.topic_prefix)
        if names is None:
            raise DecodeError(f"{topic} is not the topic of a table")
        if defined := self._defined(topic):
            return defined[0], True
        by_name = TableId(*names)
        # Only an underscore may replace another character; only a second dot makes the end of the database ambiguous.
        if "_" not in str(by_name) and "." not in by_name.name:
            return by_name, True
        if topic not in self._named_by_events and (named := self._table_in_events(topic)) is not None:
            self._named_by_events[topic] = named
        return self._named_by_events.get(topic, by_name), topic in self._named_by_events

    def _defined(self, topic: str) -> list[TableId]:
        """Return the mirrored tables that are defined for that topic; if there are none, all defined ones."""
        tables = sorted(self._schemas.tables_called(topic.removeprefix(self._log.topic_prefix + ".")))
        return [table for table in tables if self._includes(str(table))] or tables

    def _table_in_events(self, topic: str) -> TableId | None:
        """Return the table that the topic's first events name; None if none of them does."""
        sample = self._first_events(topic)
        if sample == self._useless_samples.get(topic, []) and self._may_ask:
            self._offsets = self._log.offsets()
            self._may_ask = False
            sample = self._first_events(topic)
        if sample == self._useless_samples.get(topic, []):
            return None
        for events in sample:
            try:
                records = self._log.fetch([events], _SAMPLE_BYTES)
            except DataLossError:
                self._offsets = ({}, {})  # The log begins at a later offset now.
                return None
            if isinstance(records, TooLarge) or topic not in records:
                continue
            values = records[topic].column("value").to_pylist()
            for value in values:
                if value is not None and (table := self._schemas.format.table_named_in(value)) is not None:
                    return table
        self._useless_samples[topic] = sample
        return None

    def _first_events(self, topic: str) -> list[OffsetRange]:
        """Return the ranges of the first events of each partition; empty if no event is known."""
        first, ends = self._offsets
        ranges = [
            OffsetRange(topic, partition, start, min(ends[topic][partition], start + _SAMPLE_EVENTS))
            for partition, start in first.get(topic, {}).items()
        ]
        return [r for r in ranges if r.count]


class SilentTables:
    """The tables of the lake that have no topic: they were read from the source, and had no event since.

    They follow statements like all others. Without a topic, nothing else would name them.
    """

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._are_loaded = False

    def topics(self, ends: Offsets) -> dict[str, Mapping[int, int]]:
        """Return the topics that the silent tables will get, without partitions; `ends` are those that exist.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        context = self._context
        if not context.log.grows or not context.config.can_read_source:
            return {}
        if not self._are_loaded:
            known = {table.name for table in context.ledger.tables if context.ledger.progress(table).topics}
            context.ledger.load([t for t in mirrors(context, known) if context.config.includes(str(t))])
            self._are_loaded = True
        found: dict[str, Mapping[int, int]] = {}
        for table in context.ledger.tables:
            topic = f"{context.log.topic_prefix}.{topic_name(table)}"
            if topic not in ends and context.ledger.progress(table).topics:
                found[topic] = {}
        return found
