"""Orders the definitions of the schema-change topic, also if the connector read the binlogs of several servers."""

from dataclasses import replace
from typing import NamedTuple

from replicator.model.gtid import Transaction
from replicator.model.position import SourcePosition
from replicator.model.table import TableId
from replicator.schema.binlog_order import binlog_key
from replicator.schema.history import TableDefinition


class _Place(NamedTuple):
    """Where a definition was placed. `epoch` is the number of definitions that snapshots had repeated then."""

    generation: int
    position: SourcePosition
    epoch: int


class DefinitionClock:
    """Assigns each new definition a generation of the binlog, and finds redelivered ones.

    The topic has one partition, so its own order is that of the definitions. A generation ends when a new definition
    has a lower position than the one before it, or if a snapshot repeats a definition at the position that the table's
    newest one has: then the connector reads another server, or the binlog was reset. The first generation in the topic
    is 0. The number of a later one is the time of its first definition, in seconds, so that it does not change if the
    topic loses its first records. It is greater than the numbers before in any case.

    A statement that was known before a snapshot was repeated, and comes again after it, is new: the snapshot is of a
    server that had not executed it yet.
    """

    def __init__(self) -> None:
        self._placed: dict[object, _Place] = {}
        self._newest: dict[TableId, tuple[int, int]] = {}
        self._numbers: dict[tuple[TableId, tuple[str, int]], int] = {}
        self._generation = 0
        self._last_key = 0
        self._epoch = 0

    def place(self, definition: TableDefinition) -> TableDefinition | None:
        """Return a definition with its generation; None if it is not known, and older than what is known.

        Definitions must be given in the order of the topic. A redelivered one that is known gets its first position and
        generation: it may come from another server.
        """
        identity = _identity(definition)
        place = self._placed.get(identity)
        if place is not None and place.epoch < self._epoch and not definition.snapshot:
            place = None
        elif place is None and self._is_older(definition):
            return None
        if place is None:
            self._advance_to(definition)
            place = _Place(self._generation, definition.position, self._epoch)
            self._placed[identity] = place
        if definition.schema is not None:
            self._newest[definition.table] = place.generation, binlog_key(place.position)
        if (own := Transaction.parse(definition.position.gtid)) is not None:
            known = self._numbers.get((definition.table, own.line), 0)
            self._numbers[definition.table, own.line] = max(known, own.number)
        return replace(definition, generation=place.generation, position=place.position)

    def _is_older(self, definition: TableDefinition) -> bool:
        """Return whether an unknown definition comes again, because the topic has lost it.

        Without a GTID, that is not known. A removal is then taken for one that comes again: it would do more harm.
        """
        if not definition.position.file or binlog_key(definition.position) >= self._last_key:
            return False
        own = Transaction.parse(definition.position.gtid)
        if own is None:
            return definition.schema is None and not definition.snapshot
        if definition.whole_database:
            return own.number <= self._last_number(definition.table.database, own.line)
        # Servers that apply transactions in parallel commit those of different tables in any order.
        return own.number <= self._numbers.get((definition.table, own.line), 0)

    def _last_number(self, database: str, line: tuple[str, int]) -> int:
        """Return the number of the newest definition of any table of a database; 0 if there is none."""
        numbers = self._numbers.items()
        return max((n for (table, of), n in numbers if (table.database, of) == (database, line)), default=0)

    def _advance_to(self, definition: TableDefinition) -> None:
        key, newest = binlog_key(definition.position), self._newest.get(definition.table)
        is_lower = key < self._last_key and bool(definition.position.file)
        defines = definition.snapshot and definition.schema is not None
        if is_lower or (defines and newest == (self._generation, key)):
            self._generation = max(self._generation + 1, definition.ts_ms // 1000)
        if definition.position.file:
            self._last_key = key
        self._epoch += defines and definition.is_read and newest is not None


def _identity(definition: TableDefinition) -> object:
    position = definition.position
    if definition.is_read:
        # The DROP and the CREATE of a snapshot may have one time.
        return definition.table, binlog_key(position), definition.ts_ms, definition.schema is None
    return position.gtid or (position.server_id, binlog_key(position), definition.ts_ms)
