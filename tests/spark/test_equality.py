"""Equality deletes: written without reading the table, applied by maintenance, exact with every other strategy."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent

from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.driver_files import writable_rows, write_data, write_equality_deletes
from replicator.lake.reading.table_metadata import TableMetadata
from replicator.lake.rows.counts import row_count
from replicator.lake.strategies.equality import Equality, equality_keys
from replicator.maintenance.plan import Step
from replicator.maintenance.steps import Maintenance
from replicator.model.commit_marker import CommitMarker
from replicator.operations.status.read import read_status
from tests.oracle.equality_deletes import entries
from tests.oracle.events import ColumnSpec, Place, change_event, key_of, schema_change_event
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import changes, images, state_after, table, total, write
from tests.support.orders_table import ORDERS, created

EQUALITY = {"strategy": "equality"}
NO_MAINTENANCE = {"enabled": False}


def advance(lake: LakeHarness, batches: list[list[Record]], cut: int, *parts: dict[str, Any]) -> None:
    """Apply the batches one by one: those before `cut` with the first sections of the configuration, then the others.

    Each of the `parts` is a process of its own.
    """
    write(lake, batches)
    end = 0
    for sections, group in zip(parts, (batches[:cut], batches[cut:]), strict=True):
        mirror = lake.mirror(lake.config(**sections))
        for batch in group:
            end += len(batch)
            mirror.advance({ORDERS: {0: end}})
        assert mirror.summary().paused == {}


def assert_exact(lake: LakeHarness, batches: list[list[Record]]) -> None:
    """Assert that an independent reader and Spark find the rows of the source, and the changelog each change."""
    rows = lake.rows("orders")
    wanted = sorted(state_after(batches).items())
    assert sorted((row["id"], row["name"]) for row in rows) == wanted
    loaded = lake.session(lake.config()).read.table("lake.shop.orders")
    assert sorted((row.id, row.name) for row in loaded.collect()) == wanted
    assert len(lake.rows("orders", "shop_changes")) == sum(
        2 if value["op"] == "u" else 1 for value in images(batches)
    )


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
@pytest.mark.parametrize("first", ["split", "equality"])
def test_table_stays_exact_when_the_strategy_changes(
    lake: LakeHarness, first: str, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    batches, second = changes(21, batches=8), {"split": "equality", "equality": "split"}[first]
    parts = [{"apply": {"strategy": name}, "maintenance": NO_MAINTENANCE} for name in (first, second)]
    advance(lake, batches, 4, *parts)
    assert_exact(lake, batches)
    found = table(lake)
    assert total(found, "equality-deletes") > 0
    assert total(found, "position-deletes") > 0
    with pytest.raises(ValueError, match="equality deletes"):
        found.scan().to_arrow()
    assert row_count(TableMetadata.of(found)) is None
    deletes = [total(found, "delete-files"), len(entries(found, DataFileContent.EQUALITY_DELETES))]
    status = read_status(lake.config())
    for entry in (status.tables[0], status.maintenance[0]):
        assert [entry.delete_files, entry.equality_delete_files] == deletes
        assert entry.equality_deletes == total(found, "equality-deletes")
    assert deletes[0] > deletes[1] > 0


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_each_commit_has_one_delete_file_with_the_keys_of_the_batch(
    lake: LakeHarness, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(22, batches=3)
    sections = {"apply": EQUALITY, "maintenance": NO_MAINTENANCE}
    advance(lake, batches, 1, sections, sections)
    deletes = entries(table(lake), DataFileContent.EQUALITY_DELETES)
    keys = [{(value["after"] or value["before"])["id"] for value in images([batch])} for batch in batches[1:]]
    assert sorted(found.data_file.record_count for found in deletes) == sorted(map(len, keys))
    assert entries(table(lake), DataFileContent.POSITION_DELETES) == []
    assert_exact(lake, batches)


@pytest.mark.parametrize("after", ["equality", "split"])
def test_maintenance_applies_equality_deletes_beside_the_stream(lake: LakeHarness, after: str) -> None:
    batches = changes(23, batches=14)
    maintenance = {"merge_files": 3, "max_snapshots": 8, "max_lag": "100000 days"}
    advance(
        lake,
        batches,
        10,
        {"apply": EQUALITY, "maintenance": maintenance},
        {"apply": {"strategy": after}, "maintenance": maintenance},
    )
    assert_exact(lake, batches)
    assert total(table(lake), "delete-files") < 6
    assert total(table(lake), "data-files") < 6


def maintained(lake: LakeHarness, loaded: LakeTable, tables: Lake) -> Maintenance:
    return Maintenance(tables, loaded, lake.config(maintenance={"merge_files": 2}).maintenance)


def test_keys_that_are_deleted_while_maintenance_rewrites_stay_deleted(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the stream falls between the reading and the commit of the rewrite."""
    batches = changes(24, batches=8)
    write(lake, batches)
    mirror = lake.mirror(lake.config(apply=EQUALITY, maintenance=NO_MAINTENANCE))
    ends = [sum(map(len, batches[: i + 1])) for i in range(len(batches))]
    for end in ends[:6]:
        mirror.advance({ORDERS: {0: end}})
    tables = Lake(lake.session(lake.config()))
    loaded = tables.load("shop", "orders")
    assert loaded is not None
    work = maintained(lake, loaded, tables)
    planned = work._rewrite_data

    def rewrite(step: Step, options: dict[str, object]) -> Any:
        # Iceberg's action plans on the table as it was loaded, and commits on the newest state.
        for end in ends[6:]:
            mirror.advance({ORDERS: {0: end}})
        return planned(step, options)

    monkeypatch.setattr(Maintenance, "_rewrite_data", lambda _, step, options: rewrite(step, options))
    report = work.run(Step.APPLY_EQUALITY)
    assert report.rewritten > 0
    assert_exact(lake, batches)
    assert mirror.summary().paused == {}


