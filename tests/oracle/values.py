"""Convert a column's value in an event in plain Python: an oracle for the engine's expressions."""

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from replicator.model.table import Column
from replicator.model.types import MISREAD_TEXTS, Encoding

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME is a wall clock


def plain_value(column: Column, value: Any) -> Any:
    """Return the lake's value for a value in an event's JSON, in which numbers with a fraction are Decimals."""
    return None if value is None else _READERS[column.encoding](column, value)


def _plain(column: Column, value: Any) -> Any:
    match column.type.name:
        case "binary":
            return base64.b64decode(value, validate=True)
        case "timestamptz":
            return datetime.fromisoformat(value)
        case "float":
            return struct.unpack("f", struct.pack("f", value))[0]
        case "double":
            return float(value)
        case "list<float>":
            return [float(element) for element in value]
        case "string":
            return dict(column.respelt).get(value, value)
        case _:
            return value


def _set(column: Column, value: Any) -> Any:
    respelt = dict(column.respelt)
    return ",".join(respelt.get(label, label) for label in value.split(","))


def _decimal(column: Column, value: Any) -> Any:
    scale = column.type.scale if column.size is None else column.size
    if isinstance(value, str):
        value = Decimal(int.from_bytes(base64.b64decode(value), "big", signed=True)).scaleb(-scale)
    return Decimal(value) if column.size is None else f"{Decimal(value):.{scale}f}"


def _geometry(_: Column, value: Any) -> Any:
    wkb, srid = base64.b64decode(value["wkb"]), value["srid"]
    if not srid:
        return wkb
    return wkb[:4] + b"\x20" + srid.to_bytes(4, "little") + wkb[5:]


_READERS: Mapping[Encoding, Callable[[Column, Any], Any]] = {
    Encoding.PLAIN: _plain,
    # The workloads have none of the characters that are decoded wrongly.
    **dict.fromkeys(MISREAD_TEXTS, _plain),
    Encoding.DAYS: lambda _, v: date(1970, 1, 1) + timedelta(days=v),
    Encoding.MILLIS: lambda _, v: _EPOCH + timedelta(milliseconds=v),
    Encoding.MICROS: lambda _, v: _EPOCH + timedelta(microseconds=v),
    Encoding.NANOS: lambda _, v: _EPOCH + timedelta(microseconds=v // 1000),
    Encoding.TIME_MILLIS: lambda _, v: v * 1000,
    Encoding.TIME_NANOS: lambda _, v: v // 1000,
    Encoding.UNSEEN_DECIMAL: _decimal,
    Encoding.EITHER_DECIMAL: _decimal,
    Encoding.BASE64_DECIMAL: _decimal,
    Encoding.BASE64_BITS: lambda _, v: base64.b64decode(v)[::-1],
    Encoding.YEAR: lambda _, v: 0 if v == 1900 else v,
    Encoding.FLAG: lambda _, v: int(v),
    Encoding.SET: _set,
    Encoding.GEOMETRY: _geometry,
    Encoding.LATIN1: lambda c, v: v.encode("latin-1").ljust(c.size or 0, b"\0"),
}
