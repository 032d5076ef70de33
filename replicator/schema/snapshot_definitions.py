"""The definitions that a connector's initial snapshots read. Pure.

A snapshot sends the definitions of all tables, and then the rows. Of an empty table, only the definition shows that it
was read. Debezium marks the last record of a snapshot, so if that is a definition, no table has rows: the connector
was not to read them, or all tables are empty.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from replicator.model.position import SourcePosition
from replicator.model.table import TableId
from replicator.schema.history import TableDefinition


@dataclass(frozen=True, slots=True)
class SnapshotDefinition:
    """The definition of a table in a snapshot.

    Attributes:
        position: the position of the snapshot, which its rows have too.
        ts_ms: when it was read, milliseconds since the epoch, by the clock of Kafka Connect.
        is_repeated: whether the table was defined before, so that it may have rows from before the snapshot.
        has_no_rows: whether the snapshot ended without any row of any table.
    """

    position: SourcePosition
    ts_ms: int
    is_repeated: bool
    has_no_rows: bool = False


class SnapshotDefinitions:
    """Collects the definitions of the schema-change topic, in its order.

    Attributes:
        newest: the newest definition of each table that an initial snapshot read.
    """

    def __init__(self) -> None:
        self.newest: dict[TableId, SnapshotDefinition] = {}
        self._defined: set[TableId] = set()
        self._current: set[TableId] = set()

    def add(self, definitions: Iterable[TableDefinition]) -> None:
        """Add the definitions of one record; those of ad-hoc snapshots do not count, and redelivered ones neither."""
        for definition in definitions:
            if definition.schema is None:
                continue
            if definition.is_read:
                self._add(definition)
            self._defined.add(definition.table)

    def _add(self, definition: TableDefinition) -> None:
        table, known = definition.table, self.newest.get(definition.table)
        # A blocking ad-hoc snapshot sends the definition of the initial one again, with its time.
        if known is not None and definition.ts_ms <= known.ts_ms:
            return
        if self._begins_snapshot(definition):
            self._current = set()
        self._current.add(table)
        self.newest[table] = SnapshotDefinition(
            definition.position, definition.ts_ms, is_repeated=table in self._defined
        )
        if definition.ends_snapshot:
            for name in self._current:
                self.newest[name] = replace(self.newest[name], has_no_rows=True)

    def _begins_snapshot(self, definition: TableDefinition) -> bool:
        if definition.table in self._current:
            return True
        return any(self.newest[name].position != definition.position for name in self._current)
