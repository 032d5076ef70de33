"""Conditions with literal values, by which Iceberg skips files and Spark reads fewer rows."""

from typing import Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.model.common import quoted

MOST: Final = 1_000
"""The maximum number of literals in a condition."""


def is_among(column: str, values: pa.Array) -> SparkColumn | None:
    """Return the condition that a column is null-safe among different values.

    None if there are too many, or if they are no literals. Of a time, Spark's literal depends on the time zone of this
    process; numbers with a floating point have two zeros.
    """
    if len(values) > MOST or not _has_literals(values.type):
        return None
    known = values.drop_null()
    among = F.col(quoted(column)).isin(_literals(known)) if len(known) else F.lit(False)
    return among | F.col(quoted(column)).isNull() if values.null_count else among


def _has_literals(kind: pa.DataType) -> bool:
    has = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_decimal,
        pa.types.is_date32,
    )
    return any(matches(kind) for matches in has)


def _literals(values: pa.Array) -> list[object]:
    if not pa.types.is_date32(values.type):
        return list(values.to_pylist())
    # Python has no year 0, and does not write years below 1000 as Java reads them.
    return [F.date_from_unix_date(F.lit(days)) for days in values.cast(pa.int32()).to_pylist()]
