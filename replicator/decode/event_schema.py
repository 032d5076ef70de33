"""The schema that a JSON event carries → `TableSchema`.

Debezium's envelope schema is Kafka Connect's JSON form: a struct with the fields `before`, `after`, `source`, …;
the columns are the fields of `after`. Semantic names (`io.debezium.time.MicroTimestamp`) tell what a number means.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from replicator.errors import DecodeError
from replicator.model.table import Column, TableSchema, respelt_labels
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
    LakeType,
    Wire,
    decimal_column,
)

_BY_NAME: Final[Mapping[str, tuple[LakeType, Wire]]] = {
    "io.debezium.time.Date": (DATE, Wire.DAYS),
    "org.apache.kafka.connect.data.Date": (DATE, Wire.DAYS),
    "io.debezium.time.Timestamp": (TIMESTAMP, Wire.MILLIS),
    "org.apache.kafka.connect.data.Timestamp": (TIMESTAMP, Wire.MILLIS),
    "io.debezium.time.MicroTimestamp": (TIMESTAMP, Wire.MICROS),
    "io.debezium.time.NanoTimestamp": (TIMESTAMP, Wire.NANOS),
    "io.debezium.time.ZonedTimestamp": (TIMESTAMPTZ, Wire.PLAIN),
    "io.debezium.time.MicroTime": (LONG, Wire.PLAIN),
    "io.debezium.time.Time": (LONG, Wire.TIME_MILLIS),
    "org.apache.kafka.connect.data.Time": (LONG, Wire.TIME_MILLIS),
    "io.debezium.time.NanoTime": (LONG, Wire.TIME_NANOS),
    "io.debezium.data.Bits": (BINARY, Wire.BASE64_BITS),
}
_BY_TYPE: Final[Mapping[str, LakeType]] = {
    "boolean": BOOLEAN,
    "int8": INT,
    "int16": INT,
    "int32": INT,
    "int64": LONG,
    "float": FLOAT,
    "float32": FLOAT,
    "double": DOUBLE,
    "float64": DOUBLE,
    "string": STRING,
    "bytes": BINARY,
    # Structs (geometry) and arrays (vectors) are kept as the JSON text they arrive in.
    "struct": STRING,
    "array": STRING,
    "map": STRING,
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


def table_schema(value: bytes, key: bytes | None) -> TableSchema:
    """The table's schema out of one event's `value` and `key`, both with schemas embedded.

    A key without an embedded schema gives the names of its fields. How decimals are written it does not say.

    Raises:
        DecodeError: the value has no envelope schema with an `after` struct.
    """
    try:
        envelope = json.loads(value)["schema"]
        after = next(f for f in envelope["fields"] if f.get("field") == "after")
        columns = tuple(_column(field) for field in after["fields"])
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise DecodeError("the event carries no Debezium envelope schema") from None
    return TableSchema(columns, _key_names(key)).without_reserved()


def _key_names(key: bytes | None) -> tuple[str, ...]:
    if key is None:
        return ()
    try:
        document: Any = json.loads(key)
    except ValueError:
        return ()
    if isinstance(document, dict) and isinstance(document.get("schema"), dict):
        fields: Sequence[Mapping[str, Any]] = document["schema"].get("fields", [])
        return tuple(str(f["field"]) for f in fields)
    return tuple(document) if isinstance(document, dict) else ()


def _column(field: Mapping[str, Any]) -> Column:
    lake_type, wire = _types(field)
    nullable = bool(field.get("optional", False))
    return Column(field["field"], lake_type, wire, nullable, respelt=respelt_labels(_labels(field)))


def _labels(field: Mapping[str, Any]) -> list[str]:
    """The labels of an ENUM; in the list that the schema has, a backslash stands before a comma inside a label."""
    if field.get("name") != "io.debezium.data.Enum":
        return []
    allowed = str(field.get("parameters", {}).get("allowed", ""))
    return [label.replace("\\,", ",") for label in re.split(r"(?<!\\),", allowed)]


def _types(field: Mapping[str, Any]) -> tuple[LakeType, Wire]:
    name = str(field.get("name") or "")
    if name == _DECIMAL:
        parameters = field.get("parameters", {})
        # The precision is missing where the source has none, as for BIGINT UNSIGNED in old versions.
        digits = int(parameters.get("connect.decimal.precision", 38))
        return decimal_column(digits, int(parameters.get("scale", 0)))
    if name in _BY_NAME:
        return _BY_NAME[name]
    try:
        return _BY_TYPE[field["type"]], Wire.PLAIN
    except KeyError:
        raise DecodeError(f"column {field.get('field')!r}: unknown type {field.get('type')!r}") from None
