"""How a source table is partitioned by ranges of a column, and conditions in Spark SQL for the rows of some partitions.

A layout follows the statements of the table. It is unknown, None, as soon as one is not understood, and for all other
kinds of partitions: then the rows that a statement removes are unknown, and the table is read again.

Rules: MySQL's reference manual, "RANGE Partitioning", "RANGE COLUMNS partitioning", "How MySQL Partitioning Handles
NULL", "Management of RANGE and LIST Partitions". All names here are casefolded, as MySQL compares them.

Only columns whose order in the lake is certainly that of the source have one: integers, DATE and DATETIME. A condition
is true or false for each row, also for NULL, which is below all values.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from replicator.model.common import quoted
from replicator.model.table import TableSchema
from replicator.schema.ddl.effects import PartitionLayout, Span


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition for rows.

    Attributes:
        columns: the columns that it needs.
        where: Spark SQL; ``{0}``, ``{1}`` … are the columns.
    """

    columns: tuple[str, ...]
    where: str

    def of_columns(self) -> str:
        """Return the condition for a table that has the columns."""
        return self.where.format(*(quoted(name) for name in self.columns))


@dataclass(frozen=True, slots=True)
class PartitionCondition:
    """The condition for the rows of partitions.

    Attributes:
        column: the only column that the condition needs.
        lake_types: the types in the lake with which the column has the values of the source.
        uncertain: the condition for rows whose partition is not certain; None if there are none.
    """

    column: str
    rows: RowCondition
    lake_types: tuple[str, ...]
    uncertain: RowCondition | None


def partition_condition(
    layout: PartitionLayout, spans: Sequence[Span], schema: TableSchema, source_types: Mapping[str, str]
) -> PartitionCondition | None:
    """Return the condition for rows with values within `spans`; None if the column or a value is of another type."""
    column = next((c.name for c in schema.columns if c.source_name.name.casefold() == layout.column), "")
    kind = next((k for k in _KINDS if k.source_type.fullmatch(source_types.get(column, "").upper())), None)
    if kind is None:
        return None
    try:
        where = " OR ".join(f"({_within(span, kind)})" for span in spans)
    except ValueError:
        return None
    zero = kind.zero and RowCondition((column,), f"{{0}} IS NULL OR {{0}} = {kind.zero}")
    return PartitionCondition(column, RowCondition((column,), where), kind.lake_types, zero or None)


def _integer(bound: int | str) -> str:
    if not isinstance(bound, int):
        raise ValueError("no integer")
    # A literal of Spark's that is out of the range of a long is a decimal.
    return str(bound)


def _date(bound: int | str) -> str:
    if not _DAY.fullmatch(str(bound)):
        raise ValueError("no date")
    return f"DATE'{date.fromisoformat(str(bound))}'"


def _datetime(bound: int | str) -> str:
    if not (_DAY.fullmatch(str(bound)) or _TIME.fullmatch(str(bound))):
        raise ValueError("no date and time")
    return f"TIMESTAMP_NTZ'{datetime.fromisoformat(str(bound))}'"


_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of columns.

    Attributes:
        lake_types: see `PartitionCondition`.
        literal: writes a bound in Spark SQL; raises ValueError if it is not one of this kind.
        zero: what connectors send for a date with a zero year, month or day if the column is NOT NULL; otherwise NULL.
    """

    source_type: re.Pattern[str]
    lake_types: tuple[str, ...]
    literal: Callable[[int | str], str]
    zero: str | None = None


_KINDS: Final = (
    _Kind(re.compile(r"BIGINT\b.*UNSIGNED.*"), ("decimal",), _integer),
    _Kind(re.compile(r"(TINY|SMALL|MEDIUM|BIG)?INT(EGER)?\b.*"), ("int", "long", "decimal"), _integer),
    _Kind(re.compile(r"DATE"), ("date",), _date, "DATE'1970-01-01'"),
    _Kind(re.compile(r"DATETIME(\(\d\))?"), ("timestamp",), _datetime, "TIMESTAMP_NTZ'1970-01-01 00:00:00'"),
)


def _within(span: Span, kind: _Kind) -> str:
    start, end = ("" if bound is None else kind.literal(bound) for bound in span)
    parts = ([f"{{0}} >= {start}"] if start else []) + ([f"{{0}} < {end}"] if end else [])
    text = " AND ".join(parts) or "TRUE"
    return f"{{0}} IS NOT NULL AND {text}" if start else f"{{0}} IS NULL OR {text}"
