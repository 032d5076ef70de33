"""Parse events in Avro to columns: every type, and bytes that do not fit."""

import json
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.decode.avro.parser import NO_WRITER, parse, sources, writer_ids
from replicator.decode.avro.schema import Writer, parse_writer_schema
from replicator.decode.parsed import SOURCE_TYPES, ParsedEvents, ParsedRow
from replicator.decode.values import wire_type
from replicator.model.table import Column
from tests.support.avro_events import CASES, HEADER, decimal, envelope, event, flat_schema, written

NOT_AVRO = "not Avro of its writer schema"


def parsed(schema: Any, *values: bytes, flattened: bool = False) -> ParsedEvents:
    writer, columns = writer_of(schema, flattened=flattened)
    # A slice, whose bytes do not begin at the beginning of the buffer.
    array = pa.array([b"before", *values], pa.binary()).slice(1)
    found = parse(array, writer, columns, columns)
    for row in (found.before, found.after):
        assert {c.written: wire_type(c) for c in columns} == {n: v.type for n, v in row.values.items()}
    assert {name: values.type for name, values in found.source.items()} == SOURCE_TYPES
    assert {len(values) for values in (found.op, found.tx_order, found.error, *found.source.values())} == {
        len(values)
    }
    return found


def writer_of(schema: Any, *, flattened: bool = False) -> tuple[Writer, Sequence[Column]]:
    return parse_writer_schema(json.dumps(schema), flattened=flattened)


def images(row: ParsedRow) -> list[dict[str, Any] | None]:
    """Return the images of all events; None where an event has none."""
    columns = {name: values.to_pylist() for name, values in row.values.items()}
    return [
        {name: values[i] for name, values in columns.items()} if present else None
        for i, present in enumerate(row.present.to_pylist())
    ]


def wire(kind: Any, value: Any) -> Any:
    """Return a value that was written as an Avro type in its wire form."""
    if isinstance(value, Decimal):
        # Avro's bytes may have more digits than they need.
        unscaled = int(f"{value:f}".replace(".", ""))
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, dict):
        return {"wkb": value["wkb"], "srid": value["srid"]}
    if isinstance(kind, dict) and kind.get("items") == "string":
        return json.dumps(value, separators=(",", ":"))
    return value


def number(value: int) -> bytes:
    """Encode a long, also one that is out of range."""
    raw, found = abs(value) * 2 - (value < 0), b""
    while raw >= 0x80:
        found += bytes((raw & 0x7F | 0x80,))
        raw >>= 7
    return found + bytes((raw,))


SCHEMA = envelope([(f"c{i}", kind) for i, (kind, _, _) in enumerate(CASES)])
FULL = {"id": 1} | {f"c{i}": value for i, (_, value, _) in enumerate(CASES)}
EMPTY = {"id": 2} | dict.fromkeys([f"c{i}" for i in range(len(CASES))])


def test_parse_returns_values_of_every_type_in_wire_form() -> None:
    events = [event("c", after=FULL), event("u", before=FULL, after=EMPTY), event("d", before=EMPTY)]
    found = parsed(SCHEMA, *(written(SCHEMA, e) for e in events))
    assert found.error.null_count == 3
    full = {"id": 1} | {f"c{i}": wire(kind, value) for i, (kind, value, _) in enumerate(CASES)}
    assert images(found.before) == [None, full, EMPTY]
    assert images(found.after) == [full, EMPTY, None]
    assert found.op.to_pylist() == ["c", "u", "d"]
    assert found.source["file"].to_pylist() == ["mysql-bin.000001"] * 3
    assert found.source["pos"].to_pylist() == [5] * 3
    assert found.tx_order.null_count == 3


def test_parse_reads_no_more_than_the_given_columns() -> None:
    writer, columns = writer_of(SCHEMA)
    values = pa.array([written(SCHEMA, event("u", before=FULL, after=EMPTY))])
    found = parse(values, writer, columns[:2], ())
    assert (images(found.before), images(found.after)) == ([{}], [{"id": 2, "c0": None}])
    none = parse(values.slice(1), writer, columns, columns)
    assert (images(none.before), images(none.after), none.error.to_pylist()) == ([], [], [])


TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("double", st.floats(allow_nan=False)),
    ("float", st.floats(allow_nan=False, width=32)),
    ("string", st.text(max_size=200)),
    ("bytes", st.binary(max_size=200)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
    ({"type": "array", "items": "int"}, st.lists(st.integers(-9, 9), max_size=3)),
    (
        {"type": "map", "values": "string"},
        st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    ),
]
ANY_ROW = st.fixed_dictionaries(
    {"id": TYPES[2][1], **{f"c{i}": st.none() | s for i, (_, s) in enumerate(TYPES)}}
)
ANY_SCHEMA = envelope([(f"c{i}", kind) for i, (kind, _) in enumerate(TYPES)])


