"""Random and mutated records: each is read, or refused by DecodeError with a short reason."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.arrow_types import arrow_type
from replicator.decode.avro.format import AvroFormat
from replicator.decode.avro.parser import parse
from replicator.decode.avro.schema import parse_writer_schema
from replicator.decode.connect_schema import source_table, table_schema
from replicator.decode.json.decimals import decimal_encoding_of
from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.decode.values import wire_type
from replicator.errors import DecodeError, MissingSchema, UnsupportedChange
from replicator.model.events import RawRecord
from replicator.model.table import Column, TableSchema
from replicator.model.types import Encoding, decimal
from replicator.operations.record import encoding_of
from replicator.schema.history.declared import table_definitions
from replicator.sources.kafka.schema_registry import GivenSchemas
from tests.oracle.avro import SCHEMA_CHANGE, AvroTopics
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.support.golden import AVRO_VALUE, golden_events, golden_files
from tests.support.malformed_events import (
    DECIMAL,
    ENUM,
)

GOLDEN = [json.loads(path.read_text(encoding="utf-8")) for path in golden_files()]


DEFINITIONS = [json.loads(golden["definition"]) for golden in GOLDEN]


EVENTS = [golden_events(golden)[0] for golden in GOLDEN]


WITH_SCHEMA = [event for golden, event in zip(GOLDEN, EVENTS, strict=True) if golden["schemas"]]


@contextmanager
def refused_with_a_short_reason() -> Iterator[None]:
    """Assert that the block raises no error, or one with a short reason; the quarantine stores the reason."""
    reason = ""
    try:
        yield
    except (DecodeError, UnsupportedChange) as error:
        reason = error.message
    assert len(reason) < 1000


# Values that a producer may write in place of any other.
_ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        (
            *(
                None,
                True,
                False,
                0,
                -1,
                1,
                2**31,
                2**63,
                -(2**63) - 1,
                10**400,
                1e308,
                float("inf"),
                float("nan"),
            ),
            *(
                "",
                "x",
                "\ud800",
                "\0",
                "1e30000000",
                "1e-30000000",
                "9" * 5000,
                "'",
                "\\",
                '"a"."b"',
                "DROP",
                "ENUM",
            ),
            *(
                "DECIMAL",
                "CHAR",
                "binary",
                DECIMAL,
                ENUM,
                "io.debezium.data.EnumSet",
                "a.000001",
                "a.٣",
                "," * 500,
            ),
            *([], {}, [[]], [{}], [None], [1], {"": 1}, {"scale": "2000000000"}, {"allowed": "\\"}),
        )
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.integers(1, 2000).map(lambda depth: json.loads("[" * min(depth, 90) + "]" * min(depth, 90))),
)


def _places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    parts = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document if isinstance(document, list) else ())
    )
    for name, value in parts:
        yield from _places(value, (*path, name))


@st.composite
def mutated(draw: st.DrawFn, documents: list[Any]) -> Any:
    """Return a document in which a few values are removed, replaced or repeated."""
    document = {"root": copy.deepcopy(draw(st.sampled_from(documents)))}
    for _ in range(draw(st.integers(1, 3))):
        places = [path for path in _places(document) if path]
        path = places[draw(st.integers(0, len(places) - 1))]
        parent: Any = document
        for name in path[:-1]:
            parent = parent[name]
        match draw(st.sampled_from(("replace", "remove", "repeat"))):
            case "remove" if len(path) > 1:
                del parent[path[-1]]
            case "repeat" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[path[-1]]))
            case _:
                parent[path[-1]] = copy.deepcopy(draw(_ODD))
    return document["root"]


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


ANY_BYTES = st.one_of(st.binary(max_size=80), _ODD.map(encoded))


def assert_usable(schema: TableSchema) -> None:
    """Assert that a schema has nothing at which Spark or Iceberg would fail."""
    assert len(set(schema.names)) == len(schema.names) <= 5000
    for column in schema.columns:
        column.written.encode()
        wire_type(column)
        arrow_type(column.type)
        assert column.name
        assert column.size is None or 0 <= column.size <= 1024
        if column.type.name == "decimal":
            assert 0 <= column.type.scale <= column.type.precision <= 38
        assert len(column.fill or "") <= 100_000


@given(ANY_BYTES | mutated(DEFINITIONS).map(encoded))
def test_schema_tracker_accepts_or_quarantines_any_schema_change(value: bytes) -> None:
    book = SchemaTracker(JsonFormat())
    bad = book.add_schema_changes([RawRecord("zoo", 0, 1, 0, None, value)])
    if bad:
        assert len(bad[0].reason) < 1000
        return
    for found in table_definitions(value):
        assert -(2**63) <= found.at < 2**63
        line = book.history(found.table)
        if found.schema is not None:
            assert_usable(found.schema)
            assert line
            try:
                book.discovery.writer_schemas(found.table, found.at)
            except MissingSchema:
                assert found.schema is None


@given(ANY_BYTES | mutated([json.loads(v) for _, v in WITH_SCHEMA]).map(encoded), ANY_BYTES | st.none())
@pytest.mark.parametrize("flattened", [False, True])
def test_table_schema_reads_or_refuses_any_event(flattened: bool, value: bytes, key: bytes | None) -> None:
    with refused_with_a_short_reason():
        schema = table_schema(value, key, flattened=flattened)
        assert_usable(schema)
        assert set(schema.key) <= set(schema.names)


@given(ANY_BYTES | mutated([json.loads(v) for _, v in EVENTS]).map(encoded))
def test_inspection_accepts_any_event(value: bytes) -> None:
    table = source_table(value)
    if table is not None:
        str(table).encode()
    columns = [Column(f"c{i:02}", decimal(10, 2)) for i in range(30)]
    for with_schema in (True, False):
        for flattened in (True, False):
            form = decimal_encoding_of([value], columns, with_schema=with_schema, flattened=flattened)
            assert form is None or isinstance(form, Encoding)
    encoding_of(value)


@given(
    ANY_BYTES.map(lambda b: b.decode("latin-1")) | mutated([json.loads(AVRO_VALUE)]).map(json.dumps),
    st.lists(st.binary(max_size=80), max_size=3),
)
@pytest.mark.parametrize("flattened", [False, True])
def test_writer_schemas_and_events_of_any_bytes_are_read_or_refused(
    flattened: bool, text: str, values: list[bytes]
) -> None:
    with refused_with_a_short_reason():
        read, columns = parse_writer_schema(text, flattened=flattened)
        assert_usable(TableSchema(columns))
        found = parse(pa.array(values, pa.binary()), read, columns, columns)
        assert len(found.error) == len(values)


def _avro_change() -> tuple[AvroTopics, bytes]:
    topics = AvroTopics()
    change = json.loads(
        schema_change_event(
            Place(1, 4), "orders", (ColumnSpec("id", "bigint", False),), ["id"], kind="CREATE"
        )
    )
    return topics, topics.write(SCHEMA_CHANGE, change)


AVRO, CHANGE = _avro_change()


@given(
    st.one_of(
        st.binary(max_size=80),
        st.binary(max_size=80).map(lambda body: CHANGE[:5] + body),
        st.builds(
            lambda at, piece: CHANGE[:at] + piece + CHANGE[at + len(piece) :],
            st.integers(0, len(CHANGE)),
            st.binary(min_size=1, max_size=8),
        ),
    )
)
def test_schema_tracker_accepts_or_quarantines_any_avro_schema_change(value: bytes) -> None:
    book = SchemaTracker(AvroFormat(GivenSchemas(AVRO.schemas)))
    bad = book.add_schema_changes([RawRecord("shop", 0, 1, 0, None, value)])
    assert all(len(b.reason) < 1000 for b in bad)
    book.format.table_named_in(value)
