"""Tables whose source was renamed: the lake's follow once they have all of the old name, new events wait until then."""

from replicator.batch import Engine, has_left, is_half_renamed, rename, renamed_to
from replicator.errors import LakeUnavailable
from replicator.ledger import ranges_to_read
from replicator.mirror.tables import Tables
from replicator.model.commit import CommitMarker, OffsetRange
from replicator.model.table import TableId
from replicator.source.log import Offsets


class Renames:
    """Follows the names of tables.

    Attributes:
        first: where the log begins.
    """

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self._engine = engine
        self._tables = tables
        self.first: Offsets = {}
        self._ends: Offsets | None = None

    def look_again(self) -> None:
        """Ask the log anew where it ends, once that matters: schema changes were read since."""
        self._ends = None

    def follow(self, ends: Offsets) -> bool:
        """Rename the lake's tables whose source was renamed, once they have all of their old topic; whether any was."""
        found = False
        topics = {self._tables.of(topic): topic for topic in self._tables.wanted(ends)}
        for first, topic in topics.items():
            # A name between two others may never have had an event, and so no topic.
            for table in (first, *self._later_names(first)):
                found |= self._follow_one(table, topics.get(table, topic))
        return found

    def _follow_one(self, table: TableId, topic: str) -> bool:
        engine = self._engine
        if self._tables.rests(table) or not engine.ledger.knows(table):
            return False
        new = renamed_to(engine, table)
        if new is None or not (is_half_renamed(engine, table, new) or self.has_all(topic)):
            return False
        try:
            return rename(engine, table, new)
        except LakeUnavailable as error:
            # Its new name waits for it, see `awaited`.
            self._tables.failed(table, error)
            return False

    def awaited(self, table: TableId, ends: Offsets) -> bool:
        """Whether the lake still has this table under the name that it had before it was renamed, or is to get it."""
        engine = self._engine
        if engine.ledger.progress(table).topics:
            return False
        old_names = engine.book.earlier_names(table)
        if any(renamed_to(engine, old) == table for old in old_names):
            return True
        left = {old for old in old_names if not has_left(engine, old, table)}
        return bool(left) and any(
            self.unread(topic, ends) for topic in self._tables.wanted(ends) if self._tables.of(topic) in left
        )

    def unread(self, topic: str, ends: Offsets) -> tuple[OffsetRange, ...]:
        """What the lake lacks of a topic, up to `ends`, whatever its table is called there by now."""
        behind = self._reached(self._tables.of(topic), topic)
        return ranges_to_read(topic, behind, self.first.get(topic, {}), ends.get(topic, {}))

    def has_all(self, topic: str) -> bool:
        """Whether the lake has all that the log has of a topic, so that no event from before is to come."""
        if self._ends is None:
            _, self._ends = self._engine.log.offsets()
        return not self.unread(topic, self._ends)

    def _reached(self, table: TableId, topic: str) -> CommitMarker | None:
        """The marker behind which events of `topic` are to be read; it may be under the table's later name."""
        if self._engine.ledger.progress(table).behind is None:
            self._later_names(table)
        return self._engine.ledger.reached(table, topic)

    def _later_names(self, table: TableId) -> list[TableId]:
        """What the table was renamed to, one name after the other; what the lake has of them is known then."""
        found: list[TableId] = []
        left = list(self._engine.book.later_names(table))
        while left:
            name = left.pop()
            if name not in (table, *found):
                self._tables.readable(name)
                found.append(name)
                left += self._engine.book.later_names(name)
        return found