@given(st.lists(st.tuples(st.none() | ANY_ROW, st.none() | ANY_ROW), max_size=8))
def test_parse_reads_what_was_written(pairs: list[tuple[Any, Any]]) -> None:
    values = [written(ANY_SCHEMA, event("u", before=b, after=a)) for b, a in pairs]
    found = parsed(ANY_SCHEMA, *values)
    assert found.error.null_count == len(pairs)
    assert found.op.to_pylist() == ["u"] * len(pairs)
    for row, given_rows in ((found.before, [b for b, _ in pairs]), (found.after, [a for _, a in pairs])):
        read = images(row)
        for name in ("c9", "c10"):
            read = [r and r | {name: None if r[name] is None else json.loads(r[name])} for r in read]
        assert read == given_rows


GOOD = envelope([("q", "int"), ("t", "string"), ("list", {"type": "array", "items": "long"})])
ROW = {"id": 1, "q": 2, "t": "text", "list": [1, 2]}


def good(pos: int = 5, **parts: Any) -> bytes:
    return written(GOOD, event("u", pos, **({"before": ROW, "after": ROW} | parts)))


def test_bytes_that_do_not_fit_get_an_error_and_disturb_no_others() -> None:
    other = envelope([("q", "string"), ("t", "int")])
    row = b"\2" + number(1) + b"\2"
    whole = good()
    bad = [
        *(whole[:end] for end in range(5, len(whole))),
        whole + b"\0",
        written(other, event("c", after={"id": 1, "q": "x", "t": 3})),
        # An unknown branch of a union, numbers with too many bits, and lengths below 0 and beyond the end.
        *(HEADER + number(branch) + whole[6:] for branch in (2, -1, 2**62)),
        *(HEADER + row + number(q) + b"\0\0\0" for q in (2**31, -(2**31) - 1, 2**63, 2**70)),
        *(
            HEADER + row + b"\0\2" + number(length) + b"x"
            for length in (-1, 2, 2**31, 2**62, 2**63 - 1, -(2**63))
        ),
        *(HEADER + row + b"\0\0\2" + number(count) + b"\2" for count in (3, -3, 2**31, 2**62)),
        good(after=ROW | {"t": "ab"}).replace(b"\4ab", b"\4\xc3\x28"),
        HEADER + b"\xff" * 40,
    ]
    values = [v for i, b in enumerate(bad) for v in (b, good(i))]
    found = parsed(GOOD, *values)
    assert found.error.to_pylist() == [NOT_AVRO, None] * len(bad)
    assert found.op.to_pylist() == [None, "u"] * len(bad)
    assert found.source["pos"].to_pylist() == [p for i in range(len(bad)) for p in (None, i)]
    image = ROW | {"list": "[1,2]"}
    assert images(found.before) == images(found.after) == [None, image] * len(bad)
    assert all(values[::2].null_count == len(values[::2]) for values in found.after.values.values())


def test_numbers_of_nine_and_ten_bytes() -> None:
    numbers = [
        2**62 - 1,
        2**62,
        -(2**62),
        -(2**62) - 1,
        2**55,
        2**56,
        2**63 - 1,
        -(2**63),
        127,
        128,
        -64,
        -65,
        63,
        64,
    ]
    found = parsed(GOOD, *(good(after=ROW | {"id": n}) for n in numbers))
    assert found.after.values["id"].to_pylist() == numbers


def test_parse_returns_an_event_or_an_error_for_any_bytes() -> None:
    whole = good()
    values = [HEADER + random.randbytes(random.randint(0, 60)) for _ in range(300)]
    for _ in range(300):
        at, noise = random.randrange(5, len(whole)), random.randbytes(random.choice((0, 1, 2, 60)))
        values.append(whole[:at] + noise + whole[at + len(noise) :])
    found = parsed(GOOD, *values)
    read, alone = images(found.after), [parsed(GOOD, value) for value in values]
    assert found.error.to_pylist() == [one.error[0].as_py() for one in alone]
    assert read == [images(one.after)[0] for one in alone]
    assert 0 < found.error.null_count < len(values)


