"""Cache the locations of rows that this process wrote last, so that small batches need not search for them.

Each small batch adds a data file and a delete file. A search in the current snapshot would open all of them, more with
every batch. For each table, the process therefore remembers the location of every key that it changed since some
snapshot, the base. These keys need no search, and all others are where they were in the base.

The cache is an optimization and never a source of truth. It is valid only for the snapshot that this process committed
last: after a restart, or after a commit by another process, the base is the current snapshot.
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

MOST_KEYS: Final = 200_000
"""Maximum number of keys per table; beyond it, they are discarded and the base becomes the current snapshot."""


@dataclass(frozen=True, slots=True)
class RowLocations:
    """The locations of all keys that changed, or were moved, between two snapshots of a table.

    Attributes:
        key_columns: name and type of each key column.
        base: the snapshot in which all other keys are searched; None if the table had no rows then.
        head: the snapshot for which the locations are valid.
        locations: key → location; None for a deleted row.
    """

    key_columns: tuple[tuple[str, LakeType], ...]
    base: int | None
    head: int | None
    locations: dict[RowKey, RowLocation | None]

    def usable(self, table: LakeTable) -> bool:
        """Return whether the base can still be searched; maintenance may have expired it."""
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


@dataclass(frozen=True, slots=True)
class MovedRows:
    """The new locations of rows that maintenance moved to other files."""

    locations: Mapping[RowKey, RowLocation]


class RowLocationCache:
    """The row locations of all tables. Several threads may use it, each for different tables."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], RowLocations] = {}

    def of(self, table: LakeTable, key: tuple[str, ...]) -> RowLocations:
        """Return the locations for `table` as it was loaded; empty if another process committed to it since."""
        columns = table.columns()
        key_columns = tuple((name, columns[name]) for name in key)
        snapshot_id = table.snapshot_id
        known = self._tables.get((table.namespace, table.name))
        current = known is not None and (known.head, known.key_columns) == (snapshot_id, key_columns)
        if known is not None and current and known.usable(table):
            return known
        return RowLocations(key_columns, None if table.is_empty else snapshot_id, snapshot_id, {})

    def forget(self, table: LakeTable) -> None:
        """Discard the locations of a table, because its columns changed."""
        self._tables.pop((table.namespace, table.name), None)

    def committed(self, table: LakeTable, changes: RowChanges, head: int | None) -> None:
        """Record that snapshot `head` was committed with `changes`; None if the snapshot is not known."""
        name, known, changed = (table.namespace, table.name), changes.known, changes.locations
        if head is None or not changed or len(known.locations) + len(changed) > MOST_KEYS:
            self._tables.pop(name, None)
            return
        # Update in place: a copy would make each batch more expensive than the one before.
        known.locations.update(changed)
        self._tables[name] = replace(known, head=head)

    def rewritten(self, table: LakeTable, before: int | None, moved: MovedRows | None) -> None:
        """Record that maintenance rewrote files of `table` since the snapshot `before`, without changing a row.

        `moved` contains every row that is now in a different file; None if they are unknown or too many. All other rows
        are where they were.
        """
        name = (table.namespace, table.name)
        known = self._tables.get(name)
        if known is None or known.head != before:
            return
        if moved is None or len(known.locations) + len(moved.locations) > MOST_KEYS:
            self._tables.pop(name)
            return
        known.locations.update(moved.locations)
        self._tables[name] = replace(known, head=table.snapshot_id)

    def key_columns(
        self, table: LakeTable, snapshot_id: int | None
    ) -> tuple[tuple[str, LakeType], ...] | None:
        """Return the key columns of the table's rows if their locations are known for a snapshot; else None."""
        known = self._tables.get((table.namespace, table.name))
        return None if known is None or known.head != snapshot_id else known.key_columns
