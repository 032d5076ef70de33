"""Which source table a topic carries.

Debezium calls a topic ``prefix.database.table`` and writes an underscore for each character that Kafka does not
allow there. So the name of a topic does not tell the table: ``shop.a_b`` may be that of ``a_b``, ``a b`` or ``a$b``,
and where a name has a dot it is not even told where the database ends. The tables' definitions tell, and where there
are none the events do, which name their table.
"""

from collections.abc import Callable

from replicator.decode.event_schema import source_table
from replicator.decode.schema_book import SchemaBook
from replicator.errors import DecodeError, SharedTopic
from replicator.model.commit import OffsetRange
from replicator.model.table import TableId
from replicator.source.log import ChangeLog, TooLarge, data_topic

_LOOKED_AT = 20
_LOOK_BYTES = 1 << 30


class TopicTables:
    """The tables of all data topics, as far as they are known by now."""

    def __init__(self, log: ChangeLog, book: SchemaBook, includes: Callable[[str], bool]) -> None:
        """`includes` tells whether `database.table` is mirrored."""
        self._log = log
        self._book = book
        self._includes = includes
        self._found: dict[str, TableId] = {}
        self._told: dict[str, TableId | None] = {}
        self._revision = -1

    def table(self, topic: str) -> TableId:
        """The table whose changes a topic carries. Raises DecodeError for a topic of no table."""
        if self._book.revision != self._revision:
            self._found.clear()
            self._revision = self._book.revision
        if topic not in self._found:
            self._found[topic] = self._table(topic)
        return self._found[topic]

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

    def _table(self, topic: str) -> TableId:
        names = data_topic(topic, self._log.topic_prefix)
        if names is None:
            raise DecodeError(f"{topic} is not the topic of a table")
        if defined := self._defined(topic):
            return defined[0]
        by_name = TableId(*names)
        # Only an underscore may stand for something else, and only a second dot leaves open where the database ends.
        if "_" not in str(by_name) and "." not in by_name.name:
            return by_name
        if topic not in self._told:
            self._told[topic] = self._as_told_by_events(topic)
        return self._told[topic] or by_name

    def _defined(self, topic: str) -> list[TableId]:
        """The tables of that topic's name which are mirrored; where none is, all that are called so."""
        tables = sorted(self._book.tables_called(topic.removeprefix(self._log.topic_prefix + ".")))
        return [table for table in tables if self._includes(str(table))] or tables

    def _as_told_by_events(self, topic: str) -> TableId | None:
        first, ends = self._log.offsets()
        for partition, start in first.get(topic, {}).items():
            end = min(ends[topic][partition], start + _LOOKED_AT)
            if start >= end:
                continue
            records = self._log.fetch([OffsetRange(topic, partition, start, end)], _LOOK_BYTES)
            if isinstance(records, TooLarge) or topic not in records:
                continue
            values = records[topic].column("value").to_pylist()
            for value in values:
                if value is not None and (table := source_table(value)) is not None:
                    return table
        return None
