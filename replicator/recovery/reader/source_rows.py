"""Read rows of a source table with Spark, as values that binlog events have too."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.arrow_types import arrow_type
from replicator.config import SourceConfig
from replicator.decode.records import each_part, run_in_workers
from replicator.decode.transforms import transformed
from replicator.errors import ColumnsDiffer
from replicator.jvm.json_columns import compact_json
from replicator.model.common import quoted
from replicator.model.table import Column, TableSchema
from replicator.model.types import LakeType, spark_sql_name
from replicator.schema.types.table import Wire
from replicator.sources.mysql.connection import jdbc_url
from replicator.sources.mysql.table_rows import SourceColumn, SourceTable

_ROW_BY_ROW: Final = str(-(1 << 31))
"""The fetch size with which the driver does not hold the whole result in memory."""


def matched_columns(table: SourceTable, schema: TableSchema) -> list[tuple[SourceColumn, Column]]:
    """Return the columns to read, each with its column in the lake.

    Raises:
        ColumnsDiffer: the source has other columns than `schema`.
    """
    present = {c.column.name: c for c in table.columns}
    wanted = {c.source_name.name: c for c in schema.columns}
    if missing := wanted.keys() - present.keys():
        raise ColumnsDiffer(f"{table.table} has no column {min(missing)} any more")
    if added := present.keys() - wanted.keys() - set(schema.left_out):
        raise ColumnsDiffer(f"{table.table} has a column {min(added)} that its definition lacks")
    return [(present[name], column) for name, column in wanted.items()]


def read_rows(
    session: SparkSession,
    source: SourceConfig,
    query: str,
    ranges: Sequence[str],
    columns: Sequence[tuple[SourceColumn, Column]],
) -> DataFrame:
    """Return the rows of `SourceTable.rows_query` in the lake's columns; each condition of `ranges` is a task."""
    password = "" if source.password is None else source.password.reveal().get_secret_value()
    raw = session.read.jdbc(
        jdbc_url(source),
        f"({query}) t",
        predicates=list(ranges),
        properties={
            "driver": "com.mysql.cj.jdbc.Driver",
            "user": source.server().user,
            "password": password,
            "fetchsize": _ROW_BY_ROW,
        },
    )
    rows = raw.select(*(_value(F.col(f"c{i}"), *pair) for i, pair in enumerate(columns)))
    if any(column.transform is not None for _, column in columns):
        kinds = tuple((source.column.type, column) for source, column in columns)
        schema = pa.schema([(column.name, arrow_type(column.type)) for _, column in columns])
        rows = run_in_workers(rows, partial(each_part, partial(_transformed_rows, kinds, schema)), schema)
    return rows.select(
        *(F.col(quoted(c.name)).cast(spark_sql_name(c.type)).alias(c.name) for _, c in columns)
    )


def _value(value: SparkColumn, source: SourceColumn, column: Column) -> SparkColumn:
    """Return a value as the column has it in the source, in the lake's type."""
    kind = source.column.type
    decoded = _decoded(value, source.wire, kind.name).cast(spark_sql_name(kind))
    if source.declared == "json":
        decoded = compact_json(decoded)
    return decoded.alias(column.name)


def _transformed_rows(
    kinds: Sequence[tuple[LakeType, Column]], schema: pa.Schema, rows: pa.Table
) -> pa.Table:
    """Apply the columns' rules to rows with values of these types."""
    values = [
        transformed(found.combine_chunks(), kind, column.transform)
        for found, (kind, column) in zip(rows.columns, kinds, strict=True)
    ]
    return pa.table([v.cast(field.type) for v, field in zip(values, schema, strict=True)], schema=schema)


def _decoded(value: SparkColumn, wire: Wire, kind: str) -> SparkColumn:
    match wire:
        case Wire.DAYS:
            return F.date_from_unix_date(value.cast("int"))
        case Wire.MICROS:
            moment = F.timestamp_micros(value.cast("long"))
            return moment if kind == "timestamptz" else moment.cast("timestamp_ntz")
        case Wire.LONG if kind == "boolean":
            return value != 0
        case Wire.FLOATS:
            return _floats(value)
        case _:
            return value


def _floats(digits: SparkColumn) -> SparkColumn:
    """Return the floats of a VECTOR from the hexadecimal digits of its bytes, little-endian."""
    words = F.regexp_extract_all(digits, F.lit("(.{8})"), F.lit(1))
    return F.transform(words, _float)


def _float(word: SparkColumn) -> SparkColumn:
    """Return an IEEE 754 float; all steps are exact in doubles."""
    octets = [F.substring(word, i, 2) for i in (7, 5, 3, 1)]
    bits = F.conv(F.concat(*octets), 16, 10).cast("long")
    sign = F.when(F.shiftright(bits, 31) == 1, F.lit(-1.0)).otherwise(F.lit(1.0))
    exponent = F.shiftright(bits, 23).bitwiseAND(F.lit(255))
    fraction = bits.bitwiseAND(F.lit((1 << 23) - 1)).cast("double") / F.lit(float(1 << 23))
    normal = F.pow(F.lit(2.0), exponent - 127) * (fraction + 1.0)
    small = F.pow(F.lit(2.0), F.lit(-126)) * fraction
    return (sign * F.when(exponent == 0, small).otherwise(normal)).cast("float")
