"""Schemas of events in Avro as Debezium's connector writes them, with a case for each type of column."""

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro

from tests.oracle.avro import SOURCE
from tests.oracle.events import Place, change_event

HEADER = b"\0\0\0\0\1"


def connect(kind: Any, name: str | None = None, **parameters: str) -> Any:
    """Return an Avro type with Kafka Connect's properties."""
    found: dict[str, Any] = dict(kind) if isinstance(kind, dict) else {"type": kind}
    if name:
        found["connect.name"] = name
    return found | ({"connect.parameters": parameters} if parameters else {})


def decimal(digits: int, scale: int) -> dict[str, Any]:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
    parameters = {"scale": str(scale), "connect.decimal.precision": str(digits)}
    return connect(kind, "org.apache.kafka.connect.data.Decimal", **parameters)


POINT = {
    "type": "record",
    "name": "Point",
    "namespace": "io.debezium.data.geometry",
    "fields": [
        {"name": "x", "type": "double"},
        {"name": "y", "type": "double"},
        {"name": "wkb", "type": ["null", "bytes"], "default": None},
        {"name": "srid", "type": ["null", "int"], "default": None},
    ],
    "connect.name": "io.debezium.data.geometry.Point",
}
POINT_ROW = {"x": 1.0, "y": 2.5, "wkb": b"\1\1\0\0\0\2", "srid": None}
ZONED = connect("string", "io.debezium.time.ZonedTimestamp")
WIDE = Decimal("-99999999999999999999999999999999999.999999999999999999999999999999")
LOWEST = Decimal("-9999999999999999999999999999.9999999999")


def naive(*parts: Any) -> datetime:
    return datetime(*parts)  # noqa: DTZ001 wall-clock time


CASES: Sequence[tuple[Any, Any, Any]] = [
    ("boolean", True, True),
    ({"type": "int", "connect.type": "int16"}, -3, -3),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5),
    ("double", 1e300, 1e300),
    ("string", "größe 🚀", "größe 🚀"),
    ("bytes", b"\0\xff", b"\0\xff"),
    (connect("string", "io.debezium.data.Enum", allowed="a,b\\,c"), "b\\,c", "b,c"),
    (connect("string", "io.debezium.data.EnumSet", allowed="x,y"), "x,y", "x,y"),
    (connect("string", "io.debezium.data.Json"), '{"a": 1}', '{"a": 1}'),
    (connect("int", "io.debezium.time.Date"), -1, date(1969, 12, 31)),
    ({"type": "int", "logicalType": "date", "connect.name": "org.apache.kafka.connect.data.Date"}, 1, date(1970, 1, 2)),
    (connect("int", "io.debezium.time.Year"), 2024, 2024),
    (connect("long", "io.debezium.time.Timestamp"), -1, naive(1969, 12, 31, 23, 59, 59, 999000)),
    (connect("long", "io.debezium.time.MicroTimestamp"), 1, naive(1970, 1, 1, 0, 0, 0, 1)),
    (connect("long", "io.debezium.time.NanoTimestamp"), 1999, naive(1970, 1, 1, 0, 0, 0, 1)),
    (ZONED, "2024-02-29T23:59:59.123456Z", datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)),
    (connect("long", "io.debezium.time.MicroTime"), -3_020_399_000_000, -3_020_399_000_000),
    (connect("int", "io.debezium.time.Time"), 1500, 1_500_000),
    (connect("bytes", "io.debezium.data.Bits", length="9"), b"\x01\x02", b"\x02\x01"),
    (decimal(10, 2), Decimal("-99999999.99"), Decimal("-99999999.99")),
    (decimal(20, 0), Decimal(2**64 - 1), Decimal(2**64 - 1)),
    (decimal(38, 10), LOWEST, LOWEST),
    (decimal(65, 30), WIDE, f"{WIDE:f}"),
    (POINT, POINT_ROW, b"\1\1\0\0\0\2"),
    ("io.debezium.data.geometry.Point", POINT_ROW | {"srid": 4326}, b"\1\1\0\0\x20\xe6\x10\0\0\2"),
    (connect({"type": "array", "items": "float"}, "io.debezium.data.FloatVector"), [1.0, 2.5], [1.0, 2.5]),
    ({"type": "array", "items": "string"}, ["a", "b"], '["a","b"]'),
]  # fmt: skip
"""Avro type, a value as it is written, and the value in the lake."""


def envelope(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the schema of an envelope whose rows have a key `id` and nullable `fields`."""
    row = [
        {"name": "id", "type": "long"},
        *({"name": n, "type": ["null", k], "default": None} for n, k in fields),
    ]
    value = {"type": "record", "name": "Value", "fields": row, "connect.name": "shop.shop.t.Value"}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.shop.t",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "transaction", "type": ["null", "string"], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
        "connect.name": "shop.shop.t.Envelope",
        "connect.version": 2,
    }


def event(op: str, pos: int = 5, *, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(change_event(op, Place(1, pos), "t"))
    return value | {"before": before, "after": after, "source": value["source"] | source}


def flat_schema(fields: Sequence[tuple[str, Any]], **metadata: Any) -> dict[str, Any]:
    """Return the schema of flattened events: nullable `fields`, and metadata (name without underscores → type)."""
    given = [{"name": n, "type": ["null", k], "default": None} for n, k in fields]
    given += [{"name": f"__{n}", "type": ["null", k], "default": None} for n, k in metadata.items()]
    return {
        "type": "record",
        "name": "Value",
        "namespace": "shop.shop.t",
        "fields": given,
        "connect.name": "shop.shop.t.Value",
    }


def written(schema: Mapping[str, Any], value: Any) -> bytes:
    """Encode a record, with the schema id 1."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(dict(schema)), value)
    return HEADER + data.getvalue()
