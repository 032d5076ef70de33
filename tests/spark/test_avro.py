"""Events in Avro: every type, bad events, several writer schemas in one batch."""

import io
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import Row, SparkSession

from replicator.decode.avro.events import AvroWriterSchema, decode
from replicator.decode.avro.schema import parse_writer_schema
from replicator.decode.event_frame import Decoding
from replicator.jvm.spark import local_frame
from replicator.model.batch_stats import UNDECODABLE, UNKNOWN_SCHEMA
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableSchema
from replicator.sources.change_log import RECORDS
from tests.oracle.avro import SOURCE, AvroTopics
from tests.oracle.events import ColumnSpec, Place, change_event, key_of, with_key_schema, with_value_schema
from tests.oracle.model import Record
from tests.support.decoding import check_local_query
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS, ORDERS

RANGES = [OffsetRange("shop.shop.t", 0, 0, 1_000_000)]


def connect(kind: Any, name: str | None = None, **parameters: str) -> Any:
    """Return an Avro type with Kafka Connect's properties."""
    found: dict[str, Any] = dict(kind) if isinstance(kind, dict) else {"type": kind}
    if name:
        found["connect.name"] = name
    return found | ({"connect.parameters": parameters} if parameters else {})


def decimal(digits: int, scale: int) -> dict[str, Any]:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
    parameters = {"scale": str(scale), "connect.decimal.precision": str(digits)}
    return connect(kind, "org.apache.kafka.connect.data.Decimal", **parameters)


POINT = {
    "type": "record",
    "name": "Point",
    "namespace": "io.debezium.data.geometry",
    "fields": [
        {"name": "x", "type": "double"},
        {"name": "y", "type": "double"},
        {"name": "wkb", "type": ["null", "bytes"], "default": None},
        {"name": "srid", "type": ["null", "int"], "default": None},
    ],
    "connect.name": "io.debezium.data.geometry.Point",
}
POINT_ROW = {"x": 1.0, "y": 2.5, "wkb": b"\1\1\0\0\0\2", "srid": None}
ZONED = connect("string", "io.debezium.time.ZonedTimestamp")
WIDE = Decimal("-99999999999999999999999999999999999.999999999999999999999999999999")
LOWEST = Decimal("-9999999999999999999999999999.9999999999")


def naive(*parts: Any) -> datetime:
    return datetime(*parts)  # noqa: DTZ001 wall-clock time


CASES: list[tuple[Any, Any, Any]] = [
    ("boolean", True, True),
    ({"type": "int", "connect.type": "int16"}, -3, -3),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5),
    ("double", 1e300, 1e300),
    ("string", "größe 🚀", "größe 🚀"),
    ("bytes", b"\0\xff", b"\0\xff"),
    (connect("string", "io.debezium.data.Enum", allowed="a,b\\,c"), "b\\,c", "b,c"),
    (connect("string", "io.debezium.data.EnumSet", allowed="x,y"), "x,y", "x,y"),
    (connect("string", "io.debezium.data.Json"), '{"a": 1}', '{"a": 1}'),
    (connect("int", "io.debezium.time.Date"), -1, date(1969, 12, 31)),
    ({"type": "int", "logicalType": "date", "connect.name": "org.apache.kafka.connect.data.Date"}, 1, date(1970, 1, 2)),
    (connect("int", "io.debezium.time.Year"), 2024, 2024),
    (connect("long", "io.debezium.time.Timestamp"), -1, naive(1969, 12, 31, 23, 59, 59, 999000)),
    (connect("long", "io.debezium.time.MicroTimestamp"), 1, naive(1970, 1, 1, 0, 0, 0, 1)),
    (connect("long", "io.debezium.time.NanoTimestamp"), 1999, naive(1970, 1, 1, 0, 0, 0, 1)),
    (ZONED, "2024-02-29T23:59:59.123456Z", datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)),
    (connect("long", "io.debezium.time.MicroTime"), -3_020_399_000_000, -3_020_399_000_000),
    (connect("int", "io.debezium.time.Time"), 1500, 1_500_000),
    (connect("bytes", "io.debezium.data.Bits", length="9"), b"\x01\x02", b"\x02\x01"),
    (decimal(10, 2), Decimal("-99999999.99"), Decimal("-99999999.99")),
    (decimal(20, 0), Decimal(2**64 - 1), Decimal(2**64 - 1)),
    (decimal(38, 10), LOWEST, LOWEST),
    (decimal(65, 30), WIDE, f"{WIDE:f}"),
    (POINT, POINT_ROW, b"\1\1\0\0\0\2"),
    ("io.debezium.data.geometry.Point", POINT_ROW | {"srid": 4326}, b"\1\1\0\0\x20\xe6\x10\0\0\2"),
    (connect({"type": "array", "items": "float"}, "io.debezium.data.FloatVector"), [1.0, 2.5], [1.0, 2.5]),
    ({"type": "array", "items": "string"}, ["a", "b"], '["a","b"]'),
]  # fmt: skip


