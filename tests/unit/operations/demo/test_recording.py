"""Apply the bundled recording event by event in plain Python, and compare the result with the source."""

import base64
import json
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from replicator.operations.demo import RECORDING
from replicator.operations.demo.compare import RecordedSource, checksum
from replicator.schema.types.table import Form
from replicator.sources.archive.reader import ArchiveReader
from replicator.verify.canonical import LakeColumn

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME is a wall clock
ADDED = {("shop.orders", "channel"): "web"}
"""Columns that were added with a default; earlier events lack them."""
MILLIS, ENUMS = {"counted_at"}, {"tier"}
SOURCE = RecordedSource.load(RECORDING)


def decoded(column: LakeColumn, value: Any) -> Any:
    """Return the Python value for a value in a Debezium JSON event."""
    if value is None:
        return None
    match column.form:
        case Form.BYTES:
            return base64.b64decode(value)
        case Form.DAYS:
            return EPOCH.date() + timedelta(days=value)
        case Form.MICROS if isinstance(value, str):
            return datetime.fromisoformat(value).astimezone(UTC)
        case Form.MICROS if column.declared.startswith("datetime"):
            return EPOCH + timedelta(microseconds=value * (1000 if column.source in MILLIS else 1))
        case Form.DOUBLE:
            single = column.declared == "float"
            return struct.unpack("f", struct.pack("f", value))[0] if single else float(value)
        case Form.TEXT if column.source in ENUMS:
            # The connector escapes commas in labels that it streams, not in those that it snapshots.
            return value.replace("\\,", ",")
        case _:
            # BIT(1) is true or false, and Arrow lacks integers of 64 bits without sign.
            return str(int(value)) if column.form is Form.DIGITS and isinstance(value, int) else value


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


@pytest.mark.parametrize("table", SOURCE.tables)
def test_demo_recording_has_the_checksums_of_the_source(table: str) -> None:
    recorded, rows = SOURCE.tables[table], final_rows(table)
    columns = {}
    for column in recorded.columns:
        default = ADDED.get((table, column.source))
        columns[column.lake] = pa.array([decoded(column, row.get(column.source, default)) for row in rows])
    assert checksum(pa.table(columns), recorded.columns) == recorded.checksum