@pytest.mark.parametrize(
    ("kind", "connect_name", "value"),
    [
        ("string", "io.debezium.time.Date", "yesterday"),
        ("long", "io.debezium.time.Date", 2**40),
        ("string", "io.debezium.data.geometry.Geometry", "POINT"),
        ("string", "io.debezium.data.FloatVector", "[1]"),
        ({"type": "array", "items": "string"}, "io.debezium.data.FloatVector", ["x"]),
        ("int", "io.debezium.data.Bits", 1),
    ],
)
def test_a_value_of_another_type_than_its_name_says_is_an_error(
    kind: Any, connect_name: str, value: Any
) -> None:
    kind = (kind if isinstance(kind, dict) else {"type": kind}) | {"connect.name": connect_name}
    schema = envelope([("c", kind)])
    found = parsed(schema, *(written(schema, event("c", after={"id": 1, "c": v})) for v in (value, None)))
    assert found.error.to_pylist() == [NOT_AVRO, None]
    assert images(found.after) == [None, {"id": 1, "c": None}]


FLAT = flat_schema(
    [("id", "long"), ("price", decimal(6, 2))],
    op="string",
    deleted="string",
    source_file="string",
    source_pos="long",
    source_ts_ms="long",
)
META = {
    "__op": "u",
    "__deleted": "false",
    "__source_file": "bin.000001",
    "__source_pos": 7,
    "__source_ts_ms": 8,
}


def test_flattened_events_have_the_row_before_a_delete_or_after_another_change() -> None:
    row = {"id": 1, "price": Decimal("3.50")}
    events = [META, META | {"__op": "d", "__deleted": "true"}, META | {"__op": None}]
    events += [META | {"__deleted": None}, META | {"__source_file": None}, META | {"__source_pos": None}]
    values = [written(FLAT, row | e) for e in events]
    found = parsed(FLAT, *values, values[0][:-1], flattened=True)
    image = {"id": 1, "price": b"\x01\x5e"}
    assert images(found.before)[:2] == [None, image]
    assert images(found.after)[:2] == [image, None]
    reasons = [None if e is None else e.partition(";")[0] for e in found.error.to_pylist()]
    assert reasons == [
        None,
        None,
        "no __op in a flattened event",
        "no __deleted in a flattened event: deletes would be lost",
        "no position in a flattened event",
        "no position in a flattened event",
        NOT_AVRO,
    ]
    assert [values[0].as_py() for values in found.source.values()] == [
        "bin.000001",
        7,
        None,
        None,
        None,
        8,
        None,
    ]


def test_sources_of_envelopes_and_flattened_events() -> None:
    writer, _ = writer_of(GOOD)
    found = sources(pa.array([good(8), good()[:20]]), writer)
    assert {name: values.type for name, values in found.items()} == SOURCE_TYPES
    assert (found["pos"].to_pylist(), found["server_id"].to_pylist()) == ([8, None], [1, None])
    writer, _ = writer_of(FLAT, flattened=True)
    found = sources(pa.array([written(FLAT, {"id": 1, "price": None} | META)]), writer)
    assert (found["pos"].to_pylist(), found["row"].to_pylist()) == ([7], [None])


def test_writer_ids() -> None:
    values = [b"\0\0\0\0\1x", b"\0\xff\xfe\0\2x", b"\0\0\0\0\1", b"", b"\1\0\0\0\1x", b"\0\0\0\1\0xx", b"{}"]
    wanted = [1, 0xFFFE0002, NO_WRITER, NO_WRITER, NO_WRITER, 256, NO_WRITER]
    assert writer_ids(pa.array(values)).to_pylist() == wanted
    assert writer_ids(pa.array(values).slice(1, 3)).to_pylist() == wanted[1:4]
    assert writer_ids(pa.array([], pa.binary())).to_pylist() == []


def test_transactions_have_the_number_of_the_event() -> None:
    block = {"type": "record", "name": "block", "namespace": "event", "fields": [
        {"name": "id", "type": "string"}, {"name": "total_order", "type": "long"}]}  # fmt: skip
    schema = json.loads(json.dumps(GOOD))
    schema["fields"][3]["type"] = ["null", block]
    given_orders = [3, None, 1 << 40]
    events = [
        event("c", after=ROW) | {"transaction": n and {"id": "file=1,pos=2", "total_order": n}}
        for n in given_orders
    ]
    assert parsed(schema, *(written(schema, e) for e in events)).tx_order.to_pylist() == given_orders


def test_an_array_that_claims_more_entries_than_it_has_takes_no_time_or_memory() -> None:
    schema = envelope([("list", {"type": "array", "items": "int"}), ("t", "string")])
    body = b"\0\2" + number(1) + b"\2" + number(2**60) + b"\0" * 1000
    found = parsed(schema, *[HEADER + body] * 50)
    assert found.error.to_pylist() == [NOT_AVRO] * 50
