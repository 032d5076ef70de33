"""A table with a column of each type, and its data files: written by the driver and by Spark."""
# ruff: noqa: DTZ001 values of columns without a time zone

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.data_files import cast_to_table, stage_data
from replicator.lake.files.driver_files import WrittenData, writable_rows, write_data
from replicator.model.commit_marker import CommitMarker

SCHEMA = """{"type": "struct", "fields": [
  {"id": 1, "name": "id", "type": "long", "required": true},
  {"id": 2, "name": "a.b", "type": "int", "required": false},
  {"id": 3, "name": "text", "type": "string", "required": false},
  {"id": 4, "name": "bytes", "type": "binary", "required": false},
  {"id": 5, "name": "day", "type": "date", "required": false},
  {"id": 6, "name": "local", "type": "timestamp", "required": false},
  {"id": 7, "name": "instant", "type": "timestamptz", "required": false},
  {"id": 8, "name": "short", "type": "decimal(9, 2)", "required": false},
  {"id": 9, "name": "long", "type": "decimal(18, 0)", "required": false},
  {"id": 10, "name": "wide", "type": "decimal(38, 6)", "required": false},
  {"id": 11, "name": "flag", "type": "boolean", "required": false},
  {"id": 12, "name": "single", "type": "float", "required": false},
  {"id": 13, "name": "double", "type": "double", "required": false},
  {"id": 14, "name": "vector", "type": {"type": "list", "element-id": 18, "element": "float",
    "element-required": false}, "required": false},
  {"id": 15, "name": "empty", "type": "string", "required": false},
  {"id": 16, "name": "change", "type": {"type": "struct", "fields": [
    {"id": 17, "name": "kind", "type": "string", "required": false}]}, "required": false}]}"""

ROWS: dict[str, pa.Array] = {
    "id": pa.array([3, -1, 7, 4]),
    "a.b": pa.array([2**31 - 1, None, -(2**31), 0], pa.int32()),
    "text": pa.array(["a" * 40, "ä" * 20, None, "\U0010ffff" * 17]),
    "bytes": pa.array([b"", b"\xff" * 20, b"\x00", None], pa.binary()),
    "day": pa.array([date(1969, 12, 31), date(9999, 12, 31), date(1, 1, 1), None]),
    "local": pa.array(
        [datetime(1969, 12, 31, 23, 59, 59, 999999), None, datetime(9999, 1, 1), datetime(1, 1, 1)]
    ),
    "instant": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None, None, datetime(1970, 1, 1, tzinfo=UTC)]),
    "short": pa.array([Decimal("-9999999.99"), Decimal("0.01"), None, Decimal(5)], pa.decimal128(9, 2)),
    "long": pa.array([Decimal(10**17), Decimal(-1), None, Decimal(0)], pa.decimal128(18, 0)),
    "wide": pa.array([Decimal(10**31), Decimal("-0.000001"), None, Decimal(7)], pa.decimal128(38, 6)),
    "flag": pa.array([True, False, None, True]),
    "single": pa.array([1.5, -0.0, None, 3e38], pa.float32()),
    "double": pa.array([1e308, 0.0, None, -5e-324]),
    "vector": pa.array([[1.0, 2.0], [], None, [0.5]], pa.list_(pa.float32())),
    "change": pa.array([{"kind": "b" * 30}, {"kind": None}, None, {"kind": "a"}]),
}


MARKER = CommitMarker("shop", 1, 1, {}, None, 0, 0)
METRICS = (
    "record_count",
    "value_counts",
    "null_value_counts",
    "lower_bounds",
    "upper_bounds",
    "sort_order_id",
    "spec_id",
)


def create(tables: Lake, name: str, spec: str | None = None, **properties: str) -> LakeTable:
    return tables.create("shop", name, SCHEMA, spec, properties)


def reloaded(tables: Lake, table: LakeTable) -> LakeTable:
    found = tables.load(table.namespace, table.name)
    assert found is not None
    return found


def write_with_driver(tables: Lake, table: LakeTable, rows: pa.Table) -> list[WrittenData]:
    """Append rows with the driver, and return the data files."""
    parts = writable_rows(table, rows)
    assert parts is not None
    written = [write_data(tables, table, part) for part in parts]
    publish(tables, table, table.marker(), MARKER, Staged([data.file for data in written]))
    return written


def write_with_spark(tables: Lake, table: LakeTable, rows: pa.Table) -> None:
    """Append rows with a Spark job."""
    frame = cast_to_table(local_frame(tables.spark, rows), table.columns(), struct="change")
    publish(tables, table, table.marker(), MARKER, Staged(stage_data(tables, table, frame)))


def file_rows(tables: Lake, name: str) -> list[dict[str, Any]]:
    """Return what the metadata of a table says about each of its files, as Spark reads it."""
    rows = tables.spark.sql(f"SELECT * FROM lake.shop.{name}.files").collect()
    return [row.asDict(recursive=True) for row in rows]
