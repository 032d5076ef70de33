"""Rows that the driver holds if they are few and small: reading them again takes a Spark job."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import LakeTable

MOST_ROWS: Final = 50_000
MOST_BYTES: Final = 200_000_000
_UNPACKED: Final = 10
"""How much larger a row is in memory than in a data file, about."""


def held_rows(rows: DataFrame, tables: Iterable[LakeTable], most_rows: int = MOST_ROWS) -> pa.Table | None:
    """Return rows if the driver can hold them, else None; they have at most about the size of those of `tables`."""
    most = min(most_rows, most_held(max((table.row_bytes for table in tables), default=0.0)))
    found = rows.limit(most + 1).toArrow()
    return found if found.num_rows <= most else None


def held_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return held rows as a frame of one partition. Spark knows that, so it groups and joins them without a shuffle."""
    return local_frame(spark, rows, schema).coalesce(1)


def net_rows(rows: pa.Table, weight: str) -> pa.Table:
    """Return changed rows with the weight 1 or -1, without equal ones that cancel each other.

    Of updates that change none of the columns, nothing is left. Rows with floating-point numbers, of which equal
    ones may differ, or with nested values, which cannot be grouped, are returned as they are.
    """
    fields = [field for field in rows.schema if field.name != weight]
    if not are_equal_as_in_sql(rows.schema, [field.name for field in fields]):
        return rows
    grouped = rows.group_by([field.name for field in fields]).aggregate([(weight, "sum")])
    sums = grouped.columns[-1].to_numpy()
    places = np.repeat(np.arange(len(sums)), np.abs(sums))
    signs = pa.array(np.sign(sums)[places], rows.schema.field(weight).type)
    return grouped.select(range(len(fields))).take(places).append_column(weight, signs)


def are_equal_as_in_sql(schema: pa.Schema, names: Sequence[str]) -> bool:
    """Return whether rows can be grouped and found by columns: there are some, whose values are equal as in SQL."""
    types = [schema.field(name).type for name in names]
    return bool(types) and not any(pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in types)


def spelt(rows: pa.Table, name: str) -> str:
    """Return the name of a column as rows have it; its letter case may differ."""
    return str(next(known for known in rows.column_names if known.lower() == name.lower()))


def plain_values(column: pa.ChunkedArray) -> list[object]:
    """Return the values of a column; dates and times as texts, as Python has none before the year 1 or after 9999."""
    is_time = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    return list((column.cast(pa.string()) if is_time else column).to_pylist())


def most_held(row_bytes: float) -> int:
    """Return of how many rows of a mean size in data files, in bytes, the driver has the memory."""
    return int(MOST_BYTES / max(_UNPACKED * row_bytes, 1))


def without_keys(rows: pa.Table, gone: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows without those whose key is in `gone`; null is a value."""
    if len(key) == 1:
        values = gone.column(key[0]).combine_chunks().cast(rows.schema.field(key[0]).type)
        return rows.filter(pc.invert(pc.is_in(rows.column(key[0]), value_set=values)))
    codes: np.ndarray[Any, np.dtype[np.int64]] = np.zeros(rows.num_rows + gone.num_rows, np.int64)
    for name in key:
        chunks = [*rows.column(name).chunks, *gone.column(name).chunks]
        found = pa.chunked_array(chunks, rows.column(name).type).combine_chunks().dictionary_encode("encode")
        # Numbers from 0 without a gap, so that the product fits.
        codes = codes * len(found.dictionary) + found.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]
    return rows.filter(pa.array(~np.isin(codes[: rows.num_rows], codes[rows.num_rows :])))
