"""Decoding of JSON events that are bad, or have no row: what is wrong with them, and their bytes."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.format import JsonFormat
from replicator.decode.json.parser import JsonParser
from replicator.decode.records import DriverRecords
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.model.batch_stats import MESSAGE_CODE, UNDECODABLE, UNKNOWN_SCHEMA
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import (
    BINARY,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    TIMESTAMPTZ,
    VECTOR,
    Encoding,
    LakeType,
    decimal,
)
from tests.oracle.events import ColumnSpec, Place, change_event, with_value_schema
from tests.support.decoding import ID, RANGES, decoded, records, rows_of, unscaled, wide


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (wide(Encoding.BASE64_DECIMAL, 2), 1.5),
        (wide(Encoding.BASE64_DECIMAL, 2), ""),
        (wide(Encoding.BASE64_DECIMAL, 0), unscaled(2**230)),
        (wide(Encoding.EITHER_DECIMAL, 2), "no base64"),
        (wide(Encoding.EITHER_DECIMAL, 2), {"a": 1}),
        (wide(Encoding.PLAIN, 2), "AfQ="),
        (wide(Encoding.PLAIN, 0), 1.5),
        (wide(Encoding.UNSEEN_DECIMAL, 0), 1),
        (Column("c", INT, Encoding.FLAG), "yes"),
        *((Column("c", BINARY), text) for text in ("AQI", "A===", "AA=A", "AQ==AQ==", " AQ==", "!!!!")),
        (Column("c", DOUBLE), "1.5"),
        (Column("c", DOUBLE), True),
        (Column("c", BINARY, Encoding.GEOMETRY), {"wkb": "AQ==", "srid": 2**40}),
        (Column("c", BINARY, Encoding.GEOMETRY), {"wkb": "AQ==", "srid": True}),
        (Column("c", VECTOR), [10**400]),
        (Column("c", VECTOR), ["x"]),
        (Column("c", BINARY, Encoding.LATIN1), "日"),
        # Times outside MySQL's range.
        (Column("c", TIMESTAMP, Encoding.MILLIS), 2**62),
        (Column("c", TIMESTAMP, Encoding.MICROS), -(2**63)),
        (Column("c", TIMESTAMP, Encoding.MICROS), 253_402_300_800_000_000),
        (Column("c", DATE, Encoding.DAYS), 2_932_897),
        (Column("c", DATE, Encoding.DAYS), -(2**31)),
    ],
)
def test_event_is_bad_when_a_value_is_unreadable(column: Column, value: Any) -> None:
    schema = TableSchema((ID, column), ("id",))
    bad, good = decoded(
        schema,
        change_event("c", Place(1, 5), "t", after={"id": 1, "c": value}),
        change_event("c", Place(1, 6), "t", after={"id": 2, "c": None}),
    )
    assert (bad.bad, good.bad) == ("not JSON of the table's schema", None)


SCHEMA = TableSchema((ID, Column("q", INT), Column("price", decimal(6, 2))), ("id",))
GOOD = {"id": 1, "q": 2, "price": 3.5}


def change(op: str = "c", **parts: Any) -> bytes:
    """Return an event with replaced `parts`; a part that is `...` is omitted."""
    base = json.loads(change_event("c", Place(1, 5), "t", after=GOOD)) | {"op": op}
    return json.dumps({k: v for k, v in (base | parts).items() if v is not ...}).encode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"garbage{", "not JSON of the table's schema"),
        (b"\xff\xfe\x00", "not JSON of the table's schema"),
        (b"", "not JSON of the table's schema"),
        (b"{}", "no op: not a Debezium change event"),
        (b"[1]", "not JSON of the table's schema"),
        (b'"text"', "not JSON of the table's schema"),
        (b"null", "not JSON of the table's schema"),
        (change("x"), "unknown op x"),
        (change(source=...), "no source position"),
        (change(source={"file": None, "pos": 4}), "no source position"),
        (change(source={"file": "nonumber", "pos": 4}), "no source position"),
        (change(after=None), "no after-image"),
        (change("u", after=None), "no after-image"),
        (change("d", before=None), "delete without a before-image"),
        (change(after={**GOOD, "id": None}), "null in the key"),
        (change("d", before={"q": 1}), "null in the key"),
        (change(after={**GOOD, "q": "seven"}), "not JSON of the table's schema"),
        (change(after={**GOOD, "q": 2**31}), "not JSON of the table's schema"),
        (change(after={**GOOD, "q": {"a": 1}}), "not JSON of the table's schema"),
        (change(after={**GOOD, "price": 123456.78}), "not JSON of the table's schema"),
        (change(after="row"), "not JSON of the table's schema"),
    ],
)
def test_bad_events_are_returned_with_reason_and_raw_bytes(value: bytes, reason: str) -> None:
    bad, good = decoded(SCHEMA, value, change())
    assert bad.bad == reason
    assert bad.op is None
    assert bytes(bad.raw_value) == value
    assert bytes(bad.raw_key) == b'{"id":1}'
    assert (good.bad, good.op, good.raw_value) == (None, "c", None)
    assert good.after == {"id": 1, "q": 2, "price": Decimal("3.50")}


@pytest.mark.parametrize(
    ("lake_type", "encoding", "value"),
    [
        (decimal(6, 2), Encoding.BASE64_DECIMAL, unscaled(123456789)),
        (decimal(38, 0), Encoding.BASE64_DECIMAL, unscaled(10**50)),
        (decimal(6, 2), Encoding.BASE64_DECIMAL, 1.5),
        (decimal(6, 2), Encoding.BASE64_DECIMAL, "no base64"),
        (decimal(6, 2), Encoding.EITHER_DECIMAL, unscaled(123456789)),
        (decimal(38, 0), Encoding.EITHER_DECIMAL, unscaled(10**50)),
        (decimal(6, 2), Encoding.EITHER_DECIMAL, 123456.78),
        (decimal(6, 2), Encoding.EITHER_DECIMAL, "no base64"),
        (decimal(6, 2), Encoding.EITHER_DECIMAL, {"a": 1}),
        (decimal(6, 2), Encoding.PLAIN, unscaled(-1)),
        (decimal(6, 2), Encoding.UNSEEN_DECIMAL, 1.5),
        (decimal(6, 2), Encoding.NUMBER, 123456.78),
        (decimal(6, 2), Encoding.NUMBER, "12.34"),
        (decimal(6, 2), Encoding.NUMBER, unscaled(-1)),
        (decimal(6, 2), Encoding.NUMBER, float("inf")),
        (decimal(6, 2), Encoding.NUMBER, True),
    ],
)
def test_event_is_bad_when_a_decimal_in_an_image_is_unreadable(
    lake_type: LakeType, encoding: Encoding, value: Any
) -> None:
    schema = TableSchema((ID, Column("price", lake_type, encoding)), ("id",))
    rows = [{"id": 1, "price": value}, {"id": 2, "price": None}]
    events = [
        change_event("u", Place(1, 5), "t", before=rows[1], after=rows[0]),
        change_event("d", Place(1, 6), "t", before=rows[0]),
        change_event("u", Place(1, 7), "t", before=rows[1], after=rows[1]),
    ]
    bad = "not JSON of the table's schema"
    assert [r.bad for r in decoded(schema, *events)] == [bad, bad, None]
    again = Decoder(JsonParser(), Decoding((WriterSchema(schema),), schema, True), RANGES)
    assert again.decode(records(events[0])).column("bad").to_pylist() == [UNKNOWN_SCHEMA]


def test_tombstones_are_omitted_and_positions_are_packed() -> None:
    delete = change_event("d", Place(1_000_000, 77, 3), "t", before=GOOD)
    (found,) = decoded(SCHEMA, delete, None)
    assert (found.position_key, found.row_key) == ((1_000_000 << 40) + 77, 6)
    assert found.file == "mysql-bin.1000000"
    assert found.before == {"id": 1, "q": 2, "price": Decimal("3.50")}
    assert found.after is None


def test_truncate_event_is_decoded_without_a_row() -> None:
    (found,) = decoded(SCHEMA, change_event("t", Place(1, 5), "t"))
    assert (found.op, found.bad, found.before, found.after) == ("t", None, None, None)


def test_message_event_is_decoded_without_a_row() -> None:
    (message,) = decoded(SCHEMA, change("m", after=None))
    assert (message.bad, message.op, message.code, message.after) == (None, "m", MESSAGE_CODE, None)


def test_event_with_a_schema_is_bad_when_it_is_incomplete_or_not_an_object() -> None:
    columns = [ColumnSpec("id", "bigint", False)]
    good = with_value_schema(change_event("c", Place(1, 5), "t", after={"id": 1}), columns, "x")
    head = good[: good.index(b'"payload":') + len(b'"payload":')]
    raw = records(good, good[:-1], good[:-2], head, head + b"null}", head + b"[1]}", head + b"{}}")
    writer_schemas = SchemaTracker(JsonFormat()).discovery.learn(
        TableId("shop", "t"), DriverRecords(raw), patient=False
    )
    decoding = Decoding(tuple(writer_schemas), writer_schemas[-1].schema, True, UNDECODABLE)
    rows = rows_of(Decoder(JsonParser(), decoding, RANGES).decode(raw))
    assert rows[0].bad is None
    assert rows[0].after == {"id": 1}
    no_json, no_event = "not JSON of the table's schema", "no op: not a Debezium change event"
    assert [r.bad for r in rows[1:]] == [no_json] * 5 + [no_event]


def test_event_is_bad_when_a_timestamptz_is_a_number() -> None:
    """A number would be seconds or milliseconds."""
    schema = TableSchema((ID, Column("at", TIMESTAMPTZ)), ("id",))
    given = (10**12, -(10**12), "2024-02-29T23:59:59Z", None)
    rows = decoded(
        schema,
        *(change_event("c", Place(1, i), "t", after={"id": i, "at": at}) for i, at in enumerate(given)),
    )
    assert [r.bad for r in rows] == ["not JSON of the table's schema"] * 2 + [None, None]
    assert rows[2].after["at"].astimezone(UTC) == datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)
