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
    definition of a table at the position at which the snapshot before read it: then the connector reads another server,
    or the binlog was reset. The first generation in the topic is 0. The number of a later one is the time of its first
    definition, in seconds, so that it does not change if the topic loses its first records.

    After a repeated snapshot of a replica that lags, the replica executes known statements. They are new then, and not
    redelivered.
    """

    def __init__(self) -> None:
        self._placed: dict[object, _Place] = {}
        self._snapshots = 0
        self._has_rows = False
        self._last_read: dict[TableId, TableDefinition] = {}
        self._numbers: dict[tuple[TableId, tuple[str, int]], int] = {}
        self._generation = 0
        self._last_key = 0
        self._latest_ms = 0
        self._latest_read_ms = 0

    def place(self, definition: TableDefinition) -> TableDefinition | None:
        """Return a definition with its generation; None if it is not known, and older than what is known.

        Definitions must be given in the order of the topic. A redelivered one that is known gets its first position and
        generation: it may come from another server.
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
        """Return whether a known statement counts as executed again, after a later initial snapshot.

        A definition that a snapshot read is no statement; a blocking snapshot sends it again.

        If the snapshot has rows, a replica that lagged at that time executes the statement. If the offsets of the
        connector were set back, rows from before the statement may have come again; see `batch.repeated_statements`.

        If it has none (such as `snapshot.mode = recovery`), it has the position at which the connector continues, and
        statements from there on are redelivered, or come from another server at other positions. Those that replace
        rows must not do that again; others change nothing.
        """
        if definition.is_read or known.snapshots == self._snapshots:
            return False
        is_at_known = binlog_key(definition.position) == binlog_key(known.position)
        return self._has_rows or not (is_at_known or _replaces_rows(definition))

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
            self._snapshots += 1
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
    """Return whether a statement creates, drops or renames the table, or changes only rows or keys."""
    return definition.schema is None or definition.other_name is not None or definition.key_change.created


def _identity(definition: TableDefinition) -> object:
    position = definition.position
    return position.gtid or (position.server_id, binlog_key(position), definition.ts_ms)
