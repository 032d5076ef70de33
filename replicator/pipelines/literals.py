"""Conditions with literal values, by which Iceberg skips files and Spark reads fewer rows."""

import re
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.model.common import quoted

MOST: Final = 1_000
"""The maximum number of literals in a condition; the smallest and the largest of more values are in it."""
_PLAIN: Final = re.compile(r"[\w .:@/-]*")


def is_near(column: str, values: pa.Array) -> SparkColumn | None:
    """Return a condition that all rows meet of which a column is, null or not, among different values.

    Up to `MOST` values, other rows do not meet it. None if the values are no literals. Of a time, Spark's literal
    depends on the time zone of this process; numbers with a floating point have two zeros.
    """
    if not _has_literals(values.type):
        return None
    known = values.drop_null()
    if not len(known):
        near = F.lit(False)
    elif len(values) > MOST:
        ends = pc.min_max(known)
        low, high = _literals(pa.array([ends["min"], ends["max"]], known.type))
        near = F.expr(f"{quoted(column)} BETWEEN {low} AND {high}")
    else:
        near = F.expr(f"{quoted(column)} IN ({', '.join(_literals(known))})")
    return near | F.col(quoted(column)).isNull() if values.null_count else near


def _has_literals(kind: pa.DataType) -> bool:
    has = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_decimal,
        pa.types.is_date32,
    )
    return any(matches(kind) for matches in has)


def _literals(values: pa.Array) -> list[str]:
    """Return values in SQL: one text passes to Java in one call, and each literal alone in a call of its own."""
    if pa.types.is_date32(values.type):
        # Python has no year 0, and does not write years below 1000 as Java reads them.
        return [f"date_from_unix_date({days})" for days in values.cast(pa.int32()).to_pylist()]
    return [_literal(value) for value in values.to_pylist()]


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value)
        case int():
            return str(value) if -(2**31) <= value < 2**31 else f"{value}L"
        case Decimal():
            return f"{value:f}BD"
        case _:
            # Spark replaces ${...} in SQL, and what is an escape is a setting.
            text = str(value)
            return f"'{text}'" if _PLAIN.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"
