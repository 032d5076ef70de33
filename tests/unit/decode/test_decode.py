"""Decoding of JSON events: values of every encoding."""

import json
import random
import struct
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.parser import JsonParser
from replicator.model.table import Column, TableSchema
from replicator.model.transforms import Blank
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
from tests.oracle.events import Place, change_event
from tests.support.decoding import ID, RANGES, b64, decoded, records, rows_of, unscaled, wide

BIG = 10**38 - 1
POINT = struct.pack("<BIdd", 1, 1, 1.0, 2.0)
CASES: list[tuple[LakeType, Encoding, Any, Any]] = [
    (BOOLEAN, Encoding.PLAIN, True, True),
    (INT, Encoding.PLAIN, -(2**31), -(2**31)),
    (LONG, Encoding.PLAIN, 2**63 - 1, 2**63 - 1),
    (LONG, Encoding.PLAIN, -(2**63), -(2**63)),
    (FLOAT, Encoding.PLAIN, 3.5, 3.5),
    (DOUBLE, Encoding.PLAIN, 1e-300, 1e-300),
    (DOUBLE, Encoding.PLAIN, 0.1, 0.1),
    (DOUBLE, Encoding.PLAIN, 7, 7.0),
    (DOUBLE, Encoding.PLAIN, "-Infinity", float("-inf")),
    (FLOAT, Encoding.PLAIN, "Infinity", float("inf")),
    (FLOAT, Encoding.PLAIN, 3.4028235e38, 3.4028234663852886e38),
    (STRING, Encoding.PLAIN, "naïve 🦊 \" \\ \n \x00", "naïve 🦊 \" \\ \n \x00"),
    (STRING, Encoding.PLAIN, "", ""),
    (STRING, Encoding.PLAIN, {"wkb": "AQ==", "srid": None}, '{"wkb":"AQ==","srid":null}'),
    (BINARY, Encoding.PLAIN, b64(bytes(range(256))), bytearray(range(256))),
    (BINARY, Encoding.PLAIN, "", bytearray()),
    (decimal(12, 2), Encoding.PLAIN, -12.34, Decimal("-12.34")),
    (decimal(12, 2), Encoding.PLAIN, 7, Decimal("7.00")),
    (decimal(20, 0), Encoding.PLAIN, 2**64 - 1, Decimal(2**64 - 1)),
    (decimal(38, 0), Encoding.PLAIN, BIG, Decimal(BIG)),
    (decimal(12, 2), Encoding.NUMBER, -12.34, Decimal("-12.34")),
    (decimal(12, 2), Encoding.NUMBER, 7, Decimal("7.00")),
    (decimal(15, 0), Encoding.NUMBER, 10**15 - 1, Decimal(10**15 - 1)),
    (decimal(15, 15), Encoding.NUMBER, -1e-15, Decimal("-1E-15")),
    (decimal(12, 2), Encoding.BASE64_DECIMAL, unscaled(1234), Decimal("12.34")),
    (decimal(12, 2), Encoding.BASE64_DECIMAL, unscaled(-1), Decimal("-0.01")),
    (decimal(12, 2), Encoding.BASE64_DECIMAL, unscaled(0), Decimal("0.00")),
    (decimal(12, 2), Encoding.BASE64_DECIMAL, unscaled(-128), Decimal("-1.28")),
    (decimal(12, 2), Encoding.BASE64_DECIMAL, unscaled(128), Decimal("1.28")),
    (decimal(38, 10), Encoding.BASE64_DECIMAL, unscaled(BIG), Decimal(f"{BIG}E-10")),
    (decimal(38, 0), Encoding.BASE64_DECIMAL, unscaled(-BIG), Decimal(-BIG)),
    (decimal(20, 0), Encoding.BASE64_DECIMAL, unscaled(2**64 - 1), Decimal(2**64 - 1)),
    (decimal(12, 2), Encoding.EITHER_DECIMAL, unscaled(-1234), Decimal("-12.34")),
    (decimal(12, 2), Encoding.EITHER_DECIMAL, -12.34, Decimal("-12.34")),
    (decimal(12, 2), Encoding.EITHER_DECIMAL, 7, Decimal("7.00")),
    (decimal(10, 0), Encoding.EITHER_DECIMAL, "1234", Decimal(-2658824)),
    (decimal(10, 0), Encoding.EITHER_DECIMAL, 1234, Decimal(1234)),
    (decimal(20, 10), Encoding.EITHER_DECIMAL, 1e-9, Decimal("1E-9")),
    (decimal(38, 0), Encoding.EITHER_DECIMAL, unscaled(-BIG), Decimal(-BIG)),
    (decimal(38, 0), Encoding.EITHER_DECIMAL, BIG, Decimal(BIG)),
    (BINARY, Encoding.BASE64_BITS, b64(b"\x01\x02"), bytearray(b"\x02\x01")),
    (BINARY, Encoding.BASE64_BITS, b64(bytes(range(1, 9))), bytearray(range(8, 0, -1))),
    (DATE, Encoding.DAYS, 0, date(1970, 1, 1)),
    (DATE, Encoding.DAYS, -135140, date(1600, 1, 1)),
    (DATE, Encoding.DAYS, 2_932_896, date(9999, 12, 31)),
    (DATE, Encoding.DAYS, -719_162, date(1, 1, 1)),
    (TIMESTAMP, Encoding.MILLIS, 1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123000)),  # noqa: DTZ001
    (TIMESTAMP, Encoding.MILLIS, -1, datetime(1969, 12, 31, 23, 59, 59, 999000)),  # noqa: DTZ001
    (TIMESTAMP, Encoding.MICROS, 1_700_000_000_123_456, datetime(2023, 11, 14, 22, 13, 20, 123456)),  # noqa: DTZ001
    (TIMESTAMP, Encoding.MICROS, 253_402_300_799_999_999, datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    (TIMESTAMP, Encoding.NANOS, 1_700_000_000_123_456_789, datetime(2023, 11, 14, 22, 13, 20, 123456)),  # noqa: DTZ001
    (TIMESTAMP, Encoding.NANOS, -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    (
        TIMESTAMPTZ,
        Encoding.PLAIN,
        "2023-11-14T22:13:20.123456Z",
        datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC),
    ),
    (LONG, Encoding.PLAIN, -3_020_399_000_000, -3_020_399_000_000),
    (LONG, Encoding.TIME_MILLIS, -1500, -1_500_000),
    (LONG, Encoding.TIME_NANOS, -1, -1),
    (LONG, Encoding.TIME_NANOS, 1_999, 1),
    (INT, Encoding.YEAR, 1900, 0),
    (INT, Encoding.YEAR, 1901, 1901),
    (INT, Encoding.FLAG, True, 1),
    (INT, Encoding.FLAG, False, 0),
    (INT, Encoding.FLAG, -128, -128),
    (VECTOR, Encoding.PLAIN, [1.0, -2.5, 3.14], [1.0, -2.5, 3.140000104904175]),
    (STRING, Encoding.SET, "a,b", "a,b"),
    (BINARY, Encoding.LATIN1, "\x00ÿa", bytearray(b"\x00\xffa")),
    (BINARY, Encoding.GEOMETRY, {"wkb": b64(POINT), "srid": None}, bytearray(POINT)),
    (BINARY, Encoding.GEOMETRY, {"wkb": b64(POINT), "srid": 0}, bytearray(POINT)),
    (
        BINARY,
        Encoding.GEOMETRY,
        {"x": 1.0, "y": 2.0, "wkb": b64(POINT), "srid": 4326},
        bytearray(b"\x01\x01\x00\x00\x20" + (4326).to_bytes(4, "little") + POINT[5:]),
    ),
]  # fmt: skip


