"""Events in Avro: every type, bad events, several writer schemas in one batch."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from replicator.decode.avro.parser import AvroParser
from replicator.decode.avro.schema import Writer, parse_writer_schema
from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.model.batch_stats import UNDECODABLE, UNKNOWN_SCHEMA
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableSchema
from tests.oracle.avro import AvroTopics
from tests.support.avro_events import CASES, ZONED, connect, decimal, envelope, event
from tests.support.decoding import records, rows_of

RANGES = (OffsetRange("shop.shop.t", 0, 0, 1_000_000),)


WRITERS: dict[int, Writer] = {}


def writer_schema_of(schema: Any, number: int) -> WriterSchema:
    WRITERS[number], columns = parse_writer_schema(json.dumps(schema))
    return WriterSchema(TableSchema(columns, ("id",)), number)


def decoded(
    writer_schemas: Sequence[WriterSchema],
    *values: bytes | None,
    changelog: bool = True,
    undecodable: str = UNKNOWN_SCHEMA,
) -> list[Any]:
    decoding = Decoding(tuple(writer_schemas), writer_schemas[-1].schema, changelog, undecodable)
    return rows_of(Decoder(AvroParser(WRITERS), decoding, RANGES).decode(records(*values)))


def test_decode_reads_values_of_every_avro_type() -> None:
    """All in one table, one column each: a row of values, a row of nulls, an update and a delete."""
    topics = AvroTopics()
    schema = envelope([(f"c{i}", kind) for i, (kind, _, _) in enumerate(CASES)])
    row = {"id": 1} | {f"c{i}": value for i, (_, value, _) in enumerate(CASES)}
    nothing = {"id": 1} | {f"c{i}": None for i in range(len(CASES))}
    events = [event("c", after=row), event("u", before=row, after=nothing), event("d", before=row)]
    values = [topics.write(schema, e) for e in events]
    made, changed, gone = decoded([writer_schema_of(schema, 1)], *values)
    assert [made.bad, changed.bad, gone.bad] == [None, None, None]
    for i, (kind, written, wanted) in enumerate(CASES):
        for value in (made.after[f"c{i}"], changed.before[f"c{i}"], gone.before[f"c{i}"]):
            zoned = isinstance(value, datetime) and wanted.tzinfo
            assert (value.astimezone(UTC) if zoned else value) == wanted, f"{kind} {written!r}"
    assert set(list(changed.after.values())[1:]) == {None}
    assert (made.before, gone.after, made.op, gone.op) == (None, None, "c", "d")
    assert (made.position_key, made.row_key, made.file, made.server_id) == (
        (1 << 40) + 5,
        1,
        "mysql-bin.000001",
        1,
    )
    lean = decoded([writer_schema_of(schema, 1)], *values, changelog=False)
    assert [lean[1].before, lean[1].after] == [{"id": 1}, changed.after]


def test_bits_of_a_key_have_the_order_of_the_binlog_also_in_a_snapshot() -> None:
    topics, bits = AvroTopics(), connect("bytes", "io.debezium.data.Bits", length="20")
    schema = envelope([("k", bits), ("v", bits)])
    little, big = b"\x01\x02\x03", b"\x03\x02\x01"
    part = {"id": 1, "k": little, "v": little}
    events = [
        event("r", after=part | {"k": big}, snapshot="last"),
        event("r", after=part, snapshot="incremental"),
        event("u", before=part, after=part),
    ]
    writer_schema = replace(writer_schema_of(schema, 1), event_key=("id", "k"))
    found = decoded([writer_schema], *[topics.write(schema, e) for e in events])
    assert {(row.after["k"], row.after["v"]) for row in found} == {(big, big)}
    assert found[-1].before["k"] == big


GOOD = envelope([("q", "int"), ("price", decimal(6, 2)), ("seen", ZONED)])
ROW = {"id": 1, "q": 2, "price": Decimal("3.50"), "seen": None}


def test_bad_avro_events_are_returned_with_reason_and_raw_bytes() -> None:
    topics = AvroTopics()
    loose = json.loads(json.dumps(GOOD).replace('"precision": 6', '"precision": 30'))
    good = topics.write(GOOD, event("c", after=ROW))

    def changed(op: str = "c", schema: Any = GOOD, **parts: Any) -> bytes:
        value = topics.write(schema, event(op, **({"after": ROW} | parts)))
        return good[:5] + value[5:]

    cases: list[tuple[bytes, str]] = [
        (b"garbage{", "not in Confluent's wire format"),
        (b"", "not in Confluent's wire format"),
        (good[:5], "not in Confluent's wire format"),
        (good[:6], "not Avro of its writer schema"),
        (good[:-20], "not Avro of its writer schema"),
        (good[:5] + b"\xff" * 40, "not Avro of its writer schema"),
        # Has the length of a string of two gigabytes.
        (good[:5] + b"\0\0" + b"\xee\xff\xff\xff\x0f", "not Avro of its writer schema"),
        (b"\0\0\0\3\xe7" + good[5:], UNDECODABLE),
        (changed("x"), "unknown op x"),
        (changed(file="nonumber"), "no source position"),
        (changed(after=None), "no after-image"),
        (changed("d", after=None), "delete without a before-image"),
        (
            changed(after=ROW | {"price": Decimal("123456.78")}, schema=loose),
            "a value that its column cannot hold",
        ),
        (changed(after=ROW | {"seen": "yesterday"}), "a value that its column cannot hold"),
    ]
    *found, last = decoded(
        [writer_schema_of(GOOD, 1)], *(value for value, _ in cases), good, undecodable=UNDECODABLE
    )
    assert [row.bad for row in found] == [reason for _, reason in cases]
    assert [bytes(row.raw_value) for row in found] == [value for value, _ in cases]
    assert (last.bad, last.raw_value, last.after["price"]) == (None, None, Decimal("3.50"))
    (unknown,) = decoded([writer_schema_of(GOOD, 1)], b"\0\0\0\3\xe7" + good[5:])
    assert unknown.bad == UNKNOWN_SCHEMA


def test_decode_returns_an_event_or_a_reason_for_any_bytes() -> None:
    """Random bytes after a valid header, and good events with some bytes replaced."""
    topics = AvroTopics()
    good = topics.write(GOOD, event("u", before=ROW, after=ROW | {"seen": "2024-02-29T23:59:59Z"}))
    values = [good[:5] + random.randbytes(random.randint(0, 60)) for _ in range(300)]
    for _ in range(300):
        at, noise = random.randrange(5, len(good)), random.randbytes(random.choice((0, 1, 2, 60)))
        values.append(good[:at] + noise + good[at + len(noise) :])
    rows = decoded([writer_schema_of(GOOD, 1)], *values)
    assert len(rows) == len(values)
    assert all((row.bad is None) is (row.op in ("c", "r", "u", "d", "t", "m")) for row in rows)
    assert {row.bad is None for row in rows} == {True, False}


def test_decode_reads_several_writer_schemas_in_one_batch() -> None:
    topics = AvroTopics()
    schemas = [envelope([("q", "int"), *((f"n{j}", "string") for j in range(i))]) for i in range(5)]
    writer_schemas, values = [], []
    for i, schema in enumerate(schemas):
        row = {"id": i, "q": i} | {f"n{j}": f"{i}.{j}" for j in range(i)}
        values.append(topics.write(schema, event("c", 10 + i, after=row)))
        writer_schemas.append(writer_schema_of(schema, i + 1))
    rows = decoded(writer_schemas, *values)
    assert [row.bad for row in rows] == [None] * 5
    assert [row.after["q"] for row in rows] == list(range(5))
    assert rows[3].after["n2"] == "3.2"
    assert rows[3].after["n3"] is None
    assert rows[4].after["n3"] == "4.3"
