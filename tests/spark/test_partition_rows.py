"""The driver groups rows by partition as Spark does, and writes a data file for each as Spark does."""
# ruff: noqa: DTZ001 values of columns without a time zone

import json
import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.driver_files import WrittenData, appended_files, appending_style, writable_rows
from replicator.lake.files.parquet import WrittenFile, fitting
from replicator.lake.files.partitions import data_file_ref
from replicator.lake.files.task_files import AppendedFiles, files_in
from replicator.lake.files.time_partitions import MOST_PARTITIONS
from tests.support.lake_harness import LakeHarness
from tests.support.table_files import (
    MARKER,
    METRICS,
    ROWS,
    SCHEMA,
    create,
    file_rows,
    reloaded,
    write_with_driver,
    write_with_spark,
)

IDS = {field["name"]: field["id"] for field in json.loads(SCHEMA)["fields"]} | {"kind": 17}
EXACT = ("id", "a.b", "text", "bytes", "day", "local", "instant", "short", "long", "wide")
TRANSFORMS: dict[str, tuple[str, ...]] = {
    "identity": (*EXACT, "flag", "kind"),
    "bucket[7]": (*EXACT, "kind"),
    "truncate[3]": ("id", "a.b", "text", "bytes", "short", "long", "wide", "kind"),
    "year": ("day", "local", "instant"),
    "month": ("day", "local", "instant"),
    "day": ("day", "local", "instant"),
    "hour": ("local", "instant"),
    "void": ("id", "text", "double"),
}
TEXTS = (
    *("", "a", "ab", "abc", "abcd", "null", "a/b=c d", "50%", "+1", "\u0000", "\\", '"', "\n\t"),
    # A letter and its accent, signs beyond 16 bits, and signs on both sides of the surrogates.
    *("e\u0301e\u0301", "\u00e9", "\U0001f600" * 4, "\ud7ff\ue000\uffff", "\U0010ffff", "ẞß"),
)  # fmt: skip
FIRST_RESERVED_ID = 2**31 - 201
"""Iceberg's own columns have field ids from here on."""


def spec(*fields: tuple[str, str]) -> str:
    """Return a partition spec of transforms and columns in Iceberg's JSON form."""
    return json.dumps(
        {
            "spec-id": 0,
            "fields": [
                {"source-id": IDS[name], "field-id": 1000 + i, "name": f"p{i}", "transform": transform}
                for i, (transform, name) in enumerate(fields)
            ],
        }
    )


def random_rows(seed: int, count: int) -> pa.Table:
    """Return rows of any values; a tenth of them null."""
    chance = random.Random(seed)

    def values(kind: pa.DataType, value: Any) -> pa.Array:
        return pa.array([None if chance.random() < 0.1 else value() for _ in range(count)], kind)

    def whole(bits: int) -> int:
        return chance.randint(-(2**bits), 2**bits - 1) >> chance.randrange(bits)

    def moment() -> datetime:
        return chance.choice(
            (
                datetime(1970, 1, 1) + timedelta(microseconds=chance.randint(-(10**7), 10**7)),
                datetime(1, 1, 1) + timedelta(seconds=chance.randrange(315_000_000_000)),
            )
        )

    def number(digits: int, scale: int) -> Decimal:
        return Decimal(
            chance.randint(-(10**digits) + 1, 10**digits - 1) // 10 ** chance.randrange(digits)
        ).scaleb(-scale)

    absent = pa.array(chance.random() < 0.1 for _ in range(count))
    texts = values(pa.string(), lambda: chance.choice(TEXTS) + chance.choice(("", "x")))
    return pa.table(
        {
            "id": pa.array([whole(63) for _ in range(count)]),
            "a.b": values(pa.int32(), lambda: whole(31)),
            "text": texts,
            "bytes": values(pa.binary(), lambda: chance.randbytes(chance.randrange(6))),
            "day": values(pa.date32(), lambda: date(1969, 12, 30) + timedelta(days=chance.randrange(-9999, 9999))),
            "local": values(pa.timestamp("us"), moment),
            "instant": values(pa.timestamp("us", "UTC"), lambda: moment().replace(tzinfo=UTC)),
            "short": values(pa.decimal128(9, 2), lambda: number(9, 2)),
            "long": values(pa.decimal128(18, 0), lambda: number(18, 0)),
            "wide": values(pa.decimal128(38, 6), lambda: number(28, 6)),
            "flag": values(pa.bool_(), lambda: chance.random() < 0.5),
            "change": pa.StructArray.from_arrays([texts], ["kind"], mask=absent),
        }
    )  # fmt: skip


@pytest.fixture
def tables(lake: LakeHarness) -> Lake:
    tables = Lake(lake.session(lake.config()))
    tables.ensure_namespace("shop")
    return tables


