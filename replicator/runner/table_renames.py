"""Rename lake tables as their source tables were renamed.

A lake table gets its new name once it has all events of the old one. Events under the new name wait until then.
"""

from replicator.batch import MirrorContext, former_names, has_left, is_half_renamed, rename, renamed_to
from replicator.errors import LakeUnavailable, SchemaError
from replicator.lake.ledger import ranges_to_read
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.table import TableId
from replicator.runner.table_states import TableStates
from replicator.sources.change_log import Offsets


class TableRenames:
    """Renames lake tables, and decides which tables must wait for that."""

    def __init__(self, context: MirrorContext, tables: TableStates) -> None:
        self._context = context
        self._tables = tables
        self._first: Offsets = {}
        self._ends: Offsets | None = None

    def set_log_start(self, first: Offsets) -> None:
        """Set the first offsets of the log."""
        self._first = first

    def invalidate(self) -> None:
        """Forget where the log ends, because schema changes were read since; the log is asked again when needed."""
        self._ends = None

    def follow(self, ends: Offsets) -> bool:
        """Rename the lake tables that have all events of their old name. Returns whether any was renamed."""
        any_renamed = False
        topics = {self._tables.table_of(topic): topic for topic in self._tables.mirrored(ends)}
        for first, topic in topics.items():
            # An intermediate name may never have had an event, and then has no topic.
            with self._tables.alone(first):
                for table in (first, *self.later_names(first)):
                    any_renamed |= self._rename(table, topics.get(table, topic))
        return any_renamed

    def _rename(self, table: TableId, topic: str) -> bool:
        """Rename a lake table if its source table was renamed and it is ready. Returns whether it was renamed."""
        context = self._context
        if self._tables.is_idle(table) or not context.ledger.knows(table):
            return False
        new = renamed_to(context, table)
        if new is None or not (is_half_renamed(context, table, new) or self.has_all(topic)):
            return False
        try:
            return rename(context, table, new)
        except SchemaError as error:
            for name in (table, new):
                self._tables.pause(name, error)
            return False
        except LakeUnavailable as error:
            # Mirror or changelog may have the new name already. Events under the new name wait, see `must_wait`.
            context.ledger.forget(table)
            context.ledger.forget(new)
            self._tables.failed(table, error)
            return False

    def must_wait(self, table: TableId, ends: Offsets) -> bool:
        """Whether `table` must wait because the lake still has it, or will get it, under an earlier name."""
        context = self._context
        if context.ledger.progress(table).topics:
            return False
        old_names = former_names(context, table)
        if any(renamed_to(context, old) == table for old in old_names):
            return True
        left = {old for old in old_names if not has_left(context, old, table)}
        return bool(left) and any(
            self.unread(topic, ends)
            for topic in self._tables.mirrored(ends)
            if self._tables.table_of(topic) in left
        )

    def unread(self, topic: str, ends: Offsets) -> tuple[OffsetRange, ...]:
        """Return what the lake lacks of a topic, up to `ends`, even if the lake table has been renamed since."""
        resume_marker = self._resume_marker(self._tables.table_of(topic), topic)
        return ranges_to_read(topic, resume_marker, self._first.get(topic, {}), ends.get(topic, {}))

    def has_all(self, topic: str) -> bool:
        """Whether the lake has all events that the topic has now, so that no earlier event can follow."""
        if self._ends is None:
            _, self._ends = self._context.log.offsets()
        return not self.unread(topic, self._ends)

    def has_events(self, topic: str) -> bool:
        """Whether the lake has events of a topic, even if the lake table has been renamed since."""
        table = self._tables.table_of(topic)
        if not self._tables.is_readable(table):
            return True
        return (
            bool(self._context.ledger.progress(table).topics) or self._resume_marker(table, topic) is not None
        )

    def _resume_marker(self, table: TableId, topic: str) -> CommitMarker | None:
        """Return the marker after which events of `topic` must be read; it may be under a later name of the table."""
        if self._context.ledger.progress(table).resume_marker is None:
            self.later_names(table)
        return self._context.ledger.resume_marker_for(table, topic)

    def later_names(self, table: TableId) -> list[TableId]:
        """Return all names that the table got later, and read their markers."""
        found: list[TableId] = []
        left = list(self._context.schemas.later_names(table))
        while left:
            name = left.pop()
            if name not in (table, *found):
                self._tables.is_readable(name)
                found.append(name)
                left += self._context.schemas.later_names(name)
        return found
