"""Rows to read again that batches have found."""

from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Lock

from replicator.model.reread import Narrowed
from replicator.model.table import TableId


@dataclass(slots=True)
class MisreadRows:
    """The rows to read again that batches have found, for the scheduler. Threads may use it."""

    _parts: dict[TableId, Narrowed | None] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def any_left(self) -> bool:
        """Whether rows of any table must be read again."""
        return bool(self._parts)

    def note(self, table: TableId, part: Narrowed | None) -> None:
        """Note a part of a table; None is all of it."""
        with self._lock:
            known = self._parts.get(table)
            if part is None or table not in self._parts:
                self._parts[table] = part
            elif known is not None:
                same = known.column == part.column
                self._parts[table] = Narrowed.to(part.column, (*known.spans, *part.spans)) if same else None

    def take(self, besides: Collection[TableId]) -> dict[TableId, Narrowed | None]:
        """Return the noted parts, and forget them; those of tables in `besides` stay."""
        with self._lock:
            taken = {table: part for table, part in self._parts.items() if table not in besides}
            for table in taken:
                del self._parts[table]
        return taken