def test_decode_reads_values_of_every_encoding() -> None:
    """All in one table, one column each: a row of values, a row of nulls, a row without the columns."""
    columns = tuple(Column(f"c.{i}`", kind, encoding) for i, (kind, encoding, _, _) in enumerate(CASES))
    schema = TableSchema((ID, *columns), ("id",))
    row = {"id": 1} | {c.name: case[2] for c, case in zip(columns, CASES, strict=True)}
    empty = {"id": 2} | dict.fromkeys((c.name for c in columns), None)
    events = [change_event("c", Place(1, i), "t", after=r) for i, r in enumerate((row, empty, {"id": 3}))]
    full, nulls, absent = decoded(schema, *events)
    assert full.bad is None, full.bad
    for column, (kind, encoding, given, wanted) in zip(columns, CASES, strict=True):
        found = full.after[column.name]
        if isinstance(found, datetime) and wanted.tzinfo:
            found = found.astimezone(UTC)
        assert found == wanted, f"{kind} {encoding} {given!r}"
    assert nulls.bad is None
    assert set(list(nulls.after.values())[1:]) == {None}
    assert set(list(absent.after.values())[1:]) == {None}


LABELS = (("b\\, c", "b, c"), ("back\\\\slash", "back\\slash"), ("x ", "x"))
DIGITS = "1234567890" * 7


class Number(str):
    """The text of a number that Python would round."""

    __slots__ = ()


