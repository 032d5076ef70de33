"""Apply the bundled recording event by event in plain Python, and compare the result with the source."""

import base64
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from replicator.operations.demo import RECORDING
from replicator.operations.verify.checksum import Kind, canonical_value, checksum_texts, row_texts
from replicator.operations.verify.recording import RecordedSource, RecordedTable
from replicator.sources.archive import ArchiveReader

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME is a wall clock
ADDED = {("shop.orders", "channel"): "web"}
"""Columns that were added with a default; earlier events lack them."""
MILLIS, SINGLES, ENUMS = {"counted_at"}, {"stars"}, {"tier"}
SOURCE = RecordedSource.load(RECORDING)


def decoded(name: str, kind: Kind, value: Any) -> Any:
    """Return the Python value for a value in a Debezium JSON event."""
    if value is None:
        return None
    match kind:
        case Kind.BYTES:
            return base64.b64decode(value)
        case Kind.DATE:
            return EPOCH.date() + timedelta(days=value)
        case Kind.DATETIME if isinstance(value, str):
            return datetime.fromisoformat(value).astimezone(UTC)
        case Kind.FLOAT if name in SINGLES:
            return struct.unpack("f", struct.pack("f", value))[0]
        case Kind.TEXT if name in ENUMS:
            # The connector escapes commas in labels that it streams, not in those that it snapshots.
            return value.replace("\\,", ",")
        case Kind.DATETIME:
            return EPOCH + timedelta(microseconds=value * (1000 if name in MILLIS else 1))
        case _:
            return value


def final_rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table after all its events."""
    rows: dict[bytes | None, dict[str, Any]] = {}
    for event in ArchiveReader(RECORDING).events(f"shop.{table}", 0):
        if event.value is None:
            continue
        change = json.loads(event.value, parse_float=Decimal)
        match change["op"]:
            case "t":
                rows.clear()
            case "d":
                del rows[event.key]
            case _:
                rows[event.key] = change["after"]
    return list(rows.values())


def texts(table: str, recorded: RecordedTable) -> Iterator[pa.Array]:
    rows = final_rows(table)
    for column in recorded.columns:
        default = ADDED.get((table, column.name))
        values = (decoded(column.name, column.kind, row.get(column.name, default)) for row in rows)
        yield pa.array([canonical_value(column.kind, value) for value in values], pa.large_binary())


@pytest.mark.parametrize("table", SOURCE.tables)
def test_demo_recording_has_the_checksums_of_the_source(table: str) -> None:
    recorded = SOURCE.tables[table]
    assert checksum_texts(row_texts(list(texts(table, recorded))).to_pylist()) == recorded.checksum
