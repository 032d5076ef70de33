"""Tables whose source was renamed: the lake's follow once they have all of the old name, new events wait until then."""

from collections.abc import Mapping

from replicator.batch import (
    Exchange,
    MirrorContext,
    exchanges,
    follow_exchange,
    has_left,
    is_begun,
    is_half_renamed,
    next_exchange,
    rename,
    renamed_to,
)
from replicator.errors import CommitConflict, LakeUnavailable
from replicator.lake.ledger import ranges_to_read
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.table import TableId
from replicator.runner.table_states import TableStates
from replicator.sources.change_log import Offsets


class TableRenames:
    """Follows the names of tables.

    Attributes:
        first: where the log begins.
    """

    def __init__(self, context: MirrorContext, tables: TableStates) -> None:
        self._context = context
        self._tables = tables
        self.first: Offsets = {}
        self._ends: Offsets | None = None
        self._looked_at: set[tuple[TableId, int]] = set()

    def invalidate(self) -> None:
        """Forget where the log ends, because schema changes were read since; it is asked again when needed."""
        self._ends = None

    def follow(self, ends: Offsets) -> bool:
        """Rename the lake's tables whose source was renamed, once they have all of their old topic; whether any was."""
        found = False
        topics = {self._tables.of(topic): topic for topic in self._tables.wanted(ends)}
        for table in topics:
            found |= self._exchange(table, topics)
        for first, topic in topics.items():
            # A name between two others may never have had an event, and so no topic.
            for table in (first, *self._later_names(first)):
                found |= self._follow_one(table, topics.get(table, topic))
        return found

    def _exchange(self, table: TableId, topics: Mapping[TableId, str]) -> bool:
        """Let the lake's tables of `table` and another one exchange their names, if it is time; whether they did."""
        context = self._context
        told = exchanges(context, table)
        if not told or self._tables.is_idle(table) or not self._tables.readable(table):
            return False
        half = next((e for e in reversed(told) if self._is_begun(e)), None)
        found = half or next_exchange(context, table)
        if found is None or self._tables.is_idle(found.other) or not self._tables.readable(found.other):
            return False
        if half is None and not all(self._has_all_before(t, found, topics.get(t)) for t in found.pair):
            return False
        try:
            follow_exchange(context, found)
        except (LakeUnavailable, CommitConflict) as error:
            self._looked_at -= {(one, found.at) for one in found.pair}
            for one in found.pair:
                self._tables.failed(one, error)
            return False
        return True

    def _is_begun(self, exchange: Exchange) -> bool:
        """Whether a crash left an exchange half done; the lake is asked once."""
        if (exchange.one, exchange.at) in self._looked_at:
            return False
        begun = is_begun(self._context, exchange)
        self._looked_at.update((table, exchange.at) for table in exchange.pair)
        return begun

    def _has_all_before(self, table: TableId, exchange: Exchange, topic: str | None) -> bool:
        """Whether the lake has all that happened to a table before the exchange."""
        if (table, exchange.at) in self._context.exchanged.standing or topic is None:
            return True
        return not self._context.ledger.progress(table).topics and self.has_all(topic)

    def _follow_one(self, table: TableId, topic: str) -> bool:
        context = self._context
        if self._tables.is_idle(table) or not context.ledger.knows(table):
            return False
        new = renamed_to(context, table)
        if new is None or not (is_half_renamed(context, table, new) or self.has_all(topic)):
            return False
        try:
            return rename(context, table, new)
        except LakeUnavailable as error:
            # Its new name waits for it, see `awaited`.
            self._tables.failed(table, error)
            return False

    def awaited(self, table: TableId, ends: Offsets) -> bool:
        """Whether the lake still has this table under the name that it had before it was renamed, or is to get it."""
        context = self._context
        if context.ledger.progress(table).topics:
            return False
        # One that has its name from an exchange waits for the other table when it comes to that, see `_exchange`.
        old_names = context.schemas.earlier_names(table) - {e.other for e in exchanges(context, table)}
        if any(renamed_to(context, old) == table for old in old_names):
            return True
        left = {old for old in old_names if not has_left(context, old, table)}
        return bool(left) and any(
            self.unread(topic, ends) for topic in self._tables.wanted(ends) if self._tables.of(topic) in left
        )

    def unread(self, topic: str, ends: Offsets) -> tuple[OffsetRange, ...]:
        """What the lake lacks of a topic, up to `ends`, whatever its table is called there by now."""
        resume_marker = self._reached(self._tables.of(topic), topic)
        return ranges_to_read(topic, resume_marker, self.first.get(topic, {}), ends.get(topic, {}))

    def has_all(self, topic: str) -> bool:
        """Whether the lake has all that the log has of a topic, so that no event from before is to come."""
        if self._ends is None:
            _, self._ends = self._context.log.offsets()
        return not self.unread(topic, self._ends)

    def _reached(self, table: TableId, topic: str) -> CommitMarker | None:
        """The marker behind which events of `topic` are to be read; it may be under the table's later name."""
        if self._context.ledger.progress(table).resume_marker is None:
            self._later_names(table)
        return self._context.ledger.resume_marker_for(table, topic)

    def _later_names(self, table: TableId) -> list[TableId]:
        """What the table was renamed to, one name after the other; what the lake has of them is known then."""
        found: list[TableId] = []
        left = list(self._context.schemas.later_names(table))
        while left:
            name = left.pop()
            if name not in (table, *found):
                self._tables.readable(name)
                found.append(name)
                left += self._context.schemas.later_names(name)
        return found
