"""How a source table is partitioned by plain columns, and which rows a partition has.

A layout follows the statements of the table. It is unknown, None, as soon as one is not understood, and for partitions
by a function or a hash: those would have to be computed as MySQL does.

Rules: MySQL's reference manual, "RANGE Partitioning", "LIST Partitioning", "RANGE COLUMNS partitioning", "How MySQL
Partitioning Handles NULL", "Management of RANGE and LIST Partitions". All names here are casefolded, as MySQL compares
them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal


class Limit(Enum):
    """A bound that is above all values."""

    MAXVALUE = "MAXVALUE"


MAXVALUE: Final = Limit.MAXVALUE

Value = int | str | None
"""A value in a definition: of an integer column, as text of a date or time, or NULL."""
Bound = tuple[Value | Limit, ...]
"""The VALUES LESS THAN of a partition, for each column."""
Tuple = tuple[Value, ...]
"""A value of VALUES IN, for each column."""
PartitionKind = Literal["range", "list"]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition.

    Attributes:
        below: the bound of a range, which does not belong to it; empty for a list.
        values: the values of a list; empty for a range.
    """

    name: str
    below: Bound = ()
    values: tuple[Tuple, ...] = ()

    def fits(self, kind: PartitionKind, width: int) -> bool:
        """Return whether it is a partition of a table that is partitioned so, by `width` columns."""
        if kind == "range":
            return len(self.below) == width and not self.values
        return not self.below and bool(self.values) and all(len(v) == width for v in self.values)


@dataclass(frozen=True, slots=True)
class Span:
    """The rows from `start`, None for the lowest one, to `end`, which does not belong to them."""

    start: Bound | None
    end: Bound


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows of some partitions: those within one of the spans, and those with one of the values."""

    columns: tuple[str, ...]
    spans: tuple[Span, ...] = ()
    values: tuple[Tuple, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The partitions of a table, ranges in ascending order."""

    kind: PartitionKind
    columns: tuple[str, ...]
    partitions: tuple[Partition, ...]

    def rows(self, names: Collection[str]) -> PartitionRows | None:
        """Return the rows of the partitions `names`, all of them without names; None if one is not known."""
        wanted = {p.name for p in self.partitions} if not names else set(names)
        if not wanted <= {p.name for p in self.partitions}:
            return None
        if self.kind == "list":
            values = tuple(v for p in self.partitions if p.name in wanted for v in p.values)
            return PartitionRows(self.columns, values=values)
        starts = (None, *(p.below for p in self.partitions))
        spans = zip(self.partitions, starts, strict=False)
        return PartitionRows(self.columns, tuple(Span(s, p.below) for p, s in spans if p.name in wanted))

    def renamed(self, renamed: Mapping[str, str], dropped: Collection[str]) -> "PartitionLayout | None":
        """Return the layout after columns were renamed or dropped; None if it needs one that was dropped."""
        if set(dropped) & set(self.columns) - renamed.keys():
            return None
        return replace(self, columns=tuple(renamed.get(name, name) for name in self.columns))

    def checked(self) -> "PartitionLayout | None":
        """Return the layout, or None if MySQL would not allow it, so that something was misunderstood."""
        names, width = [p.name for p in self.partitions], len(self.columns)
        fit = all(p.fits(self.kind, width) for p in self.partitions)
        return self if fit and names and self.columns and len(set(names)) == len(names) else None

    def without(self, names: Collection[str]) -> "PartitionLayout | None":
        """Return the layout without partitions; the range after a dropped one then begins where that began."""
        dropped = set(names)
        if not dropped <= {p.name for p in self.partitions}:
            return None
        return self._with([p for p in self.partitions if p.name not in dropped])

    def added(self, new: Sequence[Partition]) -> "PartitionLayout | None":
        """Return the layout with further partitions; ranges are added at the end only."""
        return self._with([*self.partitions, *new])

    def reorganized(self, names: Sequence[str], new: Sequence[Partition]) -> "PartitionLayout | None":
        """Return the layout with other partitions in place of `names`, which are consecutive if they are ranges."""
        known, replaced = [p.name for p in self.partitions], set(names)
        if not replaced or not replaced <= set(known):
            return None
        first = next(at for at, name in enumerate(known) if name in replaced)
        if self.kind == "range" and set(known[first : first + len(names)]) != replaced:
            return None
        rest = [p for p in self.partitions if p.name not in replaced]
        return self._with([*rest[:first], *new, *rest[first:]])

    def _with(self, partitions: Sequence[Partition]) -> "PartitionLayout | None":
        return replace(self, partitions=tuple(partitions)).checked()


ChangeOfPartitions = Literal["define", "add", "drop", "truncate", "reorganize", "forget"]


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What a statement does to the partitions of a table.

    Attributes:
        kind: `forget` makes the layout unknown.
        names: the partitions that are dropped, truncated or replaced; if none is truncated by name, all are.
        partitions: the new partitions.
        layout: the layout that is defined; None if it is not known, or if there are no partitions.
        if_missing: whether the statement does nothing if the table exists.
    """

    kind: ChangeOfPartitions
    names: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    layout: PartitionLayout | None = None
    if_missing: bool = False

    def after(self, layout: PartitionLayout | None) -> PartitionLayout | None:
        """Return the layout after the statement."""
        if self.kind == "define":
            return self.layout
        if layout is None or self.kind == "forget":
            return None
        match self.kind:
            case "add":
                return layout.added(self.partitions)
            case "drop":
                return layout.without(self.names)
            case "reorganize":
                return layout.reorganized(self.names, self.partitions)
            case "truncate":
                return layout

    def removed_rows(self, layout: PartitionLayout | None) -> PartitionRows | None:
        """Return the rows that the statement removes from a table with `layout`; None if that is not known."""
        if layout is None or self.kind not in ("drop", "truncate"):
            return None
        return layout.rows(self.names)
