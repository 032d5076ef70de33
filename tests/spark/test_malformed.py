"""Malformed records among good ones, through the whole engine: each is quarantined, and the others are applied."""

import json
import time
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from replicator.model.table import Column, TableSchema
from replicator.model.types import DOUBLE, LONG, STRING, decimal
from tests.oracle.avro import AvroTopics
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record
from tests.support.decoding import decoded
from tests.support.lake_harness import LakeHarness
from tests.support.malformed_events import (
    AVRO_EMPTY,
    AVRO_LAUGHS,
    AVRO_LIST,
    AVRO_NOTHING,
    DECIMAL,
    DEEP,
    ENUM,
    definition,
    event_with,
)
from tests.support.orders_table import ORDERS

COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("name", "varchar"), ColumnSpec("price", "decimal"))
CREATED = Record("shop", 0, None, schema_change_event(Place(1, 4), "orders", COLUMNS, ["id"], kind="CREATE"))
SOON_S = 60

ODD_PARTS: tuple[Any, ...] = (5, "x", [], [[]], True)


def value(number: int, price: Any = 1.5, **parts: Any) -> bytes:
    row = {"id": number, "name": "n", "price": price}
    event = json.loads(change_event("c", Place(1, 100 + number), "orders", after=row))
    event["source"] |= parts.pop("source", {}) if isinstance(parts.get("source"), dict) else {}
    return json.dumps(event | parts, separators=(",", ":")).encode()


def of_price(token: str) -> bytes:
    return value(1, "PRICE").replace(b'"PRICE"', token.encode())


PARTS = ("before", "after", "source", "op")
"""The parts of an envelope that a mirror reads."""

MALFORMED = [
    b"",
    b"\0",
    b"garbage{",
    b"\xff\xfe{",
    b'"text"',
    b"[]",
    DEEP,
    b'{"schema":' + DEEP,
    value(1).replace(b'"n"', DEEP[:200_000]),
    *(
        of_price(token)
        for token in ("1e30000000", "-1.5E+30000000", '"1e30000000"', "1e2147483647", "1e99999")
    ),
    *(of_price(token) for token in ("1" * 900, "1" * 5000, "[1]", "{}", '"x"')),
    *(value(1, **{part: odd}) for part in PARTS for odd in ODD_PARTS),
    *(value(1, source={"file": odd}) for odd in ("", "x", "x.9999999999", "x.1x", "x.-1", "x.\u0663")),
    *(value(1, source={"pos": odd}) for odd in (-1, 2**62, 2**80, "x", 1e300, None)),
    *(value(1, source={"ts_ms": odd}) for odd in (-1, 2**62)),
    event_with(),
    event_with({"field": "x", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2000000000"}}),
    event_with({"field": "x", "type": "string", "name": ENUM, "parameters": {"allowed": "\\" * 39_999}}),
    event_with({"field": "\ud800", "type": "string"}),
    event_with({"field": "x", "type": "string"}, {"field": "x", "type": "string"}),
    event_with({"field": 5, "type": [5]}),
    b'{"schema":' + DEEP + b',"payload":{}}',
    b'{"schema":5,"payload":5}',
    b'{"schema":{},"payload":{}}',
]

SCHEMA_CHANGES = [
    DEEP,
    b"5",
    b'{"source":5}',
    definition(typeName="DECIMAL", length=65, scale=2_000_000_000),
    definition(typeName="CHAR", charsetName="binary", length=2_000_000_000),
    definition(name="\ud800"),
    definition(name="id"),
    definition(id="," * 40_000),
    definition().replace(b'"pos": 4', b'"pos": 1e999'),
]


def with_schema(record: Record) -> Record:
    assert record.key is not None
    assert record.value is not None
    return Record(
        record.topic,
        record.partition,
        with_key_schema(record.key, COLUMNS, ["id"], ORDERS),
        with_value_schema(record.value, COLUMNS, ORDERS),
    )


def good(number: int) -> Record:
    return Record(ORDERS, 0, key_of({"id": number}, ["id"]), value(number))


def assert_set_aside(lake: LakeHarness, records: list[Record], numbers: list[int]) -> None:
    """Assert that the good events are in the lake, and all other records in quarantine with their coordinates."""
    assert sorted(row["id"] for row in lake.rows("orders")) == numbers
    places: dict[str, int] = {}
    wanted = {}
    for record in records:
        offset = places[record.topic] = places.get(record.topic, -1) + 1
        if record not in (CREATED, *map(good, numbers), *(with_schema(good(n)) for n in numbers)):
            wanted[record.topic, offset] = record.value
    found = {(r["topic"], r["offset"]): r["value"] for r in lake.rows("quarantine", "shop_ops")}
    assert found.keys() == wanted.keys()
    assert found == wanted


@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "with-schemas"])
def test_malformed_records_are_quarantined_and_good_ones_are_applied(
    lake: LakeHarness, schemas: bool
) -> None:
    def made(number: int) -> Record:
        return with_schema(good(number)) if schemas else good(number)

    records = [Record("shop", 0, None, change) for change in SCHEMA_CHANGES]
    records += [CREATED, made(1)]
    records += [Record(ORDERS, 0, b"\xff" if i % 2 else None, v) for i, v in enumerate(MALFORMED)]
    records += [made(2)]
    lake.write(records)
    begun = time.process_time()
    for _ in range(2):
        assert lake.catch_up().summary().paused == {}
        assert_set_aside(lake, records, [1, 2])
    assert time.process_time() - begun < SOON_S
    more = [Record("shop", 0, None, SCHEMA_CHANGES[0]), Record(ORDERS, 0, DEEP, MALFORMED[2]), made(3)]
    lake.write(more)
    assert lake.catch_up().summary().paused == {}
    assert_set_aside(lake, [*records, *more], [1, 2, 3])