REFINED: list[tuple[Column, Any, Any]] = [
    (Column("c", STRING, respelt=LABELS), "b\\, c", "b, c"),
    (Column("c", STRING, respelt=LABELS), "b, c", "b, c"),
    (Column("c", STRING, respelt=LABELS), "back\\\\slash", "back\\slash"),
    (Column("c", STRING, Encoding.SET, respelt=LABELS[1:]), "a,back\\\\slash,x ", "a,back\\slash,x"),
    (Column("c", STRING, Encoding.SET, respelt=LABELS[1:]), "", ""),
    (Column("c", BINARY, Encoding.LATIN1, size=4), "\x00ÿ", bytearray(b"\x00\xff\x00\x00")),
    *(
        (wide(encoding, size), Number(written), shown)
        for encoding in (Encoding.EITHER_DECIMAL, Encoding.PLAIN)
        for size, written, shown in (
            (0, DIGITS[:65], DIGITS[:65]),
            (0, "-1", "-1"),
            (0, "0", "0"),
            (30, f"{DIGITS[:35]}.{DIGITS[:30]}", f"{DIGITS[:35]}.{DIGITS[:30]}"),
            (30, "1E-30", f"0.{'0' * 29}1"),
            (30, "-1.23E-28", f"-0.{'0' * 27}123"),
            (30, "0E-30", f"0.{'0' * 30}"),
            (5, "0.00000", "0.00000"),
            (5, "1.5", "1.50000"),
            (0, "1E+3", "1000"),
        )
    ),
    *(
        (wide(encoding, size), unscaled(number), shown)
        for encoding in (Encoding.EITHER_DECIMAL, Encoding.BASE64_DECIMAL)
        for size, number, shown in (
            (0, int(DIGITS[:65]), DIGITS[:65]),
            (0, 10**65 - 1, "9" * 65),
            (30, -(10**65) + 1, f"-{'9' * 35}.{'9' * 30}"),
            (30, -1, f"-0.{'0' * 29}1"),
            (30, 0, f"0.{'0' * 30}"),
            (0, -(2**216), str(-(2**216))),
            (2, 2**192, f"{2**192 // 100}.{2**192 % 100:02d}"),
            (0, 10**27, str(10**27)),
            (0, -(10**54), str(-(10**54))),
            (0, 128, "128"),
        )
    ),
    (wide(Encoding.PLAIN, 3), "1.500", "1.500"),
]


def test_decode_converts_enum_set_text_and_wide_decimal_values() -> None:
    """ENUM and SET labels, bytes that are declared as text, decimals with too many digits for a lake type."""
    columns = tuple(replace(c, name=f"c{i}") for i, (c, _, _) in enumerate(REFINED))
    schema = TableSchema((ID, *columns), ("id",))
    row: dict[str, Any] = {"id": 1} | {c.name: case[1] for c, case in zip(columns, REFINED, strict=True)}
    text = change_event("c", Place(1, 5), "t", after=row).decode()
    for value in row.values():
        if isinstance(value, Number):
            text = text.replace(f':"{value}"', f":{value}")
    (found,) = decoded(schema, text.encode())
    assert found.bad is None
    assert {c.name: found.after[c.name] for c in columns} == {
        c.name: case[2] for c, case in zip(columns, REFINED, strict=True)
    }


def test_wide_decimals_are_read_when_texts_or_other_fields_have_the_same_name() -> None:
    """Numbers are found by their field name, which a text may contain, or which the event itself may use."""
    columns = (
        Column("n", STRING),
        replace(wide(Encoding.EITHER_DECIMAL, 1), name='w"'),
        wide(Encoding.EITHER_DECIMAL, 0),
    )
    schema = TableSchema((ID, *columns), ("id",))
    text = '{"c":1,"w\\"":2.5} "c":3'
    event = change_event("c", Place(1, 5), "t", after={"id": 1, "n": text, 'w"': Number("7.5"), "c": 8})
    (found,) = decoded(schema, event.replace(b'"7.5"', b"7.5"))
    assert (found.bad, found.position_key) == (None, (1 << 40) + 5)
    assert found.after == {"id": 1, "n": text, 'w"': "7.5", "c": "8"}
    own = TableSchema((ID, replace(columns[2], name="pos")), ("id",))
    (found,) = decoded(own, change_event("c", Place(1, 5), "t", after={"id": 1, "pos": 10**50}))
    assert (found.bad, found.position_key) == (None, (1 << 40) + 5)
    assert found.after["pos"] == str(10**50)


