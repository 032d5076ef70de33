"""How a source table is partitioned by plain columns, and conditions in Spark SQL for the rows of some partitions.

A layout follows the statements of the table. It is unknown, None, as soon as one is not understood, and for partitions
by a function or a hash: those would have to be computed as MySQL does.

Rules: MySQL's reference manual, "RANGE Partitioning", "LIST Partitioning", "RANGE COLUMNS partitioning", "How MySQL
Partitioning Handles NULL", "Management of RANGE and LIST Partitions". All names here are casefolded, as MySQL compares
them.

Only columns whose order in the lake is certainly that of the source have one: integers, DATE and DATETIME. A condition
is true or false for each row, also for NULL: a range puts NULL below all values.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import Enum
from typing import Final, Literal

from replicator.model.common import quoted
from replicator.model.table import TableSchema


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


_INTEGER: Final = re.compile(r"(TINY|SMALL|MEDIUM|BIG)?INT(EGER)?\b.*", re.DOTALL)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_LAKE_TYPES: Final = {
    "integer": ("int", "long", "decimal"),
    "date": ("date",),
    "datetime": ("timestamp",),
}
_ZERO_DATES: Final = {"date": "DATE'1970-01-01'", "datetime": "TIMESTAMP_NTZ'1970-01-01 00:00:00'"}
"""What connectors send for a date with a zero year, month or day if the column is NOT NULL; otherwise NULL."""


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition for rows.

    Attributes:
        columns: the columns that it needs.
        where: Spark SQL; ``{0}``, ``{1}`` … are the columns.
    """

    columns: tuple[str, ...]
    where: str

    def sql(self, values: Sequence[str]) -> str:
        """Return the condition with SQL for the values of the columns."""
        return self.where.format(*values)

    def of_columns(self) -> str:
        """Return the condition for a table that has the columns."""
        return self.sql([quoted(name) for name in self.columns])


@dataclass(frozen=True, slots=True)
class PartitionCondition:
    """The condition for the rows of partitions, and where it is not certain.

    Attributes:
        rows: the condition.
        kinds: the kind of each of its columns; lake types that fit are `_LAKE_TYPES`.
        unsigned: which of them are unsigned integers of 64 bits.
    """

    rows: RowCondition
    kinds: tuple[str, ...]
    unsigned: frozenset[str] = frozenset()

    def fits(self, column: str, lake_type: str) -> bool:
        """Return whether the values of a column that has a type in the lake are those of the source."""
        kind = self.kinds[self.rows.columns.index(column)]
        exact = ("decimal",) if column in self.unsigned else _LAKE_TYPES[kind]
        return lake_type in exact

    def uncertain(self) -> RowCondition | None:
        """Return the condition for rows whose partition is not certain: they may have had a zero date in the source."""
        parts = [
            f"({{{i}}} IS NULL OR {{{i}}} = {_ZERO_DATES[kind]})"
            for i, kind in enumerate(self.kinds)
            if kind in _ZERO_DATES
        ]
        return RowCondition(self.rows.columns, " OR ".join(parts)) if parts else None


def partition_condition(
    rows: PartitionRows, schema: TableSchema, source_types: Mapping[str, str]
) -> PartitionCondition | None:
    """Return the condition for the rows of partitions; None if a column or a value is of another type."""
    names = {c.source_name.name.casefold(): c.name for c in schema.columns}
    if not set(rows.columns) <= names.keys():
        return None
    columns = tuple(names[name] for name in rows.columns)
    types = [source_types.get(name, "").upper() for name in columns]
    kinds = [kind for kind in map(_kind, types) if kind is not None]
    # A connector may cut the fractions of a DATETIME, which matters for a value, and not for a bound.
    if len(kinds) < len(columns) or (rows.values and "datetime" in kinds):
        return None
    try:
        texts = [_span(span, kinds) for span in rows.spans] + _equal_to(rows.values, kinds)
    except ValueError:
        return None
    where = " OR ".join(f"({text})" for text in texts) or "FALSE"
    unsigned = frozenset(
        c for c, t in zip(columns, types, strict=True) if t.startswith("BIGINT") and "UNSIGNED" in t
    )
    return PartitionCondition(RowCondition(columns, where), tuple(kinds), unsigned)


def _kind(source_type: str) -> str | None:
    if _INTEGER.fullmatch(source_type):
        return "integer"
    if source_type == "DATE":
        return "date"
    return "datetime" if re.fullmatch(r"DATETIME(\(\d\))?", source_type) else None


def _span(span: Span, kinds: Sequence[str]) -> str:
    below = _below(span.end, kinds)
    return below if span.start is None else f"NOT ({_below(span.start, kinds)}) AND ({below})"


def _below(bound: Bound, kinds: Sequence[str]) -> str:
    """Return the condition for a row whose columns, compared in their order, are below a bound."""
    text = "FALSE"
    for i in range(len(bound) - 1, -1, -1):
        limit = bound[i]
        if limit is MAXVALUE:
            text = "TRUE"
            continue
        value = _literal(limit, kinds[i])
        same = "" if text == "FALSE" else f" OR ({{{i}}} = {value} AND ({text}))"
        text = f"{{{i}}} IS NULL OR {{{i}}} < {value}{same}"
    return text


def _equal_to(values: Iterable[tuple[Value, ...]], kinds: Sequence[str]) -> list[str]:
    return [
        " AND ".join(f"{{{i}}} <=> {_literal(value, kinds[i])}" for i, value in enumerate(row))
        for row in values
    ]


def _literal(value: object, kind: str) -> str:
    """Return Spark SQL for a value.

    Raises:
        ValueError: it is not one of the kind.
    """
    if value is None:
        return "NULL"
    return _LITERALS[kind](value)


def _integer(value: object) -> str:
    if not isinstance(value, int):
        raise ValueError("no integer")
    # A literal of Spark's that is out of the range of a long is a decimal.
    return str(value)


def _date(value: object) -> str:
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise ValueError("no date")
    return f"DATE'{date.fromisoformat(value)}'"


def _datetime(value: object) -> str:
    if not isinstance(value, str) or not (_DAY.fullmatch(value) or _TIME.fullmatch(value)):
        raise ValueError("no date and time")
    return f"TIMESTAMP_NTZ'{datetime.fromisoformat(value)}'"


_LITERALS: Final[Mapping[str, Callable[[object], str]]] = {
    "integer": _integer,
    "date": _date,
    "datetime": _datetime,
}