def leaf_columns(path: str) -> list[tuple[object, ...]]:
    """Return the columns of a Parquet file: their types and field ids."""
    file = pq.ParquetFile(Path(unquote(urlsplit(path).path)) if path.startswith("file:") else Path(path))
    ids = [(str(field.type), (field.metadata or {})[b"PARQUET:field_id"]) for field in file.schema_arrow]
    columns = [file.schema.column(i) for i in range(len(file.schema))]
    return [*ids, *((c.physical_type, str(c.logical_type), c.max_definition_level) for c in columns)]


def described(tables: Lake, name: str) -> dict[str, dict[str, Any]]:
    """Return spec and partition → the metrics of the data file."""
    return {
        f"{file['spec_id']} {file.get('partition')}": {metric: comparable(file[metric]) for metric in METRICS}
        for file in file_rows(tables, name)
    }


def comparable(metric: Any) -> Any:
    """Return counts or bounds without those of row ids, and with -0.0 in place of 0.0 in bounds.

    Spark writes null row ids for rows that have none yet. Parquet's statistics, and so the driver's, have both zeros as
    the bounds of each of them.
    """
    if not isinstance(metric, dict):
        return metric
    zeros = {struct.pack(kind, 0.0): struct.pack(kind, -0.0) for kind in ("<f", "<d")}
    floats = (IDS["single"], IDS["double"])
    return {
        number: zeros.get(value, value) if number in floats and isinstance(value, bytes) else value
        for number, value in metric.items()
        if number < FIRST_RESERVED_ID
    }


def folders(tables: Lake, name: str) -> dict[str, tuple[str, str]]:
    """Return partition → the path of its only data file, and its folder in the table."""
    paths = {repr(file.get("partition")): file["file_path"] for file in file_rows(tables, name)}
    return {
        partition: (path, path.partition("/data/")[2].rpartition("/")[0]) for partition, path in paths.items()
    }


def rows_of(tables: Lake, table: LakeTable) -> list[str]:
    return sorted(map(str, tables.spark.read.table(table.sql_name).collect()))


def assert_same_files(tables: Lake, own: LakeTable, other: LakeTable) -> None:
    """Compare the files of two tables with the same rows."""
    assert described(tables, own.name) == described(tables, other.name)
    own_files, other_files = folders(tables, own.name), folders(tables, other.name)
    for partition, (path, folder) in own_files.items():
        assert folder == other_files[partition][1]
        assert leaf_columns(path) == leaf_columns(other_files[partition][0])
    assert rows_of(tables, own) == rows_of(tables, other)


def assert_known(tables: Lake, table: LakeTable, written: list[WrittenData]) -> None:
    """Compare the partitions that the driver knows of its newest files with those in the table's metadata."""
    table = reloaded(tables, table)
    committed = [
        data_file_ref(table, file) for file in table.java.currentSnapshot().addedDataFiles(table.java.io())
    ]
    known = {data.path: data.partition and data.partition.label for data in written}
    assert known == {ref.path: ref.partition and ref.partition.label for ref in committed}


def both(tables: Lake, partitions: str | None, **properties: str) -> tuple[LakeTable, LakeTable]:
    """Return two equal tables: one for the driver, one for Spark."""
    return create(tables, "driver", partitions, **properties), create(
        tables, "spark", partitions, **properties
    )


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_files_equal_those_of_spark_in_a_table_partitioned_by_all_columns(
    tables: Lake, transform: str
) -> None:
    own, other = both(tables, spec(*((transform, name) for name in TRANSFORMS[transform])))
    rows = pa.table(ROWS)
    assert_known(tables, own, write_with_driver(tables, own, rows))
    write_with_spark(tables, other, rows)
    assert_same_files(tables, own, other)


@pytest.mark.parametrize(
    ("transform", "names"),
    [
        *((transform, TRANSFORMS[transform]) for transform in TRANSFORMS if transform != "void"),
        *(
            ("bucket[7]", ("id",)),
            ("truncate[3]", ("text",)),
            ("year", ("instant",)),
            ("identity", ("flag", "kind")),
        ),
    ],
)
def test_many_rows_are_in_the_partitions_in_which_spark_puts_them(
    tables: Lake, transform: str, names: tuple[str, ...]
) -> None:
    own, other = both(tables, spec(*((transform, name) for name in names)))
    rows = random_rows(len(names), 60)
    assert_known(tables, own, write_with_driver(tables, own, rows))
    write_with_spark(tables, other, rows)
    assert_same_files(tables, own, other)


