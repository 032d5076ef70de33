"""Conditions with literal values, by which Iceberg skips files and Spark reads fewer rows."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.model.common import quoted

MOST: Final = 1_000
"""The maximum number of literals in a condition."""


def is_among(column: str, values: Sequence[object]) -> SparkColumn | None:
    """Return the condition that a column is null-safe among different values.

    None if there are too many, or if they are no literals. Of a time, Spark's literal depends on the time zone of this
    process; numbers with a floating point have two zeros.
    """
    if len(values) > MOST or not all(map(_is_literal, values)):
        return None
    known = [value for value in values if value is not None]
    either = F.col(quoted(column)).isin(known) if known else F.lit(False)
    return either | F.col(quoted(column)).isNull() if len(known) < len(values) else either


def _is_literal(value: object) -> bool:
    return value is None or (isinstance(value, (int, str, date, Decimal)) and not isinstance(value, datetime))
