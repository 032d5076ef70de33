"""Any bytes in a topic: each record is decoded to an event or is bad, and none stops the batch."""

import base64
import json
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.parser import JsonParser
from replicator.model.batch_stats import OP_CODES, UNDECODABLE
from replicator.model.commit_marker import OffsetRange
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableSchema
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
    decimal,
)
from replicator.schema.history.order import binlog_key
from replicator.sources.change_log import RECORDS
from tests.oracle.events import Place, change_event
from tests.support.fuzz import EXAMPLES

COLUMNS = (
    Column("id", LONG),
    Column("boolean", BOOLEAN),
    Column("int", INT),
    Column("float", FLOAT),
    Column("double", DOUBLE),
    Column("text", STRING),
    Column("set", STRING, Encoding.SET, respelt=(("a ", "a"),)),
    Column("bytes", BINARY),
    Column("date", DATE, Encoding.DAYS),
    Column("millis", TIMESTAMP, Encoding.MILLIS),
    Column("micros", TIMESTAMP, Encoding.MICROS),
    Column("nanos", TIMESTAMP, Encoding.NANOS),
    Column("instant", TIMESTAMPTZ),
    Column("time", LONG, Encoding.TIME_MILLIS),
    Column("nanotime", LONG, Encoding.TIME_NANOS),
    Column("year", INT, Encoding.YEAR),
    Column("flag", INT, Encoding.FLAG),
    Column("bits", BINARY, Encoding.BASE64_BITS),
    Column("place", BINARY, Encoding.GEOMETRY),
    Column("vector", VECTOR),
    Column("latin", BINARY, Encoding.LATIN1, size=4),
    Column("plain", decimal(6, 2)),
    Column("number", decimal(6, 2), Encoding.NUMBER),
    Column("packed", decimal(6, 2), Encoding.BASE64_DECIMAL),
    Column("either", decimal(38, 10), Encoding.EITHER_DECIMAL),
    Column("wide", STRING, Encoding.EITHER_DECIMAL, size=30),
    Column("wider", STRING, Encoding.BASE64_DECIMAL, size=0),
    Column("widest", STRING, Encoding.PLAIN, size=5),
)
SCHEMA = TableSchema(COLUMNS, ("id",))

_EDGES = st.sampled_from(
    (0, -1, 2**31, -(2**31) - 1, 2**62, 2**63 - 1, -(2**63), 2**63, 10**40, 1e308, 1e-320, 0.5)
)
_TEXTS = st.sampled_from(
    ("", "#1", "NaN", "Infinity", "12", "1e5", "2024-01-01T00:00:00Z", "====", "AfQ=", "true")
)
_PACKED = st.binary(max_size=40).map(lambda b: base64.b64encode(b).decode())
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), _EDGES, _TEXTS, _PACKED, st.text(max_size=20)
)
_JSON = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_GEOMETRY = st.fixed_dictionaries({"wkb": _PACKED, "srid": st.integers(-(2**31), 2**31 - 1)})
_ROW = st.fixed_dictionaries(
    {"id": st.integers(-5, 5)},
    optional={c.name: _JSON | _LEAVES | _GEOMETRY for c in COLUMNS[1:]},
)
_PARTS = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from((*OP_CODES, "m", "")) | _JSON,
        "before": _ROW | _JSON,
        "source": _JSON
        | st.fixed_dictionaries(
            {
                "file": st.sampled_from(
                    (
                        *(
                            "a.000001",
                            "a.9999999999999999999",
                            "a.9999999",
                            "a.00000000001",
                            "a.-1",
                            "a.+1",
                            "x",
                            "",
                        ),
                        *("a.1\x01", "a.\x7f1", "a.1 ", "a.\t1", "a.1\n", "a.\u0663", "a.1\u00a0", "a.1_0"),
                    )
                ),
                "pos": _EDGES,
                "row": _EDGES,
                "ts_ms": _EDGES,
            }
        ),
    },
)


def _event(row: Any, parts: dict[str, Any], cut: int | None) -> bytes:
    event = json.loads(change_event("c", Place(1, 5), "t", after={"id": 1})) | {"after": row} | parts
    return json.dumps(event).encode()[:cut]


_LIKELY = st.builds(_event, _ROW | _JSON, _PARTS, st.none() | st.integers(0, 400))
_ONE_COLUMN = st.builds(
    lambda column, value: _event({"id": 1, column.name: value}, {}, None),
    st.sampled_from(COLUMNS),
    _LEAVES | _GEOMETRY,
)
_VALUES = st.one_of(st.binary(max_size=60), _JSON.map(lambda v: json.dumps(v).encode()), _LIKELY, _ONE_COLUMN)


def examples(count: int) -> list[tuple[bytes | None, bytes]]:
    """Return `count` keys and values, to be decoded together."""
    found: list[tuple[bytes | None, bytes]] = []

    @settings(max_examples=count, phases=[Phase.generate], database=None)
    @given(st.none() | st.binary(max_size=20), _VALUES)
    def collect(key: bytes | None, value: bytes) -> None:
        found.append((key, value))

    # The seed that pytest-randomly prints gives the same examples again.
    seed(random.getrandbits(32))(collect)()
    return found


@pytest.mark.fault(
    "Any bytes, and events with random fields missing or changed",
    area="Events",
    on="events by hand",
    outcome="each is an event or has a reason for the quarantine",
)
def test_decode_returns_an_event_or_a_reason_for_any_bytes() -> None:
    found = examples(max(200, EXAMPLES))
    rows = [
        {"partition": 0, "offset": i, "timestamp": 0, "key": key, "value": value}
        for i, (key, value) in enumerate(found)
    ]
    decoding = Decoding((WriterSchema(SCHEMA),), SCHEMA, True, UNDECODABLE)
    decoder = Decoder(JsonParser(), decoding, (OffsetRange("t", 0, 0, len(rows)),))
    decoded = decoder.decode(pa.Table.from_pylist(rows, RECORDS)).to_pylist()
    assert sorted(row["offset"] for row in decoded) == list(range(len(rows)))
    # The examples have both.
    assert {row["bad"] is None for row in decoded} == {True, False}
    for row in decoded:
        key, value = found[row["offset"]]
        if row["bad"] is not None:
            assert (row["op"], row["raw_key"], row["raw_value"]) == (None, key, value)
        elif row["op"] not in ("t", "m"):
            assert row["op"] in OP_CODES
            # Python can compute the position and the time.
            assert 0 <= binlog_key(SourcePosition(row["file"], 0)) <= row["position_key"] < 2**63
            assert row["ts_ms"] is None or datetime.fromtimestamp(row["ts_ms"] / 1000, UTC)
            image = row["before"] if row["op"] == "d" else row["after"]
            assert image["id"] is not None
