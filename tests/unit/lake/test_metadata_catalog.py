"""What is read of catalogs and metadata without PyIceberg, compared with what PyIceberg reads."""

import gzip
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import StaticTable, Table

from replicator.config import CATALOG_NAME, Config
from replicator.errors import LakeUnavailable
from replicator.lake.reading.catalog import load_readable, namespace_properties, readable_tables_in, tables_in
from replicator.lake.reading.manifests import Manifest, read_entries, read_manifests
from replicator.lake.reading.metadata_catalog import open_metadata
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.settings import sqlalchemy_uri
from replicator.lake.reading.table_metadata import TableMetadata
from tests.support.config import minimal_config
from tests.support.s3 import s3_bucket


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return minimal_config(tmp_path)


@pytest.fixture
def lake(config: Config, tmp_path: Path) -> Iterator[SqlCatalog]:
    (tmp_path / "lake").mkdir()
    warehouse = f"file://{config.lake.warehouse}"
    catalog = SqlCatalog(CATALOG_NAME, uri=sqlalchemy_uri(config.lake.uri or ""), warehouse=warehouse)
    catalog.create_namespace("shop", {"owner": "me"})
    yield catalog
    catalog.close()


def changed_table(lake: SqlCatalog) -> Table:
    """Create a table with several snapshots, schemas, a tag and deleted files."""
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})
    table = lake.create_table(("shop", "orders"), rows.schema, properties={"a": "b"})
    table.append(rows)
    table.append(rows)
    table.delete("id = 2")
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "first").commit()
    with table.update_schema() as update:
        update.rename_column("name", "title")
    return table


def test_metadata_is_what_pyiceberg_reads(config: Config, lake: SqlCatalog) -> None:
    table = changed_table(lake)
    with open_metadata(config.lake) as catalog:
        assert catalog.list_namespaces() == lake.list_namespaces()
        assert namespace_properties(catalog, "shop")["owner"] == "me"
        assert namespace_properties(catalog, "none") == {}
        assert tables_in(catalog, "none") == {}
        found = tables_in(catalog, "shop")["orders"]
        assert load_readable(catalog, "shop", "none") is None
    assert (found.name(), found.location) == (table.name(), table.metadata_location)
    assert (found.properties, found.tags) == (table.properties, ["first"])
    expected = TableMetadata.of(table)
    assert found.snapshots == expected.snapshots
    assert found.snapshot == expected.snapshot
    assert found.schema == expected.schema
    assert [field["name"] for field in found.schema["fields"]] == ["id", "title"]
    current = table.current_snapshot()
    assert found.snapshot is not None
    assert current is not None
    assert (found.snapshot.id, found.snapshot.sequence) == (current.snapshot_id, current.sequence_number)
    assert found.total("total-records") == table.scan().count() == 4
    assert found.files.size(found.location or "") == len(table.io.new_input(table.metadata_location))


def test_manifests_are_what_pyiceberg_reads(config: Config, lake: SqlCatalog) -> None:
    table = changed_table(lake)
    with open_metadata(config.lake) as catalog:
        found = tables_in(catalog, "shop")["orders"]
    for snapshot, known in zip(found.snapshots, table.metadata.snapshots, strict=True):
        manifests, others = read_manifests(found.files, snapshot.manifest_list), known.manifests(table.io)
        assert [(m.path, m.has_deletes, m.sequence) for m in manifests] == [
            (m.manifest_path, m.content == ManifestContent.DELETES, m.sequence_number) for m in others
        ]
        for manifest, other in zip(manifests, others, strict=True):
            assert [(e.path, e.content, e.rows, e.sequence) for e in read_entries(found.files, manifest)] == [
                (e.data_file.file_path, e.data_file.content, e.data_file.record_count, e.sequence_number)
                for e in other.fetch_manifest_entry(table.io)
            ]


def test_catalog_of_the_older_layout_and_views(config: Config, lake: SqlCatalog) -> None:
    changed_table(lake)
    assert config.lake.catalog_file is not None
    with sqlite3.connect(config.lake.catalog_file) as connection:
        connection.execute(
            "INSERT INTO iceberg_tables SELECT catalog_name, table_namespace, 'view', metadata_location, NULL, 'VIEW' "
            "FROM iceberg_tables"
        )
    with open_metadata(config.lake) as catalog:
        assert list(tables_in(catalog, "shop")) == ["orders"]
        assert load_readable(catalog, "shop", "view") is None
    with sqlite3.connect(config.lake.catalog_file) as connection:
        connection.execute("DELETE FROM iceberg_tables WHERE table_name = 'view'")
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    connection.close()
    with open_metadata(config.lake) as catalog:
        assert list(tables_in(catalog, "shop")) == ["orders"]


def test_compressed_metadata(config: Config, lake: SqlCatalog) -> None:
    table = changed_table(lake)
    file = Path(table.metadata_location.removeprefix("file://"))
    packed = file.with_name("v9.gz.metadata.json")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    with open_metadata(config.lake) as catalog:
        files = tables_in(catalog, "shop")["orders"].files
    assert (
        TableMetadata.read("shop", "orders", f"file://{packed}", files).schema
        == TableMetadata.of(table).schema
    )


