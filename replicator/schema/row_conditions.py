"""Conditions, in Spark SQL, that are true for the rows of some partitions of a source table.

Only columns whose order in the lake is certainly that of the source have one: integers, DATE and DATETIME. A condition
is true or false for each row, also for NULL: a range puts NULL below all values.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from replicator.model.common import quoted
from replicator.model.table import TableSchema
from replicator.schema.partition_layout import MAXVALUE, Bound, PartitionRows, Span, Value

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
