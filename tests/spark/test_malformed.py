"""Malformed records among good ones, through the whole engine: each is quarantined, and the others are applied."""

import json
import time
from typing import Any

import pytest

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
    value(1).replace(b"1.5", DEEP[:200_000]),
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
