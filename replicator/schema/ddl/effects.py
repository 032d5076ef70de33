"""What a statement does to the columns, the keys and the partitions of a table. Names are casefolded.

Rules of partitions: MySQL's reference manual, "RANGE Partitioning", "RANGE COLUMNS partitioning", "Management of RANGE
and LIST Partitions".
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from replicator.model.table import TableId

PRIMARY: Final = "primary"
"""The name of the primary key, which no other key can have."""

Bound = int | str | None
"""What the values of a partition are below: an integer, or the text of a date or time; None for MAXVALUE."""
Partition = tuple[str, Bound]
"""Name and bound of a partition."""
Span = tuple[Bound, Bound]
"""The values from the first one on, None for the lowest, and below the second one, None for all."""


@dataclass(frozen=True, slots=True)
class ColumnMoves:
    """The effect of one statement on column names: `renamed` (old, new) and `dropped`; a name may be in both."""

    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyDefinition:
    """A key that a statement defines.

    Attributes:
        name: None if the server chooses one; `PRIMARY` for the primary key.
        first: the first column, after which the server names the key; None if it is an expression.
        columns: the columns of a unique key: only rows with NULL in one of them may have equal values. None if the key
            is not unique, or has an expression.
    """

    name: str | None
    first: str | None
    columns: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What a statement did to the keys of one table.

    Attributes:
        created: whether it created the table.
        like: the table whose keys a created table has.
        dropped: names of keys that were dropped.
        renamed: (old name, new name) of keys.
        added: the new keys, in their order.
    """

    created: bool = False
    like: TableId | None = None
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    added: tuple[KeyDefinition, ...] = ()

    def __bool__(self) -> bool:
        return self != KeyChange()


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The ranges by which a table is partitioned, in ascending order."""

    column: str
    partitions: tuple[Partition, ...]

    def spans(self, names: Collection[str]) -> list[Span] | None:
        """Return the values of the partitions `names`, of all of them without names; None if one is not known."""
        bounds = dict(self.partitions)
        if not set(names) <= bounds.keys():
            return None
        starts = zip((None, *bounds.values()), bounds.items(), strict=False)
        return [(start, end) for start, (name, end) in starts if not names or name in names]

    def replaced(self, names: Collection[str], new: Sequence[Partition]) -> "PartitionLayout | None":
        """Return the layout with `new` partitions in place of `names`, at the end without names; None if unknown.

        The range after a dropped one begins where that began.
        """
        known = [name for name, _ in self.partitions]
        if not set(names) <= set(known):
            return None
        at = min(map(known.index, names), default=len(known))
        kept = [
            [p for p in part if p[0] not in names] for part in (self.partitions[:at], self.partitions[at:])
        ]
        return replace(self, partitions=(*kept[0], *new, *kept[1])).checked()

    def checked(self) -> "PartitionLayout | None":
        """Return the layout, or None if MySQL would not allow it, so that something was misunderstood."""
        names = {name for name, _ in self.partitions}
        return self if names and len(names) == len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What a statement does to the partitions of a table.

    Attributes:
        kind: `define` makes `layout` the one of the table, also if it is None; `replace` drops the partitions `names`
            and adds `new` ones in their place.
        names: of `truncate`, no names are those of all partitions.
        if_missing: whether the statement does nothing if the table exists.
    """

    kind: Literal["define", "replace", "truncate"]
    names: tuple[str, ...] = ()
    new: tuple[Partition, ...] = ()
    layout: PartitionLayout | None = None
    if_missing: bool = False

    def after(self, layout: PartitionLayout | None) -> PartitionLayout | None:
        """Return the layout after the statement."""
        if self.kind == "define":
            return self.layout
        if layout is None or self.kind == "truncate":
            return layout
        return layout.replaced(self.names, self.new)

    def removed(self, layout: PartitionLayout) -> list[Span] | None:
        """Return the values of the rows that the statement removes from a table; None if that is not known."""
        return None if self.kind == "define" or self.new else layout.spans(self.names)
