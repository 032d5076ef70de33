"""The schema that a JSON event carries."""

import json
from typing import Any

import pytest

from replicator.decode.event_schema import table_schema
from replicator.errors import DecodeError
from replicator.model.table import Column
from replicator.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    VECTOR,
    LakeType,
    Wire,
    decimal,
)


def value(*fields: dict[str, Any]) -> bytes:
    row = {"type": "struct", "fields": list(fields), "optional": True}
    envelope = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    return json.dumps({"schema": envelope, "payload": {}}).encode()


def column(**field: Any) -> Column:
    (found,) = table_schema(value({"field": "x", **field}), None).columns
    return found


DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize(
    ("field", "lake_type", "wire"),
    [
        ({"type": "boolean"}, BOOLEAN, Wire.PLAIN),
        ({"type": "int16"}, INT, Wire.PLAIN),
        ({"type": "int32"}, INT, Wire.PLAIN),
        ({"type": "int64"}, LONG, Wire.PLAIN),
        ({"type": "float"}, FLOAT, Wire.PLAIN),
        ({"type": "double"}, DOUBLE, Wire.PLAIN),
        ({"type": "string"}, STRING, Wire.PLAIN),
        ({"type": "bytes"}, BINARY, Wire.PLAIN),
        ({"type": "struct", "name": "io.debezium.data.geometry.Point"}, BINARY, Wire.GEOMETRY),
        ({"type": "struct", "name": "io.debezium.data.geometry.Geometry"}, BINARY, Wire.GEOMETRY),
        ({"type": "struct", "name": "of somebody else"}, STRING, Wire.PLAIN),
        ({"type": "array", "name": "io.debezium.data.FloatVector"}, VECTOR, Wire.PLAIN),
        ({"type": "string", "name": "io.debezium.data.Enum"}, STRING, Wire.PLAIN),
        ({"type": "string", "name": "io.debezium.data.EnumSet"}, STRING, Wire.SET),
        ({"type": "array"}, STRING, Wire.PLAIN),
        ({"type": "int32", "name": "io.debezium.time.Date"}, DATE, Wire.DAYS),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, TIMESTAMP, Wire.MILLIS),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, TIMESTAMP, Wire.MICROS),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, TIMESTAMP, Wire.NANOS),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, TIMESTAMPTZ, Wire.PLAIN),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, LONG, Wire.PLAIN),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}, LONG, Wire.TIME_MILLIS),
        ({"type": "int64", "name": "io.debezium.time.NanoTime"}, LONG, Wire.TIME_NANOS),
        ({"type": "bytes", "name": "io.debezium.data.Bits"}, BINARY, Wire.BASE64_BITS),
        ({"type": "string", "name": "io.debezium.data.Json"}, STRING, Wire.PLAIN),
        ({"type": "int32", "name": "io.debezium.time.Year"}, INT, Wire.YEAR),
        (
            {
                "type": "bytes",
                "name": DECIMAL,
                "parameters": {"scale": "2", "connect.decimal.precision": "12"},
            },
            decimal(12, 2),
            Wire.UNSEEN_DECIMAL,
        ),
        (
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "0"}},
            decimal(38, 0),
            Wire.UNSEEN_DECIMAL,
        ),
        (
            {
                "type": "bytes",
                "name": DECIMAL,
                "parameters": {"scale": "5", "connect.decimal.precision": "65"},
            },
            STRING,
            Wire.EITHER_DECIMAL,
        ),
    ],
)
def test_types(field: dict[str, Any], lake_type: LakeType, wire: Wire) -> None:
    found = column(**field)
    assert (found.type, found.wire) == (lake_type, wire)


def test_a_wide_decimal_keeps_its_scale() -> None:
    parameters = {"scale": "5", "connect.decimal.precision": "65"}
    assert column(type="bytes", name=DECIMAL, parameters=parameters).size == 5


@pytest.mark.parametrize(
    ("allowed", "respelt"),
    [
        ("a,b", ()),
        (",x", ()),
        ("", ()),
        ("b\\, c,d", (("b\\, c", "b, c"),)),
        ("back\\\\slash,x", (("back\\\\slash", "back\\slash"),)),
        ("ends\\\\,x", (("ends\\\\", "ends\\"),)),
        ("x y ,z", (("x y ", "x y"),)),
        ('it\'s,say "x"', ()),
    ],
)
@pytest.mark.parametrize("kind", ["Enum", "EnumSet"])
def test_labels_that_events_write_differently(kind: str, allowed: str, respelt: tuple[Any, ...]) -> None:
    found = column(type="string", name=f"io.debezium.data.{kind}", parameters={"allowed": allowed})
    assert found.respelt == respelt


def test_times_as_iso_text_are_refused() -> None:
    with pytest.raises(DecodeError, match="IsoTime"):
        column(type="string", name="io.debezium.time.IsoTime")


def test_null_is_allowed_where_the_schema_says_so() -> None:
    assert column(type="int32", optional=True).nullable
    assert not column(type="int32").nullable


@pytest.mark.parametrize(
    ("key", "names"),
    [
        (None, ()),
        (b'{"a":1,"b":2}', ("a", "b")),
        (
            b'{"schema":{"type":"struct","fields":[{"field":"b"},{"field":"a"}]},"payload":{"b":1,"a":2}}',
            ("b", "a"),
        ),
        (b"7", ()),
        (b"\xff no json", ()),
        (b"no json", ()),
    ],
)
def test_key(key: bytes | None, names: tuple[str, ...]) -> None:
    assert table_schema(value({"field": "a", "type": "int32"}), key).key == names


@pytest.mark.parametrize(
    "text",
    [
        b"no json",
        b"[]",
        b'{"payload":{}}',
        b'{"schema":null,"payload":{}}',
        b'{"schema":{"fields":[]}}',
        b'{"schema":{"fields":[{"field":"after"}]}}',
        b'{"schema":{"fields":[{"field":"after","fields":[{"field":"x","type":"odd"}]}]}}',
        b'{"schema":{"fields":[{"field":"after","fields":[{"type":"int32"}]}]}}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_envelope(text: bytes) -> None:
    with pytest.raises(DecodeError):
        table_schema(text, None)
