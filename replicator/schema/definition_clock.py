"""Orders the definitions of the schema-change topic, also if the connector read the binlogs of several servers."""

from dataclasses import replace
from typing import NamedTuple

from replicator.model.gtid import Transaction
from replicator.model.position import SourcePosition
from replicator.model.table import TableId
from replicator.model.truncate import SKEW_MS
from replicator.schema.binlog_order import binlog_key
from replicator.schema.history import TableDefinition


class _Place(NamedTuple):
    """Where a definition was placed. `snapshots` is the number of definitions that initial snapshots had read then."""

    generation: int
    position: SourcePosition
    snapshots: int


class DefinitionClock:
    """Assigns each new definition a generation of the binlog, and finds redelivered ones.

    A generation ends when a new definition has a lower position than the one before it, or if a snapshot reads another
    definition of a table at the position of the last one: then the connector reads another server, or the binlog was
    reset. The number of a generation is the source time of its first definition, in seconds, so that it stays the same
    if the topic loses its first records. The first generation is 0.

    If the connector takes its initial snapshot again, of a replica that lags, the replica executes statements later
    that were known before. Then they are not redelivered ones.
    """

    def __init__(self) -> None:
        self._placed: dict[object, _Place] = {}
        self._snapshots = 0
        self._snapshot_key = 0
        self._has_rows = False
        self._last_read: dict[TableId, TableDefinition] = {}
        self._numbers: dict[tuple[TableId, tuple[str, int]], int] = {}
        self._generation = 0
        self._last_key = 0
        self._latest_ms = 0
        self._latest_read_ms = 0

    def place(self, definition: TableDefinition) -> TableDefinition | None:
        """Return a definition with its generation; None if it is older than what is known, and so redelivered.

        Definitions must be given in the order of the topic. A redelivered one that is known gets its first position: it
        may come from another server.
        """
        identity = _identity(definition)
        place = self._placed.get(identity)
        if place is not None and self._is_executed_again(definition, place):
            place = None
        elif self._differs_at_same_position(definition):
            place = None  # Another definition of this snapshot, with the same time, has the earlier place.
        elif place is None and not self._is_new(definition):
            return None
        if place is None:
            self._advance_to(definition)
            place = _Place(self._generation, definition.position, self._snapshots)
            self._placed[identity] = place
        self._note_last_read(definition, place)
        if definition.is_read and place.snapshots == self._snapshots:
            self._has_rows = not definition.ends_snapshot  # Two definitions may have one time.
        if (own := Transaction.parse(definition.position.gtid)) is not None:
            known = self._numbers.get((definition.table, own.line), 0)
            self._numbers[definition.table, own.line] = max(known, own.number)
        return replace(definition, generation=place.generation, position=place.position)

    def _is_executed_again(self, definition: TableDefinition, known: _Place) -> bool:
        """Return whether a known statement was executed after what an initial snapshot read since.

        A definition that a snapshot read is no statement; a blocking snapshot sends it again. A snapshot of definitions
        only (`snapshot.mode` recovery) has the connector's earlier position, and statements from there on come again.
        On another server, they have other positions: those that only change columns then change nothing.
        """
        if definition.is_read or known.snapshots == self._snapshots:
            return False
        key, replaces_rows = binlog_key(definition.position), _replaces_rows(definition)
        is_at_known = key == binlog_key(known.position)
        if self._has_rows:
            # Offsets of the connector may have been set back to before the snapshot.
            return not (is_at_known and key < self._snapshot_key and replaces_rows)
        return not (is_at_known or replaces_rows)

    def _is_new(self, definition: TableDefinition) -> bool:
        if not definition.position.file or binlog_key(definition.position) >= self._last_key:
            return True
        own = Transaction.parse(definition.position.gtid)
        if own is None and definition.is_read:
            # Snapshots have the time of Kafka Connect, whose clock may be behind that of MySQL.
            return definition.ts_ms > max(self._latest_read_ms, self._latest_ms - SKEW_MS)
        if own is None:
            return definition.ts_ms > self._latest_ms
        if definition.whole_database:
            return own.number > self._last_number(definition.table.database, own.line)
        # Servers that apply transactions in parallel commit those of different tables in any order.
        return own.number > self._numbers.get((definition.table, own.line), 0)

    def _last_number(self, database: str, line: tuple[str, int]) -> int:
        """Return the number of the newest definition of any table of a database; 0 if there is none."""
        numbers = self._numbers.items()
        return max((n for (table, of), n in numbers if (table.database, of) == (database, line)), default=0)

    def _advance_to(self, definition: TableDefinition) -> None:
        key = binlog_key(definition.position)
        is_earlier = key < self._last_key and definition.position.file
        if is_earlier or self._differs_at_same_position(definition):
            self._generation = max(self._generation + 1, definition.ts_ms // 1000)
        if definition.position.file:
            self._last_key = key
        if definition.is_read:
            self._snapshots, self._snapshot_key = self._snapshots + 1, key
            self._latest_read_ms = max(self._latest_read_ms, definition.ts_ms)
        self._latest_ms = max(self._latest_ms, definition.ts_ms)

    def _note_last_read(self, definition: TableDefinition, place: _Place) -> None:
        known = self._last_read.get(definition.table)
        if not definition.is_read or definition.schema is None:
            return
        if known is None or known.ts_ms < definition.ts_ms:
            self._last_read[definition.table] = replace(definition, generation=place.generation)

    def _differs_at_same_position(self, definition: TableDefinition) -> bool:
        """Return whether a snapshot shows another definition than the last one, at its position in this generation."""
        known = self._last_read.get(definition.table)
        if not definition.is_read or definition.schema is None or known is None:
            return False
        if known.position != definition.position or known.ts_ms >= definition.ts_ms:
            return False
        is_same = (known.schema, known.source_types) == (definition.schema, definition.source_types)
        return not is_same and known.generation == self._generation


def _replaces_rows(definition: TableDefinition) -> bool:
    """Return whether a statement removes the table, creates it, gives it another name, or changes only its rows."""
    return definition.schema is None or definition.other_name is not None or definition.key_change.created


def _identity(definition: TableDefinition) -> object:
    position = definition.position
    return position.gtid or (position.server_id, binlog_key(position), definition.ts_ms)
