"""Check an import: the topics have each event once, and Debezium skipped no statement that defines a table.

Kafka Connect and Debezium deliver at least once: a connector that connects again, or whose task is started again,
begins at an earlier event. If events come twice, later ones have other offsets than in another import of these files.

A running mirror compares definitions with the source; an import has none. Of a statement that Debezium cannot parse,
the schema-change topic has the text and no definition.
"""

import json
import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from replicator.errors import BinlogError
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from replicator.sources.archive.format import Event, PartitionKey
from replicator.sources.archive.positions import EventPosition, PositionReader
from replicator.sources.binlog.scan import BinlogFile

_RUN_HEADER: Final = "__debezium.context.runId"
"""Debezium's header with the id of the connector's task, which is another one after each start."""

_Last = tuple[EventPosition, bytes | None]


class EventOrder:
    """Refuses an event that is not after the one before it in its partition, and events of a second start.

    In a partition, positions never decrease, and one position has each row once. There are two exceptions: an UPDATE of
    a key is a delete and a create with one position, which have different keys, and all changes of a compressed
    transaction have one position, at which each statement numbers its rows from zero.

    Args:
        files: the imported files.
        schema_topic: the topic of schema changes, of which one statement may have several.
    """

    def __init__(self, files: Iterable[BinlogFile], schema_topic: str) -> None:
        self._compressed: Collection[str] = {file.name for file in files if file.compressed}
        self._schema_topic = schema_topic
        self._last: dict[PartitionKey, _Last] = {}
        self._run: bytes | None = None
        self._positions = PositionReader()

    def check(self, event: Event) -> None:
        """Check the next event of a partition.

        Raises:
            BinlogError: it is, or may be, an event that was written before.
        """
        self._check_run(event)
        position = self._positions.read(event.value)
        if position is None:
            return
        partition = event.topic, event.partition
        last = self._last.get(partition)
        if last is not None and self._is_repeated(event, position, last):
            raise _repeated(event, f"{position.file}:{position.pos} comes after {last[0].file}:{last[0].pos}")
        self._last[partition] = position, event.key

    def _check_run(self, event: Event) -> None:
        run = next((value for name, value in event.headers if name == _RUN_HEADER), None)
        if run is not None and self._run not in (None, run):
            raise _repeated(event, "the connector was started a second time")
        self._run = run or self._run

    def _is_repeated(self, event: Event, position: EventPosition, last: _Last) -> bool:
        before, key = last
        if position.key != before.key:
            return position.key < before.key
        if position.file in self._compressed or event.topic == self._schema_topic:
            return False
        return position.row < before.row or (position.row == before.row and event.key == key)


def _repeated(event: Event, reason: str) -> BinlogError:
    return BinlogError(
        f"Debezium wrote events twice, at {event.topic}-{event.partition} offset {event.offset}: {reason}",
        "repeat the command: the archive has only events from before that one, and is continued",
    )


_DEFINES_TABLE: Final = re.compile(
    r"\s*+(?:/\*(?:[^*]++|\*(?!/))*+\*/\s*+)*+(?:CREATE|ALTER|DROP|RENAME)\s++(?!TEMPORARY\b)[^(]*?\b(?:TABLES?|INDEX)\b",
    re.IGNORECASE,
)
_SHOWN: Final = 200


class SkippedStatements:
    """Checks the events of an import. `tables` are those that it imports; `schema_topic` has their definitions."""

    def __init__(self, schema_topic: str, tables: Iterable[TableId]) -> None:
        self._schema_topic = schema_topic
        names = "|".join(sorted({re.escape(table.name) for table in tables}))
        self._names = re.compile(rf"(?<![\w$])(?:{names})(?![\w$])", re.IGNORECASE) if names else None

    def check(self, event: RawRecord) -> None:
        """Check one event.

        Raises:
            BinlogError: it is a statement without a definition, which may define an imported table.
        """
        if event.topic != self._schema_topic or event.value is None or self._names is None:
            return
        value: dict[str, Any] = json.loads(event.value)
        value = value.get("payload", value)
        ddl = str(value.get("ddl") or "")
        if value.get("tableChanges") or not _DEFINES_TABLE.match(ddl):
            return
        if (found := self._names.search(ddl)) is not None:
            raise BinlogError(
                f"Debezium cannot parse a statement that may define the table {found[0]}: {ddl[:_SHOWN]}",
                "import the files before that statement, and begin another archive after it",
            )