def test_maintenance_drops_equality_deletes_that_apply_to_no_file(lake: LakeHarness) -> None:
    """Iceberg keeps them as long as any older data file exists; inserts with ever larger keys delete nothing."""
    batches = [[created(batch * 10 + i) for i in range(5)] for batch in range(5)]
    sections = {"apply": EQUALITY, "maintenance": NO_MAINTENANCE}
    advance(lake, batches, 1, sections, sections)
    assert total(table(lake), "equality-deletes") == 20
    tables = Lake(lake.session(lake.config()))
    loaded = tables.load("shop", "orders")
    assert loaded is not None
    maintained(lake, loaded, tables).run(Step.APPLY_EQUALITY)
    assert total(table(lake), "equality-deletes") == 0
    assert total(table(lake), "delete-files") == 0
    assert total(table(lake), "data-files") == 5
    assert row_count(TableMetadata.of(table(lake))) == len(lake.rows("orders")) == 25


SCHEMA = """{"type": "struct", "fields": [
  {"id": 1, "name": "text", "type": "string", "required": true},
  {"id": 2, "name": "bytes", "type": "binary", "required": true},
  {"id": 3, "name": "amount", "type": "decimal(20, 2)", "required": true},
  {"id": 4, "name": "at", "type": "timestamp", "required": true},
  {"id": 5, "name": "number", "type": "long", "required": true},
  {"id": 6, "name": "maybe", "type": "long", "required": false},
  {"id": 7, "name": "share", "type": "double", "required": true}]}"""
KEY = ("text", "bytes", "amount", "at", "number")


@pytest.fixture
def tables(lake: LakeHarness) -> Lake:
    tables = Lake(lake.session(lake.config()))
    tables.ensure_namespace("shop")
    return tables


def rows_of_all_types() -> pa.Table:
    texts = ["a", "A", "a ", "\u00e4" * 30, ""]
    return pa.table(
        {
            "text": texts,
            "bytes": pa.array([b"", b"\x00", b"\xff" * 40, b"a", b"b"], pa.binary()),
            "amount": pa.array(
                [Decimal("0.10"), Decimal(-5), Decimal(10**17), Decimal(0), Decimal("9.99")]
            ).cast(pa.decimal128(20, 2)),
            "at": pa.array([0, -1, 253402300799999999, 1, 2], pa.timestamp("us")),
            "number": pa.array([1, -(2**63), 2**63 - 1, 0, 5]),
            "maybe": pa.nulls(5, pa.int64()),
            "share": [0.0] * 5,
        }
    )


def test_keys_of_every_type_delete_exactly_their_rows(tables: Lake) -> None:
    table, rows = tables.create("shop", "types", SCHEMA, None, {}), rows_of_all_types()
    writable = writable_rows(table, rows)
    assert writable is not None
    first = CommitMarker("shop", 1, 1, {}, None, 0, 0)
    publish(tables, table, None, first, Staged([write_data(tables, table, part).file for part in writable]))
    loaded = tables.load("shop", "types")
    assert loaded is not None
    keys = equality_keys(loaded, KEY, rows.select(KEY).slice(1, 3))
    assert keys is not None
    staged = Staged(equality_deletes=[write_equality_deletes(tables, loaded, keys)])
    publish(tables, loaded, first, CommitMarker("shop", 2, 1, {}, None, 0, 0), staged)
    left = tables.spark.read.table("lake.shop.types").select("text").collect()
    assert sorted(row.text for row in left) == ["", "a"]


@pytest.mark.parametrize(
    ("key", "partition", "reason"),
    [
        ((), None, "no key"),
        (("share",), None, "floating-point"),
        (("maybe",), None, "may be null"),
        (("number",), "bucket[2]", "partitioned"),
    ],
)
def test_tables_that_equality_deletes_do_not_fit_are_refused(
    tables: Lake, key: tuple[str, ...], partition: str | None, reason: str
) -> None:
    fields = f'[{{"name": "p", "transform": "{partition}", "source-id": 5, "field-id": 1000}}]'
    spec = None if partition is None else f'{{"spec-id": 0, "fields": {fields}}}'
    table = tables.create("shop", "odd", SCHEMA, spec, {})
    assert reason in (Equality().obstacle(table, key) or "")
    assert Equality().obstacle(tables.create("shop", "plain", SCHEMA, None, {}), KEY) is None


