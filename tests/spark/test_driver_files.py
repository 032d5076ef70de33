"""Data files that the driver writes are equal to those that Spark writes: rows, types, counts and bounds."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replicator.lake.catalog.tables import Lake
from replicator.lake.commit import Staged, publish
from replicator.lake.files.data_files import FilePositions, write_delete_files
from replicator.lake.files.deletes import StagedDeletes
from replicator.lake.files.driver_files import data_files, file_style, writable_rows
from replicator.lake.files.parquet import fitting, write_local
from replicator.lake.files.partitions import DataFileRef
from tests.support.lake_harness import LakeHarness
from tests.support.table_files import (
    MARKER,
    METRICS,
    ROWS,
    create,
    reloaded,
    write_with_driver,
    write_with_spark,
)


def files(lake: LakeHarness, name: str) -> list[dict[str, Any]]:
    with lake.catalog() as catalog:
        return catalog.load_table(("shop", name)).inspect.files().to_pylist()


@pytest.fixture
def tables(lake: LakeHarness) -> Lake:
    tables = Lake(lake.session(lake.config()))
    tables.ensure_namespace("shop")
    return tables


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
    write_with_driver(tables, create(tables, "driver", **properties), rows)
    write_with_spark(tables, create(tables, "spark", **properties), rows)
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
    write_with_driver(tables, create(tables, "driver"), rows)
    found = tables.spark.read.table("lake.shop.driver")
    assert [row.id for row in found.where("isnan(double)").collect()] == [1]
    assert [row.id for row in found.where("double <= 1").collect()] == [2]
    assert found.where("isnan(single)").count() == 3
    assert [row["id"] for row in lake.rows("driver")] == [1, 2, 3]


def test_files_of_workers_have_no_narrower_bounds_than_those_of_spark(
    lake: LakeHarness, tables: Lake
) -> None:
    """Arrow leaves out the bounds of long values; those of other rows must not take their place."""
    long = 5_000
    rows = pa.table(
        {
            "id": pa.array(range(4)),
            "a.b": pa.nulls(4, pa.int32()),
            "text": pa.array(["m", "a" + "x" * long, "z" + "\U0010ffff" * long, None]),
            "bytes": pa.array([b"\xff" * long, b"\x80", None, b""], pa.binary()),
            "short": pa.array(
                [Decimal("-0.01"), Decimal("-9999999.99"), Decimal("0.01"), None], pa.decimal128(9, 2)
            ),
            "long": pa.array([Decimal(-(10**17)), Decimal(10**17), None, Decimal(0)], pa.decimal128(18, 0)),
            "wide": pa.array(
                [Decimal(-(10**31)), Decimal("-0.000001"), None, Decimal(7)], pa.decimal128(38, 6)
            ),
            "single": pa.array([-0.0, float("nan"), None, 0.0], pa.float32()),
            "double": pa.array([float("nan"), -0.0, 0.0, None]),
            "change": pa.array([{"kind": "é" * 17}, {"kind": "b" * long}, None, {"kind": ""}]),
        }
    )
    worker = create(tables, "worker")
    style = file_style(worker)
    assert style is not None
    fitted = fitting(rows, style.schema)
    assert fitted is not None
    written = write_local(style, "label", fitted)
    write_with_spark(tables, create(tables, "spark"), rows)
    publish(tables, worker, None, MARKER, Staged(data_files(tables, worker, [written])))
    (own,), (spark,) = files(lake, "worker"), files(lake, "spark")
    for name in ("record_count", "value_counts", "null_value_counts"):
        assert own[name] == spark[name]
    for name in ("lower_bounds", "upper_bounds"):
        found, expected = dict(own[name]), dict(spark[name])
        assert found.items() <= expected.items(), name
        assert found.keys() >= expected.keys() - {3, 4, 17}
    frame = tables.spark.read.table("lake.shop.worker")
    for condition, count in {
        "text like 'ax%'": 1,
        "text > 'y'": 1,
        "text = 'm'": 1,
        "bytes = X'80'": 1,
        "length(bytes) = 0": 1,
        "change.kind like 'bb%'": 1,
        "double = 0": 2,
        "isnan(single)": 1,
        "wide < -1": 1,
        "`a.b` is null": 4,
    }.items():
        assert frame.where(condition).count() == count, condition


@pytest.mark.parametrize(
    "statement",
    [
        "WRITE ORDERED BY id",
        "SET TBLPROPERTIES ('write.format.default' = 'orc')",
        "SET TBLPROPERTIES ('write.parquet.bloom-filter-enabled.column.id' = 'true')",
        "SET TBLPROPERTIES ('write.parquet.compression-codec' = 'brotli')",
    ],
)
def test_driver_leaves_tables_with_other_layouts_to_spark(tables: Lake, statement: str) -> None:
    table = create(tables, "orders")
    tables.spark.sql(f"ALTER TABLE lake.shop.orders {statement}")
    assert writable_rows(reloaded(tables, table), pa.table(ROWS)) is None


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
        written += write_with_driver(tables, table, pa.table({"id": range(start, start + 10)}))
        table = reloaded(tables, table)
    assert table.snapshot_id is not None
    positions = [
        FilePositions(DataFileRef(data.path), np.arange(count))
        for data, count in zip(written, (4, 1, 2), strict=True)
    ]
    deletes = write_delete_files(tables, table, table.snapshot_id, positions, own_file=4)
    assert [sorted(len(p.positions) for p in file.positions) for file in deletes] == [[1, 2], [4]]
    publish(tables, table, MARKER, MARKER, Staged(deletes=StagedDeletes([file.file for file in deletes])))
    assert sorted(row["id"] for row in lake.rows("orders")) == [*range(4, 10), *range(11, 20), *range(22, 30)]
    assert tables.spark.read.table("lake.shop.orders").count() == 23
    own = [file for file in files(lake, "orders") if file["content"] == 1 and file["record_count"] == 4]
    bounds = [dict(own[0][name])[2147483546] for name in ("lower_bounds", "upper_bounds")]
    assert bounds == [written[0].path.encode()] * 2