@pytest.mark.parametrize("format_version", ["1", "2", "3"])
def test_files_equal_those_of_spark_in_a_table_whose_partition_spec_was_changed(
    tables: Lake, format_version: str
) -> None:
    """From format version 2 on a dropped field leaves the spec; before, it stays as `void`."""
    changes = (
        *(
            "ADD PARTITION FIELD bucket(3, id)",
            "ADD PARTITION FIELD truncate(2, text)",
            "RENAME COLUMN id TO number",
        ),
        *(
            "ALTER COLUMN `a.b` TYPE bigint",
            "ADD PARTITION FIELD bucket(2, `a.b`)",
            "DROP PARTITION FIELD id_bucket_3",
        ),
        *("DROP PARTITION FIELD text_trunc_2", "DROP PARTITION FIELD `a.b_bucket_2`"),
    )
    own, other = both(tables, None, **{"format-version": format_version})
    rows = pa.table(ROWS)
    for change in ("", *changes):
        for table in (own, other) if change else ():
            tables.spark.sql(f"ALTER TABLE {table.sql_name} {change}")
        own, other = reloaded(tables, own), reloaded(tables, other)
        if change.startswith("RENAME"):
            rows = rows.rename_columns({"id": "number"})
        assert_known(tables, own, write_with_driver(tables, own, rows))
        write_with_spark(tables, other, rows)
        assert described(tables, "driver") == described(tables, "spark")
    specs = {file["spec_id"] for file in file_rows(tables, "driver")}
    assert len(specs) == len(own.java.specs()) > 5
    assert rows_of(tables, own) == rows_of(tables, other)


@pytest.mark.parametrize("name", ["single", "double"])
def test_driver_leaves_partitions_of_floating_point_numbers_to_spark(tables: Lake, name: str) -> None:
    table = create(tables, "orders", spec(("identity", name)))
    assert writable_rows(table, pa.table(ROWS)) is None


def test_driver_leaves_rows_of_many_partitions_to_spark(tables: Lake) -> None:
    table = create(tables, "orders", spec(("identity", "id")))
    parts = writable_rows(table, pa.table({"id": range(MOST_PARTITIONS)}))
    assert parts is not None
    assert len(parts) == MOST_PARTITIONS
    assert writable_rows(table, pa.table({"id": range(MOST_PARTITIONS + 1)})) is None


def test_driver_leaves_very_long_values_to_spark(tables: Lake) -> None:
    table = create(tables, "orders", spec(("truncate[2]", "text")))
    assert writable_rows(table, pa.table({"id": [1], "text": ["x" * 3_000_000]})) is not None
    assert writable_rows(table, pa.table({"id": [1], "text": ["x" * 5_000_000]})) is None


def test_rows_keep_their_order_in_each_partition(tables: Lake) -> None:
    table = create(tables, "orders", spec(("truncate[10]", "id"), ("identity", "flag")))
    ids = random.Random(1).sample(range(40), 40)
    rows = pa.table({"id": ids, "flag": [number % 2 == 0 for number in ids]})
    parts = writable_rows(table, rows)
    assert parts is not None
    found = [part.rows.column("id").to_pylist() for part in parts]
    wanted = [[n for n in ids if (n // 10, n % 2) == (group[0] // 10, group[0] % 2)] for group in found]
    assert found == wanted
    assert len(found) == 8


def write_with_workers(tables: Lake, table: LakeTable, rows: pa.Table) -> None:
    """Append rows as Spark's workers write them."""
    style = appending_style(table)
    assert style is not None
    fitted = fitting(rows, style.schema)
    assert fitted is not None
    files = AppendedFiles(style, "label")
    found = [row for batch in (*files.add(fitted), *files.close()) for row in batch.to_pylist()]
    data = appended_files(tables, table, style, files_in(found))
    assert data is not None
    publish(tables, table, table.marker(), MARKER, Staged(data))


@pytest.mark.parametrize(
    ("transform", "name"),
    [(transform, name) for transform in ("hour", "day") for name in TRANSFORMS[transform]],
)
def test_workers_put_rows_into_the_partitions_in_which_spark_puts_them(
    tables: Lake, transform: str, name: str
) -> None:
    own, other = both(tables, spec((transform, name)))
    rows = random_rows(len(name), 60)
    write_with_workers(tables, own, rows)
    write_with_spark(tables, other, rows)
    assert described(tables, "driver") == described(tables, "spark")
    assert rows_of(tables, own) == rows_of(tables, other)


def test_workers_write_no_tables_with_other_partitions(tables: Lake) -> None:
    specs = [(("month", "day"),), (("identity", "day"),), (("day", "day"), ("hour", "instant"))]
    for number, fields in enumerate(specs):
        assert appending_style(create(tables, f"t{number}", spec(*fields))) is None
    table = create(tables, "changed", spec(("day", "day")))
    tables.spark.sql("ALTER TABLE lake.shop.changed DROP PARTITION FIELD p0")
    table = reloaded(tables, table)
    assert appending_style(table) is not None
    write_with_workers(tables, table, pa.table(ROWS))
    assert len(rows_of(tables, table)) == pa.table(ROWS).num_rows


def test_partitions_that_python_has_no_times_for_are_left_to_spark(tables: Lake) -> None:
    table = create(tables, "orders", spec(("day", "instant")))
    style = appending_style(table)
    assert style is not None
    late = WrittenFile("file:/nowhere", 1, b"", 2**62)
    assert appended_files(tables, table, style, [late]) is None
