"""Where the rows are that this process wrote last, so that small batches need not search for them.

Each small batch adds a data file and a delete file. To look for keys in the table as it is now would open all of
them, more with every batch. So for each table the process remembers the place of every key that it changed since
some snapshot, the base: those keys need no search, and all others are still where the base has them.

This is a help only, never a source of truth. It counts for the very snapshot that this process committed last: after
a restart, or after anybody else's commit, the base is the table as it is then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from replicator.lake.catalog import LakeTable
from replicator.model.types import LakeType

RowKey = tuple[object, ...]
"""The values of a row's key columns."""

RowLocation = tuple[str, int]
"""A data file and a position in it."""

_MOST_KEYS: Final = 200_000
"""Keys remembered for a table; then its base moves on."""


@dataclass(frozen=True, slots=True)
class RowLocations:
    """`places` has every key that changed between snapshots `base` and `head`; None for one whose row is gone.

    `base` is None where the table had no rows then.
    """

    key_columns: tuple[tuple[str, LakeType], ...]
    base: int | None
    head: int | None
    places: dict[RowKey, RowLocation | None]

    def usable(self, table: LakeTable) -> bool:
        """Whether the base can still be searched; maintenance lets old snapshots expire."""
        return self.base is None or table.has_snapshot(self.base)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows that a staged commit changes.

    Attributes:
        known: the locations before the commit.
        locations: key → location after the commit, None for a deleted row. None if the locations are not known.
    """

    known: RowLocations
    locations: Mapping[RowKey, RowLocation | None] | None


class RowLocationCache:
    """The row locations of all tables. Each table is used by one thread at a time."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], RowLocations] = {}

    def of(self, table: LakeTable, key: tuple[str, ...]) -> RowLocations:
        """What holds for `table` as it was loaded; nothing is remembered where it was changed by others."""
        columns = table.columns()
        key_columns = tuple((name, columns[name]) for name in key)
        snapshot_id = table.snapshot_id
        known = self._tables.get((table.namespace, table.name))
        current = known is not None and (known.head, known.key_columns) == (snapshot_id, key_columns)
        if known is not None and current and known.usable(table):
            return known
        return RowLocations(key_columns, None if table.is_empty else snapshot_id, snapshot_id, {})

    def forget(self, table: LakeTable) -> None:
        """Start anew: the table's columns are others now."""
        self._tables.pop((table.namespace, table.name), None)

    def committed(self, table: LakeTable, changes: RowChanges, head: int | None) -> None:
        """Record that snapshot `head` was committed with `changes`. None: the snapshot is not known."""
        name, known, changed = (table.namespace, table.name), changes.known, changes.locations
        if head is None or not changed or len(known.places) + len(changed) > _MOST_KEYS:
            self._tables.pop(name, None)
            return
        # Updated in place: a copy would cost each batch more than the one before.
        known.places.update(changed)
        self._tables[name] = replace(known, head=head)
