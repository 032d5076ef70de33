"""Know which tables prepared XA transactions have changed: the log has their events, readers do not see their rows.

The source's binlog is watched by another thread, which tells what it has read.
"""

import threading
from collections.abc import Iterable

from replicator.model.binlog import BinlogEnd
from replicator.model.position import binlog_number
from replicator.model.table import TableId
from replicator.schema.ddl.dml import ChangedTables


class PreparedTransactions:
    """The prepared transactions up to a place in the binlog. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_watched = False
        self._reached: tuple[int, int] | None = None
        self._changed: tuple[ChangedTables, ...] = ()

    def begin(self) -> None:
        """Note that the binlog is watched from now on."""
        with self._lock:
            self._is_watched, self._reached, self._changed = True, None, ()

    def end(self) -> None:
        """Note that the binlog is not watched any more."""
        with self._lock:
            self._is_watched = False

    def note(self, reached: tuple[int, int], changed: Iterable[ChangedTables]) -> None:
        """Note the tables that prepared transactions have changed, at a place: number of the file, and offset."""
        with self._lock:
            self._reached, self._changed = reached, tuple(changed)

    def why_wait(self, table: TableId, end: BinlogEnd) -> str | None:
        """Return why the rows of `table` may lack changes that the log has before `end`; None if they lack none.

        If the binlog is not watched, that is not known, and the result is None.
        """
        with self._lock:
            if not self._is_watched:
                return None
            if self._reached is None or self._reached < (binlog_number(end.file), end.pos):
                return f"the binlog was not watched up to {end} yet"
        return "a prepared XA transaction has changed rows of it" if self.is_open(table) else None

    def is_open(self, table: TableId) -> bool:
        """Return whether a prepared transaction, up to where the binlog was watched, has changed `table`."""
        with self._lock:
            return self._is_watched and any(changed.may_have(table) for changed in self._changed)

    def any_open(self) -> bool:
        """Return whether a prepared transaction, up to where the binlog was watched, has changed any table."""
        with self._lock:
            return self._is_watched and bool(self._changed)
