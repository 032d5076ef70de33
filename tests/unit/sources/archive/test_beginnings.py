"""Which tables an archive has from their first row on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from replicator.sources.archive.format import Event
from replicator.sources.archive.origin import Beginning, Beginnings
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event

WHOLE, PARTIAL, UNKNOWN = Beginning
COLUMN = {
    "name": "id",
    "typeName": "INT",
    "jdbcType": 4,
    "nativeType": None,
    "position": 1,
    "optional": False,
}
Record = tuple[str, int, int, dict[str, Any]]
"""Topic, partition, offset and value."""


def source(pos: int, snapshot: str) -> dict[str, Any]:
    return {"file": "bin.000001", "pos": pos, "row": 0, "ts_ms": pos, "server_id": 1, "snapshot": snapshot}


def row(offset: int, pos: int, snapshot: str = "false", *, table: str = "t", partition: int = 0) -> Record:
    value = {"op": "c", "after": {"id": 1}, "source": source(pos, snapshot)}
    return f"shop.shop.{table}", partition, offset, value


def statement(offset: int, pos: int, ddl: str, snapshot: str = "false", *, kind: str = "CREATE") -> Record:
    """Return a schema change of the table `t`, or of the one that the statement renames it to."""
    name = "u" if "RENAME" in ddl else "t"
    change = {
        "type": kind,
        "id": f'"shop"."{name}"' if name == "t" else '"shop"."t","shop"."u"',
        "table": {"primaryKeyColumnNames": ["id"], "columns": [COLUMN]},
    }
    value = {"source": source(pos, snapshot), "databaseName": "shop", "ddl": ddl, "tableChanges": [change]}
    return "shop", 0, offset, value


CREATED = statement(0, 10, "CREATE TABLE t (id INT PRIMARY KEY)")
SEEN = statement(0, 10, "CREATE TABLE t (id INT PRIMARY KEY)", "true")
ALTERED = statement(0, 10, "ALTER TABLE t COMMENT 'x'", kind="ALTER")
RENAMED = statement(1, 30, "RENAME TABLE t TO u", kind="ALTER")


@pytest.mark.parametrize(
    ("records", "reads_rows", "expected"),
    [
        # The connector's snapshot.
        ([SEEN, row(0, 20, "first"), row(1, 30)], None, WHOLE),
        ([SEEN, row(0, 20, "true", partition=1), row(0, 30, partition=0)], None, WHOLE),
        ([SEEN, row(0, 20, "incremental")], False, PARTIAL),
        ([SEEN, row(7, 20, "first_in_data_collection")], None, WHOLE),
        ([SEEN, row(7, 20, "true")], None, PARTIAL),
        # The statement that created it.
        ([CREATED, row(0, 20)], False, WHOLE),
        ([statement(0, 40, "CREATE TABLE t (id INT PRIMARY KEY)"), row(0, 20)], False, PARTIAL),
        ([CREATED, row(3, 20)], False, PARTIAL),
        ([SEEN, statement(1, 15, "CREATE TABLE t (id INT PRIMARY KEY)"), row(0, 20)], False, WHOLE),
        # A snapshot without rows of it.
        ([SEEN, row(0, 20)], False, PARTIAL),
        ([SEEN, row(0, 20)], True, WHOLE),
        ([SEEN, row(0, 20)], None, UNKNOWN),
        # Nothing tells it.
        ([row(0, 20)], False, UNKNOWN),
        ([row(0, 20)], True, UNKNOWN),
        ([ALTERED, row(0, 20)], True, UNKNOWN),
        ([ALTERED, row(0, 20)], False, PARTIAL),
    ],
)
def test_beginning_follows_from_the_first_events_and_the_statements_before_them(
    tmp_path: Path, records: Sequence[Record], reads_rows: bool | None, expected: Beginning
) -> None:
    assert Beginnings(archive(tmp_path, records, reads_rows)).of("shop.shop.t") is expected


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([CREATED, RENAMED, row(0, 40, table="u")], WHOLE),
        ([SEEN, RENAMED, row(0, 40, table="u")], PARTIAL),
        ([SEEN, RENAMED, row(0, 20, "first"), row(0, 40, table="u")], WHOLE),
        ([SEEN, RENAMED, row(5, 20), row(0, 40, table="u")], PARTIAL),
    ],
)
def test_renamed_table_begins_under_its_former_name(
    tmp_path: Path, records: Sequence[Record], expected: Beginning
) -> None:
    assert Beginnings(archive(tmp_path, records, reads_rows=False)).of("shop.shop.u") is expected


def test_configuration_tells_what_the_manifest_of_an_earlier_release_does_not(tmp_path: Path) -> None:
    reader = archive(tmp_path, [SEEN, row(0, 20)], None)
    assert Beginnings(reader, connector_reads_rows=True).of("shop.shop.t") is WHOLE


def archive(folder: Path, records: Sequence[Record], reads_rows: bool | None) -> ArchiveReader:
    with ArchiveWriter(
        folder, topic_prefix="shop", encoding="json", connector_reads_rows=reads_rows
    ) as writer:
        for topic, partition, offset, value in records:
            append_event(writer, Event(topic, partition, offset, 1, b"k", json.dumps(value).encode()))
    return ArchiveReader(folder)
