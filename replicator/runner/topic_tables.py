"""Which source table a topic carries.

Debezium calls a topic ``prefix.database.table`` and writes an underscore for each character that Kafka does not
allow there. So the name of a topic does not tell the table: ``shop.a_b`` may be that of ``a_b``, ``a b`` or ``a$b``,
and where a name has a dot it is not even told where the database ends. The tables' definitions tell, and where there
are none the events do, which name their table.
"""

from collections.abc import Callable

from replicator.decode.schema_tracker import SchemaTracker
from replicator.errors import DataLossError, DecodeError, SharedTopic
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId
from replicator.sources.change_log import ChangeLog, Offsets, TooLarge, data_topic

_LOOKED_AT = 20
_LOOK_BYTES = 1 << 30


class TopicTables:
    """The tables of all data topics, as far as they are known by now."""

    def __init__(self, log: ChangeLog, schemas: SchemaTracker, includes: Callable[[str], bool]) -> None:
        """`includes` tells whether `database.table` is mirrored."""
        self._log = log
        self._schemas = schemas
        self._includes = includes
        self._found: dict[str, TableId] = {}
        self._told: dict[str, TableId] = {}
        # What was looked at in vain. More may have come behind it, but the log is asked for that once a round only.
        self._silent: dict[str, list[OffsetRange]] = {}
        self._offsets: tuple[Offsets, Offsets] = ({}, {})
        self._may_ask = True
        self._revision = -1

    def table(self, topic: str) -> TableId:
        """The table whose changes a topic carries. Raises DecodeError for a topic of no table."""
        if self._schemas.revision != self._revision:
            self._found.clear()
            self._revision = self._schemas.revision
        if topic in self._found:
            return self._found[topic]
        table, certain = self._table(topic)
        if certain:
            self._found[topic] = table
        return table

    def invalidate(self) -> None:
        """Topics that did not tell their table may have new events by now."""
        self._may_ask = True

    def check_alone(self, topic: str) -> None:
        """Raises SharedTopic where several tables that are mirrored write to the topic."""
        tables = self._defined(topic)
        if len(tables) > 1:
            names = " and ".join(str(table) for table in tables)
            raise SharedTopic(
                f"{names} share the topic {topic}, because Debezium writes an underscore for what a topic's name "
                "cannot have",
                "leave all but one of them out of source.tables, run: replicator connect, and mirror the others by a "
                "connector with another topic prefix",
            )

    def _table(self, topic: str) -> tuple[TableId, bool]:
        """The table, and whether that is certain: a topic without any event may turn out to be another's."""
        names = data_topic(topic, self._log.topic_prefix)
        if names is None:
            raise DecodeError(f"{topic} is not the topic of a table")
        if defined := self._defined(topic):
            return defined[0], True
        by_name = TableId(*names)
        # Only an underscore may stand for something else, and only a second dot leaves open where the database ends.
        if "_" not in str(by_name) and "." not in by_name.name:
            return by_name, True
        if topic not in self._told and (told := self._as_told_by_events(topic)) is not None:
            self._told[topic] = told
        return self._told.get(topic, by_name), topic in self._told

    def _defined(self, topic: str) -> list[TableId]:
        """The tables of that topic's name which are mirrored; where none is, all that are called so."""
        tables = sorted(self._schemas.tables_called(topic.removeprefix(self._log.topic_prefix + ".")))
        return [table for table in tables if self._includes(str(table))] or tables

    def _as_told_by_events(self, topic: str) -> TableId | None:
        first = self._first_events(topic)
        if first == self._silent.get(topic, []) and self._may_ask:
            self._offsets = self._log.offsets()
            self._may_ask = False
            first = self._first_events(topic)
        if first == self._silent.get(topic, []):
            return None
        for events in first:
            try:
                records = self._log.fetch([events], _LOOK_BYTES)
            except DataLossError:
                self._offsets = ({}, {})  # The log begins later by now.
                return None
            if isinstance(records, TooLarge) or topic not in records:
                continue
            values = records[topic].column("value").to_pylist()
            for value in values:
                if value is not None and (table := self._schemas.table_named_in(value)) is not None:
                    return table
        self._silent[topic] = first
        return None

    def _first_events(self, topic: str) -> list[OffsetRange]:
        """Where a few events are, partition by partition; none as far as is known for an empty topic."""
        first, ends = self._offsets
        ranges = [
            OffsetRange(topic, partition, start, min(ends[topic][partition], start + _LOOKED_AT))
            for partition, start in first.get(topic, {}).items()
        ]
        return [r for r in ranges if r.count]
