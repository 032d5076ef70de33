"""Data files that the driver writes are equal to those that Spark writes: rows, types, counts and bounds."""
# ruff: noqa: DTZ001 values of columns without a time zone

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replicator.jvm.spark import local_frame
from replicator.lake.catalog import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.data_files import FilePositions, cast_to_table, stage_data, write_delete_files
from replicator.lake.driver_files import writable_rows, write_data
from replicator.lake.partitions import DataFileRef
from replicator.lake.position_deletes import StagedDeletes
from replicator.model.commit_marker import CommitMarker
from tests.support.lake_harness import LakeHarness

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


@pytest.fixture
def tables(lake: LakeHarness) -> Lake:
    tables = Lake(lake.session(lake.config()))
    tables.ensure_namespace("shop")
    return tables


def create(tables: Lake, name: str, **properties: str) -> LakeTable:
    return tables.create("shop", name, SCHEMA, None, properties)


def marker() -> CommitMarker:
    return CommitMarker("shop", 1, 1, {}, None, 0, 0)


def written_by_driver(tables: Lake, name: str, rows: pa.Table, **properties: str) -> LakeTable:
    table = create(tables, name, **properties)
    writable = writable_rows(table, rows)
    assert writable is not None
    publish(tables, table, None, marker(), Staged([write_data(tables, table, writable).file]))
    return table


def written_by_spark(tables: Lake, name: str, rows: pa.Table, **properties: str) -> LakeTable:
    table = create(tables, name, **properties)
    frame = cast_to_table(local_frame(tables.spark, rows), table.columns(), struct="change")
    publish(tables, table, None, marker(), Staged(stage_data(tables, table, frame)))
    return table


def files(lake: LakeHarness, name: str) -> list[dict[str, Any]]:
    with lake.catalog() as catalog:
        return catalog.load_table(("shop", name)).inspect.files().to_pylist()


METRICS = (
    "record_count",
    "value_counts",
    "null_value_counts",
    "lower_bounds",
    "upper_bounds",
    "sort_order_id",
    "spec_id",
)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.metadata.metrics.default": "full"},
        {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.text": "counts"},
        {"write.parquet.compression-codec": "gzip"},
    ],
    ids=["default", "full", "none", "gzip"],
)
def test_driver_and_spark_write_the_same_rows_and_metrics(
    lake: LakeHarness, tables: Lake, properties: dict[str, str]
) -> None:
    rows = pa.table(ROWS)
    written_by_driver(tables, "driver", rows, **properties)
    written_by_spark(tables, "spark", rows, **properties)
    (own,), (expected,) = files(lake, "driver"), files(lake, "spark")
    assert {name: own[name] for name in METRICS} == {name: expected[name] for name in METRICS}
    columns = tables.spark.read.table("lake.shop.driver")
    assert columns.schema == tables.spark.read.table("lake.shop.spark").schema
    assert sorted(map(str, columns.collect())) == sorted(
        map(str, tables.spark.read.table("lake.shop.spark").collect())
    )
    assert lake.rows("driver") == lake.rows("spark")


def test_rows_with_nan_are_found_by_a_filter(lake: LakeHarness, tables: Lake) -> None:
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "double": [float("nan"), 1.0, None],
            "single": pa.array([float("nan")] * 3, pa.float32()),
        }
    )
    written_by_driver(tables, "driver", rows)
    found = tables.spark.read.table("lake.shop.driver")
    assert [row.id for row in found.where("isnan(double)").collect()] == [1]
    assert [row.id for row in found.where("double <= 1").collect()] == [2]
    assert found.where("isnan(single)").count() == 3
    assert [row["id"] for row in lake.rows("driver")] == [1, 2, 3]


@pytest.mark.parametrize(
    "statement",
    [
        "ADD PARTITION FIELD bucket(2, id)",
        "WRITE ORDERED BY id",
        "SET TBLPROPERTIES ('write.format.default' = 'orc')",
        "SET TBLPROPERTIES ('write.parquet.bloom-filter-enabled.column.id' = 'true')",
        "SET TBLPROPERTIES ('write.parquet.compression-codec' = 'brotli')",
    ],
)
def test_driver_leaves_tables_with_other_layouts_to_spark(tables: Lake, statement: str) -> None:
    create(tables, "orders")
    tables.spark.sql(f"ALTER TABLE lake.shop.orders {statement}")
    table = tables.load("shop", "orders")
    assert table is not None
    assert writable_rows(table, pa.table(ROWS)) is None


@pytest.mark.parametrize(
    "column",
    [pa.array([2**31]), pa.array(["x"]), pa.array([1.5])],
    ids=["too large", "text", "fraction"],
)
def test_driver_leaves_values_that_do_not_fit_the_column_to_spark(tables: Lake, column: pa.Array) -> None:
    rows = pa.table({"id": [1], "a.b": column})
    assert writable_rows(create(tables, "orders"), rows) is None


def test_a_data_file_with_many_deleted_rows_gets_a_delete_file_of_its_own(
    lake: LakeHarness, tables: Lake
) -> None:
    """Readers take a delete file for that of a single data file if its bounds of the path are equal."""
    table = create(tables, "orders")
    written = []
    for start in (0, 10, 20):
        rows = writable_rows(table, pa.table({"id": range(start, start + 10)}))
        assert rows is not None
        written.append(write_data(tables, table, rows))
    publish(tables, table, None, marker(), Staged([data.file for data in written]))
    table = tables.load("shop", "orders") or table
    assert table.snapshot_id is not None
    positions = [
        FilePositions(DataFileRef(data.path), np.arange(count))
        for data, count in zip(written, (4, 1, 2), strict=True)
    ]
    deletes = write_delete_files(tables, table, table.snapshot_id, positions, own_file=4)
    assert [sorted(len(p.positions) for p in file.positions) for file in deletes] == [[1, 2], [4]]
    publish(tables, table, marker(), marker(), Staged(deletes=StagedDeletes([file.file for file in deletes])))
    assert sorted(row["id"] for row in lake.rows("orders")) == [*range(4, 10), *range(11, 20), *range(22, 30)]
    assert tables.spark.read.table("lake.shop.orders").count() == 23
    own = [file for file in files(lake, "orders") if file["content"] == 1 and file["record_count"] == 4]
    bounds = [dict(own[0][name])[2147483546] for name in ("lower_bounds", "upper_bounds")]
    assert bounds == [written[0].path.encode()] * 2