def test_malformed_avro_records_are_quarantined_and_good_ones_are_applied(lake: LakeHarness) -> None:
    topics = AvroTopics()
    first = topics.encoded(with_schema(good(1)))
    odd = [AVRO_LIST, AVRO_NOTHING, AVRO_EMPTY, AVRO_LAUGHS, json.loads(DEEP[99_950:100_050]), 5, "long"]
    for i, schema in enumerate(odd):
        topics.schemas[100 + i] = json.dumps(schema)
    topics.schemas[200] = DEEP.decode()
    written = [b"\0\0\0\0" + bytes([n]) for n in (*(100 + i for i in range(len(odd))), 200, 250)]
    bodies = (b"\0", b"\2" * 100_000, b"\xfe\xff\xff\xff\xff\xff\xff\x7f\0")
    assert first.value is not None
    header = first.value[:5]
    bad = [head + body for head in (*written, header) for body in bodies]
    bad += [b"", b"\0", header, first.value[:20]]
    records = [Record(ORDERS, 0, b"\0\0\0\0\x64\0" if i % 2 else None, v) for i, v in enumerate(bad)]
    lake.write([with_schema(good(1)), *records, with_schema(good(2))], avro=topics)
    for _ in range(2):
        assert lake.catch_up().summary().paused == {}
        assert sorted(row["id"] for row in lake.rows("orders")) == [1, 2]
        found = {r["offset"]: r["value"] for r in lake.rows("quarantine", "shop_ops")}
        assert found == {i + 1: v for i, v in enumerate(bad)}


def test_tables_continue_when_other_definitions_are_malformed(lake: LakeHarness) -> None:
    other = schema_change_event(Place(1, 4), "other", COLUMNS, ["none"], kind="CREATE")
    lake.write(
        [
            Record("shop", 0, None, other),
            *(Record("shop", 0, None, change) for change in SCHEMA_CHANGES),
            CREATED,
            good(1),
            Record("shop.shop.other", 0, None, value(1).replace(b'"orders"', b'"other"')),
        ]
    )
    mirror = lake.catch_up()
    assert [row["id"] for row in lake.rows("orders")] == [1]
    assert list(mirror.summary().paused) == ["shop.other"], "its definition has a key of no column"
    assert len(lake.rows("quarantine", "shop_ops")) == len(SCHEMA_CHANGES)


PRICED = TableSchema(
    (
        Column("id", LONG),
        Column("a/ü", decimal(30, 10)),
        Column("money", decimal(12, 2)),
        Column("text", STRING),
        Column("real", DOUBLE),
    ),
    ("id",),
)


def priced(**fields: str) -> bytes:
    """Return an event with `fields`: the field name as written → the value as JSON text."""
    row = ",".join(f'"{name}":{token}' for name, token in ({"id": "1"} | fields).items())
    return change_event("c", Place(1, 5), "t", after={"x": 0}).replace(b'{"x":0}', b"{%s}" % row.encode())


@pytest.mark.parametrize("spelt", ["a/ü", "a\\/ü", "\\u0061/ü", "a\\u002f\\u00fc", "money", "\\u006doney"])
def test_event_is_bad_when_the_exponent_of_a_decimal_is_too_large(spark: SparkSession, spelt: str) -> None:
    numbers = ("1e30000000", "-1.5E+30000000", "1e2147483647", "1" * 900)
    texts = (
        *numbers,
        "1e3,0000000",
        "1,e30000000",
        "\\u0031e30000000",
        "1\\u0065300000000",
        "\u0661e30000000",
    )
    tokens = [*numbers, *(f'"{text}"' for text in texts), f" {numbers[0]}", "\t\n" + f'"{numbers[0]}"']
    begun = time.monotonic()
    *found, tiny = decoded(spark, PRICED, *(priced(**{spelt: token}) for token in (*tokens, "1e-30000000")))
    assert [row.bad for row in found] == ["not JSON of the table's schema"] * len(tokens)
    assert {tiny.after["a/ü"], tiny.after["money"]} == {0, None}
    assert time.monotonic() - begun < SOON_S


def test_valid_exponents_and_texts_that_resemble_exponents_are_decoded(spark: SparkSession) -> None:
    numbers = (
        *("0E-10", "1E-10", "1.5e3", "12345678901234567890.1234567890", "1234567890123456789.123456789E1"),
        *('"12.50"', '"1E-3"', "null", "7", " \t12345678901234567890.1234567890"),
    )
    texts = ("5e12345", '"a/ü":1e99999', '":1e30000000', '"a/ü":"1e30000000"', "a\\", "\\u0061/ü")
    cases = [priced(**{"a/ü": number}) for number in numbers]
    cases += [priced(money="2.50", text=json.dumps(text, ensure_ascii=False)) for text in texts]
    cases += [priced(money="9999999999.99", real="1.7976931348623157E308")]
    rows = decoded(spark, PRICED, *cases)
    assert [row.bad for row in rows] == [None] * len(cases)
    assert [row.after["a/ü"] for row in rows[: len(numbers)]] == [
        None if number == "null" else Decimal(number.strip('" \t')) for number in numbers
    ]
    assert [row.after["text"] for row in rows[len(numbers) : -1]] == list(texts)
    assert [row.after["money"] for row in rows[len(numbers) :]] == [
        *([Decimal("2.50")] * len(texts)),
        Decimal("9999999999.99"),
    ]