def envelope(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the schema of an envelope whose rows have a key `id` and nullable `fields`."""
    row = [
        {"name": "id", "type": "long"},
        *({"name": n, "type": ["null", k], "default": None} for n, k in fields),
    ]
    value = {"type": "record", "name": "Value", "fields": row, "connect.name": "shop.shop.t.Value"}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.shop.t",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "transaction", "type": ["null", "string"], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
        "connect.name": "shop.shop.t.Envelope",
        "connect.version": 2,
    }


def event(op: str, pos: int = 5, *, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(change_event(op, Place(1, pos), "t"))
    return value | {"before": before, "after": after, "source": value["source"] | source}


def records(spark: SparkSession, values: Sequence[bytes | None]) -> Any:
    n = len(values)
    columns = [[0] * n, list(range(n)), [7] * n, [b"key"] * n, list(values)]
    return local_frame(spark, pa.table(dict(zip(RECORDS.names, columns, strict=True)), schema=RECORDS))


def writer_schema_of(schema: Any, number: int) -> AvroWriterSchema:
    writer, columns = parse_writer_schema(json.dumps(schema))
    return AvroWriterSchema(TableSchema(columns, ("id",)), number, writer=writer)


def decoded(
    spark: SparkSession,
    writer_schemas: Sequence[AvroWriterSchema],
    *values: bytes | None,
    changelog: bool = True,
    undecodable: str = UNKNOWN_SCHEMA,
) -> list[Row]:
    decoding = Decoding(tuple(writer_schemas), writer_schemas[-1].schema, changelog, undecodable)
    run = partial(decode, decoding=decoding, ranges=RANGES)
    raw = records(spark, values)
    check_local_query(raw, run)
    return sorted(run(raw).collect(), key=lambda row: row.offset)


def test_decode_reads_values_of_every_avro_type(spark: SparkSession) -> None:
    """All in one table, one column each: a row of values, a row of nulls, an update and a delete."""
    topics = AvroTopics()
    schema = envelope([(f"c{i}", kind) for i, (kind, _, _) in enumerate(CASES)])
    row = {"id": 1} | {f"c{i}": value for i, (_, value, _) in enumerate(CASES)}
    nothing = {"id": 1} | {f"c{i}": None for i in range(len(CASES))}
    events = [event("c", after=row), event("u", before=row, after=nothing), event("d", before=row)]
    values = [topics.write(schema, e) for e in events]
    made, changed, gone = decoded(spark, [writer_schema_of(schema, 1)], *values)
    assert [made.bad, changed.bad, gone.bad] == [None, None, None]
    for i, (kind, written, wanted) in enumerate(CASES):
        for value in (made.after[f"c{i}"], changed.before[f"c{i}"], gone.before[f"c{i}"]):
            zoned = isinstance(value, datetime) and wanted.tzinfo
            assert (value.astimezone(UTC) if zoned else value) == wanted, f"{kind} {written!r}"
    assert set(changed.after[1:]) == {None}
    assert (made.before, gone.after, made.op, gone.op) == (None, None, "c", "d")
    assert (made.position_key, made.row_key, made.file, made.server_id) == (
        (1 << 40) + 5,
        1,
        "mysql-bin.000001",
        1,
    )
    lean = decoded(spark, [writer_schema_of(schema, 1)], *values, changelog=False)
    assert [lean[1].before, lean[1].after] == [Row(id=1), changed.after]


def test_bits_of_a_key_have_the_order_of_the_binlog_also_in_a_snapshot(spark: SparkSession) -> None:
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
    found = decoded(spark, [writer_schema], *[topics.write(schema, e) for e in events])
    assert {(bytes(row.after.k), bytes(row.after.v)) for row in found} == {(big, big)}
    assert bytes(found[-1].before.k) == big


GOOD = envelope([("q", "int"), ("price", decimal(6, 2)), ("seen", ZONED)])
ROW = {"id": 1, "q": 2, "price": Decimal("3.50"), "seen": None}


def test_bad_avro_events_are_returned_with_reason_and_raw_bytes(spark: SparkSession) -> None:
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
        (good[:5] + b"\0\0" + fastavro_long(2**31 - 9), "not Avro of its writer schema"),
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
        spark, [writer_schema_of(GOOD, 1)], *(value for value, _ in cases), good, undecodable=UNDECODABLE
    )
    assert [row.bad for row in found] == [reason for _, reason in cases]
    assert [bytes(row.raw_value) for row in found] == [value for value, _ in cases]
    assert (last.bad, last.raw_value, last.after.price) == (None, None, Decimal("3.50"))
    (unknown,) = decoded(spark, [writer_schema_of(GOOD, 1)], b"\0\0\0\3\xe7" + good[5:])
    assert unknown.bad == UNKNOWN_SCHEMA


def fastavro_long(number: int) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, "long", number)
    return data.getvalue()


def test_decode_returns_an_event_or_a_reason_for_any_bytes(spark: SparkSession) -> None:
    """Random bytes after a valid header, and good events with some bytes replaced."""
    topics = AvroTopics()
    good = topics.write(GOOD, event("u", before=ROW, after=ROW | {"seen": "2024-02-29T23:59:59Z"}))
    values = [good[:5] + random.randbytes(random.randint(0, 60)) for _ in range(300)]
    for _ in range(300):
        at, noise = random.randrange(5, len(good)), random.randbytes(random.choice((0, 1, 2, 60)))
        values.append(good[:at] + noise + good[at + len(noise) :])
    rows = decoded(spark, [writer_schema_of(GOOD, 1)], *values)
    assert len(rows) == len(values)
    assert all((row.bad is None) is (row.op in ("c", "r", "u", "d", "t", "m")) for row in rows)
    assert {row.bad is None for row in rows} == {True, False}


def test_decode_reads_several_writer_schemas_in_one_batch(spark: SparkSession) -> None:
    topics = AvroTopics()
    schemas = [envelope([("q", "int"), *((f"n{j}", "string") for j in range(i))]) for i in range(5)]
    writer_schemas, values = [], []
    for i, schema in enumerate(schemas):
        row = {"id": i, "q": i} | {f"n{j}": f"{i}.{j}" for j in range(i)}
        values.append(topics.write(schema, event("c", 10 + i, after=row)))
        writer_schemas.append(writer_schema_of(schema, i + 1))
    rows = decoded(spark, writer_schemas, *values)
    assert [row.bad for row in rows] == [None] * 5
    assert [row.after.q for row in rows] == list(range(5))
    assert rows[3].after.n2 == "3.2"
    assert rows[3].after.n3 is None
    assert rows[4].after.n3 == "4.3"


def record(op: str, pos: int, columns: Sequence[ColumnSpec], **images: Any) -> Record:
    row = images["before" if op == "d" else "after"]
    value = with_value_schema(change_event(op, Place(1, pos), "orders", **images), columns, ORDERS)
    return Record(ORDERS, 0, with_key_schema(key_of(row, ["id"]), columns, ["id"], ORDERS), value)


def test_table_gets_the_columns_of_newer_writer_schemas(lake: LakeHarness) -> None:
    topics = AvroTopics()
    newer = [*COLUMNS, ColumnSpec("größe x", "int")]
    lake.write(
        [
            record("c", 100, COLUMNS, after={"id": 1, "name": "a"}),
            record("c", 101, COLUMNS, after={"id": 2, "name": "b"}),
            record(
                "u",
                102,
                newer,
                before={"id": 2, "name": "b", "größe x": None},
                after={"id": 2, "name": "c", "größe x": 7},
            ),
            Record(ORDERS, 0, b"no key", b"\0\0\0\0\1no event"),
        ],
        avro=topics,
    )
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}})
    assert lake.rows("orders") == [{"id": 1, "name": "a"}]
    mirror.advance({ORDERS: {0: 4}})
    assert mirror.summary().paused == {}
    assert sorted(lake.rows("orders"), key=lambda r: r["id"]) == [
        {"id": 1, "name": "a", "größe x": None},
        {"id": 2, "name": "c", "größe x": 7},
    ]
    (bad,) = lake.rows("quarantine", "shop_ops")
    assert bad["value"] == b"\0\0\0\0\1no event"


def test_table_pauses_when_the_registry_lacks_the_writer_schema(lake: LakeHarness) -> None:
    """No schema of the table is known yet, so the cause is the registry and not an event."""
    topics = AvroTopics()
    value = topics.write(GOOD, event("c", after=ROW))
    lake.write([Record(ORDERS, 0, None, b"\0\0\0\3\xe7" + value[5:])], avro=topics)
    mirror = lake.catch_up()
    (reason,) = mirror.summary().paused.values()
    assert "the registry has no schema 999" in reason