def test_metadata_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_bucket() as bucket:
        settings = {"catalog": "jdbc", "uri": "jdbc:sqlite:catalog.db", "warehouse": bucket.url}
        options = bucket.configured(monkeypatch)
        config = minimal_config(tmp_path, lake={**settings, "namespace": "shop", "options": options})
        uri = sqlalchemy_uri(config.lake.uri or "")
        with closing(SqlCatalog(CATALOG_NAME, uri=uri, warehouse=bucket.url, **bucket.options)) as catalog:
            catalog.create_namespace("shop")
            expected = TableMetadata.of(changed_table(catalog))
        unreadable: dict[str, str] = {}
        with open_metadata(config.lake) as metadata:
            found = readable_tables_in(metadata, "shop", unreadable)["orders"]
        assert unreadable == {}
        assert found.snapshots == expected.snapshots
        assert found.files.size(found.location or "") == expected.files.size(expected.location or "")


def test_metadata_of_format_version_3(config: Config, lake: SqlCatalog, tmp_path: Path) -> None:
    """PyIceberg does not write it."""
    file = Path(changed_table(lake).metadata_location.removeprefix("file://"))
    newer = tmp_path / "v3.metadata.json"
    newer.write_text(json.dumps(json.loads(file.read_text()) | {"format-version": 3, "next-row-id": 9}))
    with open_metadata(config.lake) as catalog:
        files = tables_in(catalog, "shop")["orders"].files
    found = TableMetadata.read("shop", "orders", str(newer), files)
    expected = TableMetadata.of(StaticTable.from_metadata(str(newer)))
    assert (found.format_version, expected.format_version) == (3, 3)
    assert (found.snapshots, found.tags, found.schema["fields"]) == (
        expected.snapshots,
        expected.tags,
        expected.schema["fields"],
    )


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b'{"format-version": 4}',
        b'{"format-version": 2}',
        b'{"format-version": 1, "schema": {}, "snapshots": [{"snapshot-id": 1, "timestamp-ms": 1, "manifests": []}]}',
    ],
)
def test_damaged_metadata_is_said_of_its_table(config: Config, lake: SqlCatalog, damage: bytes) -> None:
    table = changed_table(lake)
    lake.create_table(("shop", "others"), pa.schema([("id", pa.int64())]))
    Path(table.metadata_location.removeprefix("file://")).write_bytes(damage)
    unreadable: dict[str, str] = {}
    with open_metadata(config.lake) as catalog:
        assert list(readable_tables_in(catalog, "shop", unreadable)) == ["others"]
    assert list(unreadable) == ["shop.orders"]


def test_list_of_manifests_that_is_cut_off(config: Config, lake: SqlCatalog) -> None:
    snapshot = changed_table(lake).current_snapshot()
    assert snapshot is not None
    file = Path(snapshot.manifest_list.removeprefix("file://"))
    whole = file.read_bytes()
    for content in (
        b"",
        whole[:10],
        whole[:-20],
        b"something else",
        bytes(len(whole)),
        whole[:-60] + bytes(60),
    ):
        file.write_bytes(content)
        unreadable: dict[str, str] = {}
        with open_metadata(config.lake) as catalog:
            assert load_readable(catalog, "shop", "orders", unreadable) is None
        assert "files cannot be read" in unreadable["shop.orders"]


class CountedReads(io.BytesIO):
    """A file of an object store: each read is a request."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        return super().read(size)


def test_manifest_of_a_date_that_python_does_not_have_is_read_at_once() -> None:
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [{"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]}],
    }
    file = {
        "file_path": "string",
        "file_format": "string",
        "partition": partition,
        "record_count": "long",
    }
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [{"name": name, "type": kind} for name, kind in file.items()],
    }
    schema = {
        "type": "record",
        "name": "manifest_entry",
        "fields": [{"name": "status", "type": "int"}, {"name": "data_file", "type": data_file}],
    }
    year_0 = {"file_path": "a", "file_format": "PARQUET", "partition": {"day": -719_500}, "record_count": 5}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [{"status": 1, "data_file": year_0}])
    stream = CountedReads(sink.getvalue())

    class Store:
        def open(self, location: str) -> BinaryIO:  # noqa: ARG002
            return stream

        def size(self, location: str) -> int:  # noqa: ARG002
            return 0

    (entry,) = read_entries(Store(), Manifest("m", False, 7))
    assert (entry.path, entry.rows, entry.sequence, stream.reads) == ("a", 5, 7, 1)


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 9, b""])
def test_file_that_is_no_catalog_is_refused_as_pyiceberg_does(
    config: Config, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.db").write_bytes(content)
    messages = []
    for opened in (open_metadata, open_catalog):
        with pytest.raises(LakeUnavailable) as refused, opened(config.lake) as catalog:
            tables_in(catalog, "shop")
        messages.append(refused.value.message)
    assert messages[0] == messages[1]


def test_catalog_whose_second_table_is_not_created_yet_is_empty(config: Config) -> None:
    file = config.lake.catalog_file
    assert file is not None
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name)")
    with open_metadata(config.lake) as catalog:
        assert catalog.list_namespaces() == []
        assert catalog.load_namespace_properties("shop") == {}
