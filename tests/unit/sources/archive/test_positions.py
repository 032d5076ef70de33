"""Positions of archived events, in each format of an event."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.moments import parse_as_of
from replicator.sources.archive.positions import EventPosition, PositionReader, SourceSpan

SOURCE: dict[str, Any] = {
    "version": "3.6.1.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1_700_000_000_123,
    "snapshot": "false",
    "db": "shop",
    "table": "orders",
    "server_id": 1,
    "gtid": "E95b1ac8-e5bc-11f1-811f-02fc00000001:77",
    "file": "bin.000012",
    "pos": 4567,
    "row": 3,
    "query": None,
}
ROW = {"id": 1, "source": '"source":{"file":"bin.000099","pos":1}', "json": '{"source":{"file":"x","pos":2}}'}
EVENT = {"before": ROW, "after": ROW, "source": SOURCE, "op": "u", "ts_ms": 1}
EXPECTED = EventPosition(
    (12 << 40) + 4567, "bin.000012", 4567, 3, 1_700_000_000_123, "E95b1ac8-e5bc-11f1-811f-02fc00000001:77"
)


def text(event: object, *, compact: bool = True) -> bytes:
    return json.dumps(event, separators=(",", ":") if compact else None).encode()


@pytest.mark.parametrize(
    "value",
    [
        text(EVENT),
        text(EVENT, compact=False),
        text({"schema": {"fields": [{"field": "source"}]}, "payload": EVENT}),
        text({"source": SOURCE, "after": {"source": {"wkb": "AQ==", "srid": None}}, "op": "c"}),
        text({"id": 1, **{f"__source_{name}": value for name, value in SOURCE.items()}}),
        text({"schema": {}, "payload": {f"__source_{name}": value for name, value in SOURCE.items()}}),
    ],
    ids=["envelope", "blanks", "schema", "geometry column of this name", "flat", "flat with schema"],
)
def test_position_of_a_json_event(value: bytes) -> None:
    assert PositionReader().read(value) == EXPECTED


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b"[1]",
        b"\xff\xfe",
        b'"source":',
        b'{"source":',
        b'{"source":{}}',
        text({"source": "x"}),
        text(EVENT | {"source": SOURCE | {"file": None}}),
        text(EVENT | {"source": SOURCE | {"file": "nothing"}}),
        text(EVENT | {"source": SOURCE | {"pos": "1"}}),
        text(EVENT | {"source": SOURCE | {"pos": 1 << 41}}),
        b'{"source":' + b"[" * 100_000,
        b"\x00\x00\x00\x00\x07abc",
    ],
)
def test_event_without_a_position_has_none(value: bytes | None) -> None:
    assert PositionReader().read(value) is None


def avro(schema: Any, record: Any) -> bytes:
    stream = io.BytesIO(b"\x00" + (7).to_bytes(4, "big"))
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


AVRO_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
AVRO_SOURCE: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.mysql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": ["null", "string"]},
        {"name": "server_id", "type": "long"},
        {"name": "gtid", "type": ["null", "string"]},
        {"name": "file", "type": "string"},
        {"name": "pos", "type": "long"},
        {"name": "row", "type": "int"},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.shop.orders",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": AVRO_SOURCE},
        {"name": "op", "type": "string"},
    ],
}


def test_position_of_an_avro_event() -> None:
    value = avro(ENVELOPE, {"before": None, "after": {"id": 5, "note": "n"}, "source": SOURCE, "op": "c"})
    schemas: dict[int, str] = {}
    reader = PositionReader(schemas.get)
    assert reader.read(value) is None
    schemas[7] = json.dumps(ENVELOPE)
    assert reader.read(value) == EXPECTED
    assert reader.read(value[:20]) is None


@given(st.binary(max_size=60), st.integers(0, 400))
def test_position_of_any_bytes_is_read_or_none(piece: bytes, at: int) -> None:
    value = text(EVENT)
    PositionReader().read(value[:at] + piece + value[at + len(piece) :])
    PositionReader({0: json.dumps(ENVELOPE)}.get).read(b"\x00\x00\x00\x00\x00" + piece)


def at(file: str, pos: int, ts_ms: int, gtid: str | None = None) -> EventPosition:
    found = parse_as_of(f"{file}:{pos}").bound
    assert found is not None
    return EventPosition(found.position_key, file, pos, 0, ts_ms, gtid)


def test_span_has_the_lowest_and_highest_values_in_any_order() -> None:
    events = [
        at("bin.999999", 7, 30, "u:5"),
        None,
        at("bin.1000000", 4, 20, "V:tag:2"),
        at("bin.999999", 9, 40, "U:3"),
    ]
    span = SourceSpan.of(events)
    assert span == SourceSpan(("bin.999999", 7), ("bin.1000000", 4), (20, 40), {"u": (3, 5), "v:tag": (2, 2)})
    assert span is not None
    assert span.last_key == (1_000_000 << 40) + 4
    assert [span.may_have(g) for g in ("u:4", "U:5", "u:6", "v:tag:2", "v:2", "w:3", "x")] == [
        *(True, True, False, True, False, False, False),
    ]
    assert SourceSpan.of([None]) is None
