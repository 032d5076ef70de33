"""Events in Avro are what fastavro reads."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.lake.files.parquet import fitted
from replicator.log_tables.avro_events import shape_of, unread_writers
from replicator.log_tables.decoding import LogDecoding
from replicator.model.shapes import parse_shape
from replicator.sources.change_log import RECORDS

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "int"]},
        {"name": "x", "type": ["null", "double"]},
        {"name": "ok", "type": "boolean"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "device",
            "type": [
                "null",
                {"type": "record", "name": "Device", "fields": [{"name": "os", "type": "string"}]},
            ],
        },
    ],
}
TEXT = json.dumps(SCHEMA)
OLDER = json.dumps({**SCHEMA, "fields": SCHEMA["fields"][:1]})
PARSED = {7: fastavro.parse_schema(SCHEMA), 8: fastavro.parse_schema(json.loads(OLDER))}
_texts = st.text(st.characters(codec="utf-8"), max_size=6)
EVENTS = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "n": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "x": st.none() | st.floats(allow_nan=False),
        "ok": st.booleans(),
        "name": st.none() | _texts,
        "kind": st.sampled_from("AB"),
        "at": st.none()
        | st.integers(-(10**12), 10**13).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC)),
        "day": st.dates(date(1900, 1, 1)),
        "price": st.decimals(-9_999_999, 9_999_999, places=2),
        "tags": st.lists(_texts, max_size=2),
        "device": st.none() | st.fixed_dictionaries({"os": _texts}),
    }
)


def encoded(event: dict[str, Any], writer: int = 7) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, PARSED[writer], event)
    return b"\x00" + writer.to_bytes(4, "big") + stream.getvalue()


def read(value: bytes, writer: int = 7) -> dict[str, Any]:
    found: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), PARSED[writer], None)
    return found


def records(values: list[bytes | None]) -> pa.Table:
    numbers = range(len(values))
    columns = [[0] * len(values), numbers, numbers, [None] * len(values), values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RECORDS, strict=True)], schema=RECORDS)


def decoding(**changes: Any) -> LogDecoding:
    given: dict[str, Any] = {"shape": shape_of(TEXT, nested=True), "writers": {7: TEXT, 8: OLDER, 9: None}}
    return LogDecoding("avro", **{"policy": "discard", "record": {}, **given, **changes})


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_rows_are_what_fastavro_reads(events: list[dict[str, Any]]) -> None:
    values = [encoded(event) for event in events]
    rows = decoding().decode(records([*values])).rows.to_pylist()
    expected = [read(value) for value in values]
    for row in expected:
        row["tags"] = json.dumps(row["tags"], ensure_ascii=False, separators=(",", ":"))
    assert rows == expected


EVENT = {
    "id": 1, "n": 2, "x": 0.5, "ok": True, "name": "a", "kind": "A", "at": datetime(2026, 11, 29, tzinfo=UTC),
    "day": date(2026, 11, 29), "price": Decimal("1.50"), "tags": [], "device": {"os": "linux"},
}  # fmt: skip


def test_events_of_other_writers_and_none() -> None:
    values = [encoded(EVENT), encoded({"id": 5}, 8), b"no Avro", encoded(EVENT)[:-1], None, b"\0\0\0\0\x09x"]
    found = decoding(shape=parse_shape({"id": "int", "name": "string", "device": "string"})).decode(
        records(values)
    )
    assert found.rows.to_pylist() == [
        {"id": 1, "name": "a", "device": '{"os":"linux"}'},
        {"id": 5, "name": None, "device": None},
        {"id": None, "name": None, "device": None},
    ]
    assert found.bad.column("offset").to_pylist() == [2, 3, 5]


def test_unknown_writers_are_told_first() -> None:
    values = records([encoded(EVENT), encoded({"id": 5}, 8)])
    found = decoding(writers={7: TEXT}).decode(values)
    assert (found.writers, found.rows.num_rows, found.bad.num_rows) == (frozenset({8}), 0, 0)
    assert unread_writers(values.column("value").combine_chunks(), {7: TEXT, 8: OLDER}) == frozenset()
    # Columns of the table may have the names of those of records.
    columns = pa.schema([("key", pa.timestamp("us", "UTC")), ("timestamp", pa.date32())])
    assert fitted(found.rows, columns).schema == columns


def test_a_value_that_the_column_cannot_hold_is_bad() -> None:
    values = records([encoded({**EVENT, "id": 1 << 40}), encoded(EVENT)])
    found = decoding(shape=parse_shape({"id": "int", "price": "decimal(4, 1)"})).decode(values)
    assert found.bad.column("offset").to_pylist() == [0]
    assert found.rows.to_pylist() == [{"id": 1, "price": Decimal("1.5")}]


def test_policies_know_the_fields_of_the_writer_schemas() -> None:
    shape = parse_shape({"id": "long"})
    evolving = decoding(shape=shape, policy="evolve").decode(records([encoded({"id": 5}, 8), encoded(EVENT)]))
    assert evolving.unknown.keys() == {f["name"] for f in SCHEMA["fields"]} - {"id"}
    refusing = decoding(shape=shape, policy="quarantine").decode(
        records([encoded({"id": 5}, 8), encoded(EVENT)])
    )
    assert refusing.rows.to_pylist() == [{"id": 5}]
    assert refusing.bad.column("bad").to_pylist() == ["n is no column of the table"]
