"""Remember which position deletes apply to each data file of a snapshot.

A snapshot never changes, so what was read once stays true. For each table, the newest snapshot that was asked for is
kept; a commit of this process derives the next one from it.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

DeletesByFile = Mapping[str, Sequence[Any]]
"""Path of a data file → the DeleteFile objects of the position deletes that apply to it."""

TableName = tuple[str, str]
"""Namespace and name of a lake table. Two tables never have a snapshot with the same id."""

_TABLES: Final = 200
"""Maximum number of tables whose deletes are kept: for each of their data files a Java object."""


@dataclass(frozen=True, slots=True)
class _Known:
    snapshot_id: int
    deletes: DeletesByFile


class AppliedDeletes:
    """The position deletes of the tables that were used last. Several threads may use it, each for other tables."""

    def __init__(self) -> None:
        self._tables: OrderedDict[TableName, _Known] = OrderedDict()

    def get(self, table: TableName, snapshot_id: int) -> DeletesByFile | None:
        """Return the deletes of a snapshot of the table; None if they are not known."""
        known = self._tables.get(table)
        return known.deletes if known is not None and known.snapshot_id == snapshot_id else None

    def put(self, table: TableName, snapshot_id: int, deletes: DeletesByFile) -> None:
        """Record the deletes of a snapshot."""
        self._tables[table] = _Known(snapshot_id, deletes)
        self._tables.move_to_end(table)
        while len(self._tables) > _TABLES:
            self._tables.popitem(last=False)

    def committed(self, table: TableName, before: int, written: Mapping[str, Any], head: int) -> None:
        """Record a commit after the snapshot `before`, which wrote deletion vectors and removed no data file.

        `written` has the deletion vector of each data file that got a new one. It replaces all earlier deletes.
        """
        deletes = self.get(table, before)
        if deletes is not None:
            self.put(table, head, {**deletes, **{path: (file,) for path, file in written.items()}})
