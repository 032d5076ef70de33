"""Event archives and recordings, byte by byte as earlier versions wrote them.

If a test fails, existing archives can no longer be read: change the code, not the text.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from replicator.errors import ArchiveError
from replicator.sources.archive import ArchiveReader, ArchiveWriter, Event, Manifest
from replicator.sources.archive.documents import manifest_json, page_json, parse_manifest, parse_page
from replicator.sources.archive.format import (
    ArchivedRows,
    Encoding,
    FileEntry,
    FileRef,
    Page,
    Pages,
    PartitionEntry,
    Segment,
)
from replicator.sources.archive.positions import SourceSpan

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
FILE_TEXT = """\
  {
   "path": "events/000002.avro",
   "events": 3,
   "bytes": 512,
   "sha256": "SUM",
   "partitions": [
    {
     "topic": "shop.shop.orders",
     "partition": 0,
     "first": 4,
     "last": 7,
     "count": 3,
     "times": [
      1,
      2
     ],
     "source": {
      "first": [
       "bin.000002",
       4
      ],
      "last": [
       "bin.000003",
       154
      ],
      "times": [
       5,
       9
      ],
      "gtids": {
       "u": [
        3,
        8
       ]
      }
     }
    }
   ]
  }
"""
MANIFEST_V3 = """\
{
 "format": "replicator-archive",
 "version": 3,
 "topic_prefix": "shop",
 "encoding": "avro",
 "created": "2024-05-01T12:00:00+00:00",
 "index": {
  "pages": 1,
  "files": 1,
  "events": 2,
  "bytes": 99,
  "last": {
   "path": "index/000001.json",
   "bytes": 700,
   "sha256": "SUM"
  }
 },
 "files": [
FILE ],
 "topics": {
  "shop.shop.orders": {
   "0": {
    "first": 1,
    "last": 7,
    "count": 5,
    "end": 9
   }
  }
 },
 "schemas": {
  "7": {
   "path": "schemas/7.avsc",
   "bytes": 8,
   "sha256": "SUM"
  }
 }
}
""".replace("FILE", FILE_TEXT).replace("SUM", SUM)
PAGE_V1 = """\
{
 "format": "replicator-archive-index",
 "version": 1,
 "previous": {
  "path": "index/000001.json",
  "bytes": 700,
  "sha256": "SUM"
 },
 "files": [
FILE ]
}
""".replace("FILE", FILE_TEXT).replace("SUM", SUM)
MANIFEST_V2 = """\
{
 "format": "replicator-archive",
 "version": 2,
 "topic_prefix": "shop",
 "encoding": "avro",
 "created": "2024-05-01T12:00:00+00:00",
 "files": {
  "events/000001.avro": {
   "events": 3,
   "bytes": 512
  }
 },
 "topics": {
  "shop.shop.orders": {
   "0": {
    "first": 4,
    "last": 7,
    "count": 3,
    "end": 9,
    "files": [
     {
      "path": "events/000001.avro",
      "first": 4,
      "last": 7,
      "count": 3
     }
    ]
   }
  }
 },
 "schemas": {
  "7": {
   "path": "schemas/7.avsc",
   "bytes": 8
  }
 }
}
"""
MANIFEST_V1 = """\
{
 "format": "replicator-archive",
 "version": 1,
 "topic_prefix": "shop",
 "encoding": "json-schemas",
 "created": "2024-05-01T12:00:00+00:00",
 "files": {"events/000001.avro": {"events": 3, "bytes": 512}},
 "topics": {
  "shop.shop.orders": {
   "0": {
    "first": 4, "last": 7, "count": 3, "end": 9,
    "files": [{"path": "events/000001.avro", "first": 4, "last": 7, "count": 3}]
   }
  }
 }
}
"""
CONTAINER_SCHEMA = (
    '{"type": "record", "name": "replicator.archive.v1.Event", "fields": ['
    '{"name": "topic", "type": "string"}, {"name": "partition", "type": "int"}, '
    '{"name": "offset", "type": "long"}, {"name": "timestamp", "type": "long"}, '
    '{"name": "key", "type": ["null", "bytes"]}, {"name": "value", "type": ["null", "bytes"]}, '
    '{"name": "headers", "type": {"type": "array", "items": '
    '{"type": "record", "name": "replicator.archive.v1.Header", "fields": ['
    '{"name": "key", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}]}}}]}'
)


def test_manifest_text_is_unchanged() -> None:
    assert manifest_json(MANIFEST) == MANIFEST_V3
    assert parse_manifest(MANIFEST_V3, "manifest.json") == MANIFEST


def test_manifest_text_with_topic_ids_is_unchanged() -> None:
    manifest = replace(MANIFEST, topic_ids={"shop.shop.orders": "uuid"})
    text = MANIFEST_V3.removesuffix("\n}\n") + ',\n "topic_ids": {\n  "shop.shop.orders": "uuid"\n }\n}\n'
    assert manifest_json(manifest) == text
    assert parse_manifest(text, "manifest.json") == manifest


def test_manifest_text_with_partition_counts_is_unchanged() -> None:
    manifest = replace(MANIFEST, partition_counts={"shop.shop.orders": 2})
    text = MANIFEST_V3.removesuffix("\n}\n") + ',\n "partition_counts": {\n  "shop.shop.orders": 2\n }\n}\n'
    assert manifest_json(manifest) == text
    assert parse_manifest(text, "manifest.json") == manifest


def test_manifest_text_with_the_beginnings_of_tables_is_unchanged() -> None:
    rows = ArchivedRows("shop", "orders", "shop-rows-1.shop.orders", "bin.000012", 4, 1, 5)
    manifest = replace(MANIFEST, connector_reads_rows=False, rows={"shop.shop.orders": rows})
    text = (
        MANIFEST_V3.removesuffix("\n}\n")
        + """,
 "connector_reads_rows": false,
 "rows": {
  "shop.shop.orders": {
   "database": "shop",
   "table": "orders",
   "topic": "shop-rows-1.shop.orders",
   "file": "bin.000012",
   "pos": 4,
   "server_id": 1,
   "ts_ms": 5
  }
 }
}
"""
    )
    assert manifest_json(manifest) == text
    assert parse_manifest(text, "manifest.json") == manifest
    schema, page = (
        json.loads((SCHEMAS / name).read_text())
        for name in ("archive-manifest-v3.json", "archive-index-v1.json")
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
        parse_manifest(json.dumps(json.loads(MANIFEST_V3) | changed), "manifest.json")


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
        writer.append(Event("shop.t", 1, 2, 3, b"k", None, (("h", b"v"), ("n", None))))
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files - {".lock"} == {"manifest.json", "events/000001.avro", "schemas/7.avsc"}
    with (tmp_path / "events" / "000001.avro").open("rb") as stream:
        reader = fastavro.reader(stream)
        records = list(reader)
    assert json.loads(reader.metadata["avro.schema"]) == json.loads(CONTAINER_SCHEMA)
    assert reader.metadata["avro.codec"] == "deflate"
    headers = [{"key": "h", "value": b"v"}, {"key": "n", "value": None}]
    assert records == [
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


@pytest.mark.parametrize("schemas", [True, False])
def test_archive_of_an_earlier_version_is_read(tmp_path: Path, schemas: bool) -> None:
    (tmp_path / "events").mkdir()
    record = {"topic": "shop.shop.orders", "partition": 0, "timestamp": 3, "key": None, "value": b"v"}
    records = [record | {"offset": n, "headers": [{"key": "h", "value": b"v"}]} for n in (4, 5, 7)]
    with (tmp_path / "events" / "000001.avro").open("wb") as stream:
        fastavro.writer(stream, json.loads(CONTAINER_SCHEMA), records, codec="deflate")
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
        writer.append(Event("shop.shop.orders", 0, 9, 3, None, b"w"))
    assert json.loads((tmp_path / "manifest.json").read_text())["version"] == 3
    continued = list(ArchiveReader(tmp_path).events("shop.shop.orders", 0))
    assert continued == [*events, Event("shop.shop.orders", 0, 9, 3, None, b"w")]
