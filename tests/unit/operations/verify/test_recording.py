"""source.json: a written file is read unchanged, and other files are refused."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from replicator.errors import ArchiveError
from replicator.operations.verify.checksum import CanonicalColumn, Kind, TableChecksum
from replicator.operations.verify.recording import RecordedSource, RecordedTable

SCHEMA = Path(__file__).parents[4] / "schemas" / "recording-source-v1.json"
SOURCE = RecordedSource(
    server_version="9.7.0",
    taken_at=datetime(2024, 5, 1, tzinfo=UTC),
    gtid_set="u:1-9",
    binlog_file="mysql-bin.000002",
    binlog_position=157,
    seed=7,
    changes=10,
    transactions=3,
    tables={
        "shop.orders": RecordedTable(
            ("id",),
            (CanonicalColumn("id", Kind.NUMBER), CanonicalColumn("note", Kind.TEXT)),
            TableChecksum(2, 2**64 - 1, 1),
        )
    },
)


def test_recorded_source_is_unchanged_after_a_round_trip(tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text(SOURCE.to_json())
    assert RecordedSource.load(tmp_path) == SOURCE


def test_recorded_source_conforms_to_its_schema() -> None:
    document, schema = json.loads(SOURCE.to_json()), json.loads(SCHEMA.read_text())
    assert set(document) == set(schema["properties"]) == set(schema["required"])
    table = schema["properties"]["tables"]["additionalProperties"]
    assert set(document["tables"]["shop.orders"]) == set(table["required"])
    kinds = table["properties"]["columns"]["items"]["properties"]["kind"]["enum"]
    assert kinds == [str(kind) for kind in Kind]


@pytest.mark.parametrize("text", ["{", "{}", '{"format": "replicator-recording-source", "version": 2}', "[]"])
def test_recorded_source_refuses_a_file_of_another_format(tmp_path: Path, text: str) -> None:
    (tmp_path / "source.json").write_text(text)
    with pytest.raises(ArchiveError, match=r"source\.json"):
        RecordedSource.load(tmp_path)