def test_keys_of_another_kind_than_the_column_are_refused(tables: Lake) -> None:
    table = tables.create("shop", "kinds", SCHEMA, None, {})
    narrow = equality_keys(table, ("number",), pa.table({"k0": pa.array([1], pa.int32())}))
    assert narrow is not None
    assert narrow.schema.types == [pa.int64()]
    assert equality_keys(table, ("text",), pa.table({"k0": pa.array([1])})) is None


def test_delete_files_have_the_metrics_of_icebergs_own_writer(lake: LakeHarness, tables: Lake) -> None:
    """Both have the same keys, bounds and counts."""
    jvm: Any = tables.spark._jvm
    numbers, texts = [2**40, 2**41, 2**50], ["b" * 30, "a", "\u00e4" * 20]
    table = tables.create("shop", "metrics", SCHEMA, None, {})
    keys = equality_keys(table, ("text", "number"), pa.table({"k0": texts, "k1": numbers}))
    assert keys is not None
    ids = tables.spark.sparkContext._gateway.new_array(jvm.int, 2)  # type: ignore[union-attr]
    ids[0], ids[1] = 1, 5
    schema = table.java.schema().select(["text", "number"])
    builder = getattr(jvm, "org.apache.iceberg.data.GenericFileWriterFactory$Builder")(table.java)
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    output = table.java.io().newOutputFile(f"{table.java.location()}/data/own.parquet")
    encrypted = table.java.encryption().encrypt(output)
    writer = factory.newEqualityDeleteWriter(encrypted, table.java.spec(), None)
    for number, text in zip(numbers, texts, strict=True):
        record = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
        record.setField("text", text)
        record.setField("number", number)
        writer.write(record)
    writer.close()
    files = [writer.toDeleteFile(), write_equality_deletes(tables, table, keys)]
    publish(tables, table, None, CommitMarker("shop", 1, 1, {}, None, 0, 0), Staged(equality_deletes=files))
    with lake.catalog() as catalog:
        found = [
            e.data_file
            for e in entries(catalog.load_table(("shop", "metrics")), DataFileContent.EQUALITY_DELETES)
        ]
    own, expected = (
        (
            f.equality_ids,
            f.record_count,
            f.value_counts,
            f.null_value_counts,
            f.lower_bounds,
            f.upper_bounds,
            f.spec_id,
        )
        for f in found
    )
    assert own == expected


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
@pytest.mark.long
def test_key_columns_are_renamed_and_dropped_while_equality_deletes_name_them(
    lake: LakeHarness, driver_max_events: int
) -> None:
    """Iceberg cannot read an equality-delete file with a column that the table no longer has."""
    lake.driver_max_events = driver_max_events
    columns = (ColumnSpec("id", "bigint", False), ColumnSpec("code", "bigint", False))
    renamed = (ColumnSpec("no", "bigint", False), columns[1])

    def row(pos: int, kind: str, before: dict[str, Any] | None, after: dict[str, Any]) -> Record:
        names = ["code"] if pos > 400 else [next(iter(after))]
        return Record(
            ORDERS,
            0,
            key_of(after, names),
            change_event(kind, Place(1, pos), "orders", before=before, after=after),
        )

    def define(pos: int, found: tuple[ColumnSpec, ...], key: str, ddl: str, kind: str = "ALTER") -> Record:
        value = schema_change_event(Place(1, pos), "orders", found, [key], kind=kind, ddl=ddl)
        return Record("shop", 0, None, value)

    steps = [
        [
            define(4, columns, "id", "CREATE TABLE orders (id bigint PRIMARY KEY, code bigint)", "CREATE"),
            row(100, "c", None, {"id": 1, "code": 10}),
            row(101, "c", None, {"id": 2, "code": 20}),
        ],
        [row(102, "u", {"id": 1, "code": 10}, {"id": 1, "code": 11})],
        [
            define(200, renamed, "no", "ALTER TABLE orders RENAME COLUMN id TO no"),
            row(201, "u", {"no": 2, "code": 20}, {"no": 2, "code": 21}),
        ],
        [
            define(400, renamed[1:], "code", "ALTER TABLE orders DROP COLUMN no, ADD PRIMARY KEY (code)"),
            row(401, "u", {"code": 11}, {"code": 11}),
            row(402, "c", None, {"code": 30}),
        ],
    ]
    config = lake.config(apply=EQUALITY, maintenance=NO_MAINTENANCE)
    found = []
    for records in steps:
        lake.write(records)
        assert lake.catch_up(config).summary().paused == {}
        read = lake.session(config).read.table("lake.shop.orders").collect()
        assert sorted(map(tuple, read)) == sorted(tuple(row.values()) for row in lake.rows("orders"))
        found.append(sorted(map(tuple, read)))
    assert found == [[(1, 10), (2, 20)], [(1, 11), (2, 20)], [(1, 11), (2, 21)], [(11,), (21,), (30,)]]
    assert total(table(lake), "equality-deletes") > 0
