"""Event archives and recordings, byte by byte as earlier versions wrote them.

If a test fails, existing archives can no longer be read: change the code, not the text.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from fastavro.schema import to_parsing_canonical_form
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from replicator.errors import ArchiveError
from replicator.sources.archive.documents import manifest_json, page_json, parse_manifest, parse_page
from replicator.sources.archive.format import (
    EVENT_SCHEMA,
    ArchivedRows,
    Encoding,
    Event,
    FileEntry,
    FileRef,
    Manifest,
    Page,
    Pages,
    PartitionEntry,
    Segment,
)
from replicator.sources.archive.positions import SourceSpan
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event
from tests.support.golden import FOLDER

SCHEMAS = Path(__file__).parents[3] / "schemas"
ROWS = {"database": "d", "table": "t", "topic": "r", "file": "b.1", "pos": 4, "server_id": 1, "ts_ms": 5}
CREATED = datetime(2024, 5, 1, 12, tzinfo=UTC)
SUM = "0123456789abcdef" * 4
SPAN = SourceSpan(("bin.000002", 4), ("bin.000003", 154), (5, 9), {"u": (3, 8)})
FILE = FileEntry(
    "events/000002.avro",
    3,
    512,
    SUM,
    (Segment("events/000002.avro", "shop.shop.orders", 0, 4, 7, 3, (1, 2), SPAN),),
)
MANIFEST = Manifest(
    "shop",
    "avro",
    created=CREATED,
    files=(FILE,),
    pages=Pages(1, 1, 2, 99, FileRef("index/000001.json", 700, SUM)),
    partitions={("shop.shop.orders", 0): PartitionEntry(1, 7, 5, 9)},
    schemas={7: FileRef("schemas/7.avsc", 8, SUM)},
)
MANIFEST_V1, MANIFEST_V2, MANIFEST_V3, MANIFEST_V4, PAGE_V1, AVRO_SCHEMA = (
    (FOLDER / "archive" / name).read_text(encoding="utf-8")
    for name in (
        "manifest-v1.json",
        "manifest-v2.json",
        "manifest-v3.json",
        "manifest-v4.json",
        "index-v1.json",
        "event-v1.avsc",
    )
)


def test_manifest_text_is_unchanged() -> None:
    assert manifest_json(MANIFEST) == MANIFEST_V4
    assert parse_manifest(MANIFEST_V4, "manifest.json") == MANIFEST


def test_manifest_of_version_3_is_read() -> None:
    assert parse_manifest(MANIFEST_V3, "manifest.json") == MANIFEST
    text = (FOLDER / "archive" / "manifest-v3-with-rows.json").read_text(encoding="utf-8")
    assert parse_manifest(text, "manifest.json").rows.keys() == {"shop.shop.orders"}


@pytest.mark.parametrize(("name", "value"), [("topic_ids", '"uuid"'), ("partition_counts", "2")])
def test_manifest_text_with_what_is_known_of_topics_is_unchanged(name: str, value: str) -> None:
    known: Any = {name: {"shop.shop.orders": json.loads(value)}}
    manifest = replace(MANIFEST, **known)
    text = MANIFEST_V4.removesuffix("\n}\n") + f',\n "{name}": {{\n  "shop.shop.orders": {value}\n }}\n}}\n'
    assert manifest_json(manifest) == text
    assert parse_manifest(text, "manifest.json") == manifest


def test_manifest_text_with_the_beginnings_of_tables_is_unchanged() -> None:
    rows = ArchivedRows("shop", "orders", "shop-rows-1.shop.orders", "bin.000012", 4, 1, 5)
    manifest = replace(MANIFEST, connector_reads_rows=False, rows={"shop.shop.orders": rows})
    text = (FOLDER / "archive" / "manifest-v4-with-rows.json").read_text(encoding="utf-8")
    assert manifest_json(manifest) == text
    assert parse_manifest(text, "manifest.json") == manifest
    schema, page = (
        json.loads((SCHEMAS / name).read_text())
        for name in ("archive-manifest-v4.json", "archive-index-v1.json")
    )
    registry: Any = Registry().with_resource("archive-index-v1.json", DRAFT202012.create_resource(page))
    Draft202012Validator(schema, registry=registry).validate(json.loads(text))


@pytest.mark.parametrize(
    "changed",
    [
        {"connector_reads_rows": 1},
        {"rows": {"t": {"database": "d"}}},
        {"rows": {"t": ROWS | {"database": 1}}},
        {"rows": {"t": ROWS | {"file": "not numbered"}}},
        {"rows": {"t": ROWS | {"ts_ms": -1}}},
        {"rows": []},
    ],
)
def test_damaged_beginnings_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ArchiveError, match="is damaged"):
        parse_manifest(json.dumps(json.loads(MANIFEST_V4) | changed), "manifest.json")


def test_index_page_text_is_unchanged() -> None:
    page = Page(FileRef("index/000001.json", 700, SUM), (FILE,))
    assert page_json(page) == PAGE_V1
    assert parse_page(PAGE_V1, "page") == page


@pytest.mark.parametrize(
    ("text", "encoding", "schemas"),
    [
        (MANIFEST_V1, "json-schemas", {}),
        (MANIFEST_V2, "avro", {7: FileRef("schemas/7.avsc", 8, None)}),
    ],
)
def test_manifest_of_an_earlier_version_is_read(
    text: str, encoding: str, schemas: dict[int, FileRef]
) -> None:
    found = parse_manifest(text, "manifest.json")
    assert (found.encoding, found.schemas) == (encoding, schemas)
    assert (found.topic_prefix, found.created) == ("shop", CREATED)
    segment = Segment("events/000001.avro", "shop.shop.orders", 0, 4, 7, 3)
    assert found.files == (FileEntry("events/000001.avro", 3, 512, None, (segment,)),)
    assert found.partitions == {("shop.shop.orders", 0): PartitionEntry(4, 7, 3, 9)}


def test_archive_files_and_fields_are_unchanged(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="avro") as writer:
        writer.add_schema(7, '"string"')
        append_event(writer, Event("shop.t", 1, 2, 3, b"k", None, (("h", b"v"), ("n", None))))
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files - {".lock"} == {"manifest.json", "events/000001.parquet", "schemas/7.avsc"}
    file = pq.ParquetFile(tmp_path / "events" / "000001.parquet")
    published = (SCHEMAS / "event-archive-v2.parquet.txt").read_text(encoding="utf-8")
    columns = str(file.schema).partition("\n")[2].replace(" field_id=-1", "")
    assert columns.strip() == published.partition("\n\n")[2].strip()
    assert file.metadata.row_group(0).column(5).compression == "ZSTD"
    headers = [{"key": "h", "value": b"v"}, {"key": "n", "value": None}]
    assert file.read().to_pylist() == [
        {
            "topic": "shop.t",
            "partition": 1,
            "offset": 2,
            "timestamp": 3,
            "key": b"k",
            "value": None,
            "headers": headers,
        }
    ]


def test_published_avro_schema_is_that_of_old_files() -> None:
    published = json.loads((SCHEMAS / "event-archive-v1.avsc").read_text(encoding="utf-8"))
    texts = {
        to_parsing_canonical_form(schema) for schema in (json.loads(AVRO_SCHEMA), EVENT_SCHEMA, published)
    }
    assert len(texts) == 1


@pytest.mark.parametrize("schemas", [True, False])
def test_archive_of_an_earlier_version_is_read(tmp_path: Path, schemas: bool) -> None:
    (tmp_path / "events").mkdir()
    record = {"topic": "shop.shop.orders", "partition": 0, "timestamp": 3, "key": None, "value": b"v"}
    records = [record | {"offset": n, "headers": [{"key": "h", "value": b"v"}]} for n in (4, 5, 7)]
    with (tmp_path / "events" / "000001.avro").open("wb") as stream:
        fastavro.writer(stream, json.loads(AVRO_SCHEMA), records, codec="deflate")
    size = (tmp_path / "events" / "000001.avro").stat().st_size
    text = MANIFEST_V2 if schemas else MANIFEST_V1
    (tmp_path / "manifest.json").write_text(text.replace("512", str(size)), encoding="utf-8")
    if schemas:
        (tmp_path / "schemas").mkdir()
        (tmp_path / "schemas" / "7.avsc").write_text('"string"', encoding="utf-8")
    reader = ArchiveReader(tmp_path)
    assert reader.writer_schemas() == ({7: '"string"'} if schemas else None)
    events = [Event("shop.shop.orders", 0, n, 3, None, b"v", (("h", b"v"),)) for n in (4, 5, 7)]
    assert list(reader.events("shop.shop.orders", 0)) == events
    encoding: Encoding = "avro" if schemas else "json-schemas"
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding=encoding) as writer:
        assert writer.end_offset("shop.shop.orders", 0) == 9
        append_event(writer, Event("shop.shop.orders", 0, 9, 3, None, b"w"))
    assert json.loads((tmp_path / "manifest.json").read_text())["version"] == 4
    continued = list(ArchiveReader(tmp_path).events("shop.shop.orders", 0))
    assert continued == [*events, Event("shop.shop.orders", 0, 9, 3, None, b"w")]