def test_numbers_of_the_event_are_read_when_a_decimal_has_the_name_of_their_field() -> None:
    """An amount may be called total_order, which is also the number of an event in its transaction."""
    columns = (
        Column("total_order", decimal(20, 2)),
        Column("srid", decimal(20, 0)),
        Column("place", BINARY, Encoding.GEOMETRY),
    )
    after = {"id": 1, "total_order": 3, "srid": 4326, "place": {"wkb": b64(POINT), "srid": 4326}}
    event = json.loads(change_event("c", Place(1, 5), "t", after=after))
    event["transaction"] = {"id": "file=1,pos=5", "total_order": 2, "data_collection_order": 1}
    (found,) = decoded(TableSchema((ID, *columns), ("id",)), json.dumps(event).encode())
    assert (found.bad, found.tx_order) == (None, 2)
    assert found.after["total_order"] == 3
    (plain,) = decoded(TableSchema((ID, columns[2]), ("id",)), json.dumps(event).encode())
    assert found.after["place"] == plain.after["place"]


def snapshot_event(kind: str, row: dict[str, Any]) -> bytes:
    """Return an event with a row that a snapshot of `kind` read."""
    event = json.loads(change_event("r", Place(1, 1), "t", after=row))
    event["source"]["snapshot"] = kind
    return json.dumps(event, separators=(",", ":")).encode()


def test_bits_of_a_key_have_the_order_of_the_binlog_also_in_a_snapshot() -> None:
    """Debezium 3.6 writes BIT columns of the key in the other byte order in snapshots, but not in incremental ones."""
    bits = [Column(name, BINARY, Encoding.BASE64_BITS) for name in ("k", "v")]
    schema = TableSchema((ID, *bits), ("id", "k"))
    little, big = b64(b"\x01\x02\x03"), b64(b"\x03\x02\x01")
    whole, part = {"id": 1, "k": big, "v": little}, {"id": 1, "k": little, "v": little}
    events = [
        *(snapshot_event(kind, whole) for kind in ("true", "first", "last_in_data_collection")),
        snapshot_event("incremental", part),
        change_event("c", Place(1, 2), "t", after=part),
        change_event("u", Place(1, 3), "t", before=part, after=part),
        change_event("d", Place(1, 4), "t", before=part),
    ]
    found = decoded(schema, *events, event_key=("id", "k"))
    images = [image for row in found for image in (row.before, row.after) if image is not None]
    assert len(images) == 8
    assert {(i["k"], i["v"]) for i in images} == {(b"\x03\x02\x01", b"\x03\x02\x01")}
    # Without the event's key, it is an ordinary column.
    (read,) = decoded(schema, events[3], event_key=("id",))
    assert read.after["k"] == b"\x03\x02\x01"
    (read,) = decoded(schema, snapshot_event("first", part), event_key=("id",))
    assert read.after["k"] == b"\x03\x02\x01"


def test_decode_reads_a_text_of_25_mb() -> None:
    """A LONGTEXT; some parsers of JSON refuse more than 20,000,000 characters."""
    schema = TableSchema((ID, Column("body", STRING)), ("id",))
    body = "0123456789" * 2_500_000
    raw = records(change_event("c", Place(1, 0), "t", after={"id": 1, "body": body}))
    (found,) = rows_of(
        Decoder(JsonParser(), Decoding((WriterSchema(schema),), schema, False), RANGES).decode(raw)
    )
    assert found.bad is None
    assert found.after["body"] == body


def test_decimals_of_15_digits_are_exact_when_written_as_numbers() -> None:
    """Such numbers pass through doubles."""
    draw = random.Random(7)
    for scale in (0, 2, 7, 15):
        column = Column("c", decimal(15, scale), Encoding.NUMBER)
        unscaled = [
            draw.randrange(-(10 ** draw.randint(1, 15)) + 1, 10 ** draw.randint(1, 15)) for _ in range(2000)
        ]
        exact = [Decimal(n).scaleb(-scale) for n in unscaled]
        event = change_event("c", Place(1, 5), "t", after={"id": 1, "c": "?"})
        texts = [f"{n:f}" for n in exact] + [f"{n:E}" for n in exact]
        rows = decoded(
            TableSchema((ID, column), ("id",)), *(event.replace(b'"?"', text.encode()) for text in texts)
        )
        assert [row.after["c"] for row in rows] == exact * 2


def test_columns_that_are_masked_by_null_are_not_read() -> None:
    columns = [
        Column("n", INT, transform=Blank()),
        Column("d", decimal(5, 2), Encoding.NUMBER, transform=Blank()),
    ]
    event = change_event("c", Place(1, 4), "t", after={"id": 1, "n": "no number", "d": "AfQ="})
    (row,) = decoded(TableSchema((ID, *columns), ("id",)), event)
    assert (row.bad, row.after) == (None, {"id": 1, "n": None, "d": None})


def test_no_events_are_decoded_to_no_rows() -> None:
    assert decoded(TableSchema((ID,), ("id",)), None) == []
    assert len(JsonParser().sources(pa.array([], pa.binary()))["file"]) == 0
