"""Rows of a source table as the lake would have them, read in the way in which re-reads read them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, text

from replicator.model.types import LakeType
from replicator.schema.types.table import Wire
from replicator.sources.mysql.table_rows import SourceColumn
from replicator.verify.compared_table import ComparedTable

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock


def use_session(connection: Connection) -> None:
    """Prepare a session as `table_rows` needs it."""
    connection.execution_options(isolation_level="AUTOCOMMIT")
    connection.execute(text("SET SESSION time_zone = '+00:00', sql_mode = ''"))


def lake_rows(connection: Connection, table: ComparedTable, order: str) -> pa.Table:
    """Return all rows of a table with the types of the lake, ordered by the column `order`."""
    wanted = {c.source: c for c in table.columns}
    columns = [c for c in table.source.columns if c.column.name in wanted]
    query = f"{table.source.rows_query(columns)} ORDER BY `{order}`"
    rows = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).all()
    arrays = {
        wanted[c.column.name].lake: pa.array([_value(row[i], c) for row in rows], arrow_type(c.column.type))
        for i, c in enumerate(columns)
    }
    return pa.table(arrays)


def arrow_type(kind: LakeType) -> pa.DataType:
    """Return the Arrow type of a lake type, as PyIceberg reads it."""
    simple: Mapping[str, pa.DataType] = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.large_string(),
        "binary": pa.large_binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
        "list<float>": pa.large_list(pa.float32()),
    }
    return pa.decimal128(kind.precision, kind.scale) if kind.name == "decimal" else simple[kind.name]


def _value(value: Any, column: SourceColumn) -> Any:
    if value is None:
        return None
    match column.wire, column.column.type.name:
        case Wire.LONG, "boolean":
            return bool(value)
        case Wire.DAYS, _:
            return int(value)
        case Wire.MICROS, name:
            moment = _EPOCH + timedelta(microseconds=int(value))
            return moment.replace(tzinfo=UTC) if name == "timestamptz" else moment
        case Wire.FLOATS, _:
            return np.frombuffer(bytes.fromhex(value), "<f4").tolist()
        case _, "decimal":
            return Decimal(str(value))
        case Wire.LONG, _:
            return int(value)
    return value


def source_forms(connection: Connection, table: ComparedTable, order: str) -> Sequence[Sequence[Any]]:
    """Return the canonical forms of all rows as MySQL computes them, by column."""
    forms = ", ".join(f"CAST({c.expression} AS BINARY)" for c in table.columns)
    query = f"SELECT {forms} FROM {table.source.name} ORDER BY `{order}`"
    rows = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).all()
    return list(zip(*rows, strict=True))
