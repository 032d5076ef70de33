"""The schema that a JSON event contains."""

import json
from typing import Any

import pytest

from replicator.decode.connect_schema import table_schema
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
    Encoding,
    LakeType,
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
    ("field", "lake_type", "encoding"),
    [
        ({"type": "boolean"}, BOOLEAN, Encoding.PLAIN),
        ({"type": "int16"}, INT, Encoding.PLAIN),
        ({"type": "int32"}, INT, Encoding.PLAIN),
        ({"type": "int64"}, LONG, Encoding.PLAIN),
        ({"type": "float"}, FLOAT, Encoding.PLAIN),
        ({"type": "double"}, DOUBLE, Encoding.PLAIN),
        ({"type": "string"}, STRING, Encoding.PLAIN),
        ({"type": "bytes"}, BINARY, Encoding.PLAIN),
        ({"type": "struct", "name": "io.debezium.data.geometry.Point"}, BINARY, Encoding.GEOMETRY),
        ({"type": "struct", "name": "io.debezium.data.geometry.Geometry"}, BINARY, Encoding.GEOMETRY),
        ({"type": "struct", "name": "of somebody else"}, STRING, Encoding.PLAIN),
        ({"type": "array", "name": "io.debezium.data.FloatVector"}, VECTOR, Encoding.PLAIN),
        ({"type": "string", "name": "io.debezium.data.Enum"}, STRING, Encoding.PLAIN),
        ({"type": "string", "name": "io.debezium.data.EnumSet"}, STRING, Encoding.SET),
        ({"type": "array"}, STRING, Encoding.PLAIN),
        ({"type": "int32", "name": "io.debezium.time.Date"}, DATE, Encoding.DAYS),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, TIMESTAMP, Encoding.MILLIS),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, TIMESTAMP, Encoding.MICROS),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, TIMESTAMP, Encoding.NANOS),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, TIMESTAMPTZ, Encoding.PLAIN),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, LONG, Encoding.PLAIN),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}, LONG, Encoding.TIME_MILLIS),
        ({"type": "int64", "name": "io.debezium.time.NanoTime"}, LONG, Encoding.TIME_NANOS),
        ({"type": "bytes", "name": "io.debezium.data.Bits"}, BINARY, Encoding.BASE64_BITS),
        ({"type": "string", "name": "io.debezium.data.Json"}, STRING, Encoding.PLAIN),
        ({"type": "int32", "name": "io.debezium.time.Year"}, INT, Encoding.YEAR),
        (
            {
                "type": "bytes",
                "name": DECIMAL,
                "parameters": {"scale": "2", "connect.decimal.precision": "12"},
            },
            decimal(12, 2),
            Encoding.UNSEEN_DECIMAL,
        ),
        (
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "0"}},
            decimal(38, 0),
            Encoding.UNSEEN_DECIMAL,
        ),
        (
            {
                "type": "bytes",
                "name": DECIMAL,
                "parameters": {"scale": "5", "connect.decimal.precision": "65"},
            },
            STRING,
            Encoding.EITHER_DECIMAL,
        ),
    ],
)
def test_column_has_lake_type_and_encoding(
    field: dict[str, Any], lake_type: LakeType, encoding: Encoding
) -> None:
    found = column(**field)
    assert (found.type, found.encoding) == (lake_type, encoding)


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
def test_column_lists_labels_that_events_write_differently(
    kind: str, allowed: str, respelt: tuple[Any, ...]
) -> None:
    found = column(type="string", name=f"io.debezium.data.{kind}", parameters={"allowed": allowed})
    assert found.respelt == respelt


def test_column_refuses_times_as_iso_text() -> None:
    with pytest.raises(DecodeError, match="IsoTime"):
        column(type="string", name="io.debezium.time.IsoTime")


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
def test_table_schema_has_the_columns_of_the_key(key: bytes | None, names: tuple[str, ...]) -> None:
    fields = ({"field": name, "type": "int32"} for name in ("a", "b"))
    assert table_schema(value(*fields), key).key == names


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
def test_table_schema_refuses_a_value_that_is_not_an_envelope(text: bytes) -> None:
    with pytest.raises(DecodeError):
        table_schema(text, None)


def test_column_has_its_source_name_when_the_connector_changed_it() -> None:
    parameter = "__debezium.source.column.name"
    changed = column(field="e_mail", type="string", parameters={parameter: "e-mail"})
    assert (changed.name, changed.written, changed.source_name.name) == ("e_mail", "e_mail", "e-mail")
    assert column(field="id", type="int64", parameters={parameter: "id"}).source is None
    with pytest.raises(DecodeError):
        column(field="id", type="int64", parameters={parameter: 7})
