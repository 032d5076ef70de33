"""Records that are not what they should be: each is refused by DecodeError, soon, and never by another error."""

import copy
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.decode.avro_format import AvroFormat
from replicator.decode.avro_schema import key_names, parse_writer_schema
from replicator.decode.connect_schema import source_table, table_schema
from replicator.decode.decimal_encoding import decimal_encoding_of
from replicator.decode.json_format import JsonFormat
from replicator.decode.schema_tracker import SchemaTracker
from replicator.decode.values import parsed_type, spark_type
from replicator.errors import DecodeError, MissingSchema, UnsupportedChange
from replicator.model.position import SourcePosition
from replicator.model.records import RawRecord
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import Encoding, decimal
from replicator.operations.record import encoding_of
from replicator.schema.mysql_ddl import computed_columns, parse
from replicator.schema.table_changes import table_definitions
from replicator.sources.schema_registry import GivenSchemas
from tests.oracle.avro import SCHEMA_CHANGE, AvroTopics
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.support.golden import AVRO_KEY, AVRO_VALUE, golden_events, golden_files
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

GOLDEN = [json.loads(path.read_text(encoding="utf-8")) for path in golden_files()]
DEFINITIONS = [json.loads(golden["definition"]) for golden in GOLDEN]
EVENTS = [golden_events(golden)[0] for golden in GOLDEN]
WITH_SCHEMA = [event for golden, event in zip(GOLDEN, EVENTS, strict=True) if golden["schemas"]]
ORDERS = TableId("shop", "orders")
SOON_S = 5.0


@contextmanager
def soon() -> Iterator[None]:
    """What takes longer than this for a small record could stop a mirror for hours."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < SOON_S


@contextmanager
def refused_in_few_words() -> Iterator[None]:
    """What goes through the block, or is refused; reasons are kept beside each record in quarantine."""
    reason = ""
    try:
        yield
    except (DecodeError, UnsupportedChange) as error:
        reason = error.message
    assert len(reason) < 1000


@pytest.mark.parametrize(
    "value",
    [
        DEEP,
        b'{"schema":' + DEEP + b"}",
        b"\xff\xfe{}",
        event_with(),
        event_with({"field": "x", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2000000000"}}),
        event_with({"field": "x", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "-1"}}),
        event_with({"field": "x", "type": "bytes", "name": DECIMAL, "parameters": {"scale": 1e999}}),
        event_with(
            {
                "field": "x",
                "type": "bytes",
                "name": DECIMAL,
                "parameters": {"scale": "9", "connect.decimal.precision": "5"},
            }
        ),
        event_with({"field": "x", "type": "bytes", "name": DECIMAL, "parameters": []}),
        event_with({"field": 5, "type": "string"}),
        event_with({"field": "", "type": "string"}),
        event_with({"field": "\ud800", "type": "string"}),
        event_with({"field": "x", "type": "string"}, {"field": "x", "type": "string"}),
        event_with(*({"field": f"c{i}", "type": "string"} for i in range(5000))),
        event_with({"field": "x", "type": "string", "name": ENUM, "parameters": "a"}),
    ],
)
def test_schema_of_an_event_is_refused(value: bytes) -> None:
    with soon(), pytest.raises(DecodeError):
        table_schema(value, None)


def test_labels_are_read_in_linear_time() -> None:
    labels = "\\" * 39_999
    with soon():
        schema = table_schema(
            event_with({"field": "x", "type": "string", "name": ENUM, "parameters": {"allowed": labels}}),
            None,
        )
    assert schema.names == ("x",)


@pytest.mark.parametrize(
    "key", [DEEP, b"\xff", b"[]", b'{"schema":{"fields":5}}', b'{"schema":{"fields":[5]}}']
)
def test_key_that_cannot_be_read_tells_no_columns(key: bytes) -> None:
    value = event_with({"field": "id", "type": "int64"})
    assert table_schema(value, key).key == ()


@pytest.mark.parametrize("key", [b'{"other":1}', b'{"schema":{"fields":[{"field":"other"}]},"payload":{}}'])
def test_key_of_other_columns_tells_none(key: bytes) -> None:
    value = event_with({"field": "id", "type": "int64"})
    assert table_schema(value, key).key == ()


@pytest.mark.parametrize(
    "value",
    [
        DEEP,
        b'{"tableChanges":' + DEEP + b"}",
        b"5",
        b"null",
        b'{"source":5}',
        definition(typeName=5),
        definition(typeName="DECIMAL", length=65, scale=2_000_000_000),
        definition(typeName="DECIMAL", length=2_000_000_000, scale=0),
        definition(typeName="DECIMAL", length=5, scale=9),
        definition(typeName="DECIMAL", length="many"),
        definition(typeName="CHAR", charsetName="binary", length=2_000_000_000),
        definition(typeName="INT", length=[1]),
        definition(name=None),
        definition(name=""),
        definition(name="\ud800"),
        definition(name="id"),
        definition(position="first"),
        definition(position=None),
        definition(enumValues=5),
        definition(enumValues=[None]),
        definition(id="," * 40_000),
        definition(id='"' * 40_000),
        definition(id=7),
    ],
)
def test_schema_change_is_set_aside(value: bytes) -> None:
    book = SchemaTracker(JsonFormat())
    with soon():
        (bad,) = book.add_schema_changes([RawRecord("shop", 0, 1, 0, None, value)])
    assert "not a schema-change event" in bad.reason
    assert len(bad.reason) < 1000
    assert not book.history(ORDERS)


@pytest.mark.parametrize(
    "source", [{"pos": "x"}, {"pos": 2**70}, {"file": 5}, {"file": "a.x"}, {"file": "a.\u0663"}]
)
@pytest.mark.parametrize("more", [{}, {"file": "binlog.9999999999"}, {"pos": -1}, {"ts_ms": 2**70}])
def test_schema_change_without_a_place_is_set_aside(source: dict[str, Any], more: dict[str, Any]) -> None:
    record = json.loads(definition())
    record["source"] |= more | source
    with pytest.raises(DecodeError):
        table_definitions(json.dumps(record).encode())


@pytest.mark.parametrize(
    ("fields", "fill", "unknown"),
    [
        ({"typeName": "ENUM", "enumValues": [], "optional": False, "hasDefaultValue": False}, None, True),
        (
            {"typeName": "ENUM", "enumValues": ["'a'"], "optional": False, "hasDefaultValue": False},
            "a",
            False,
        ),
        (
            {"typeName": "DECIMAL", "length": 65, "scale": 30, "defaultValueExpression": "1e30000000"},
            None,
            True,
        ),
        (
            {"typeName": "DECIMAL", "length": 65, "scale": 30, "defaultValueExpression": "1e999999999999"},
            None,
            True,
        ),
        (
            {"typeName": "DECIMAL", "length": 10, "scale": 2, "defaultValueExpression": "1e30000000"},
            None,
            True,
        ),
        ({"typeName": "DECIMAL", "length": 10, "scale": 2, "defaultValueExpression": "1e3"}, "1e3", False),
        ({"typeName": "INT", "defaultValueExpression": "1" * 1000}, None, True),
    ],
)
def test_default_that_no_column_can_have_is_unknown(
    fields: dict[str, Any], fill: str | None, unknown: bool
) -> None:
    with soon():
        (found,) = table_definitions(definition(**fields))
    assert found.schema is not None
    column = found.schema.columns[1]
    assert (column.fill, column.fill_unknown) == (fill, unknown)


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE orders ADD x INT " + "\\'" * 200_000,
        "ALTER TABLE orders ADD x INT DEFAULT (1) " + "'" * 400_001,
        "ALTER TABLE orders ADD x INT DEFAULT (" + "(" * 400_000,
        "ALTER TABLE orders ADD x INT AS (1) " + "\"'" * 200_000 + "\\",
    ],
)
def test_expressions_are_searched_in_linear_time(ddl: str) -> None:
    with soon():
        computed = computed_columns(parse(ddl))
        assert len({f"c{i}" in computed for i in range(1000)}) == 1, "all of them, or none"


@pytest.mark.parametrize(
    ("ddl", "computed"),
    [
        ("ALTER TABLE t ADD x INT DEFAULT (1)", True),
        ("ALTER TABLE t /* don't */ ADD x INT DEFAULT (1)", True),
        ("ALTER TABLE t ADD x INT /* DEFAULT (1) */", False),
        ("ALTER TABLE t ADD x INT /*! DEFAULT (1) */", True),
        ("ALTER TABLE t ADD x INT -- DEFAULT (1)\n", False),
        ("ALTER TABLE t ADD x INT # DEFAULT (1)\n", False),
        ("ALTER TABLE t ADD `x` INT COMMENT 'DEFAULT (1)', ADD y INT DEFAULT (1)", False),
        ("ALTER TABLE t COMMENT 'it''s', ADD x INT DEFAULT (1)", True),
        ("ALTER TABLE `don't` ADD x INT DEFAULT (1)", True),
        ("ALTER TABLE t ADD x INT DEFAULT (1) COMMENT 'not closed", True),
    ],
)
def test_expression_of_a_column_is_found(ddl: str, computed: bool) -> None:
    (found,) = table_definitions(definition(ddl=ddl))
    assert found.schema is not None
    assert found.schema.columns[1].fill_unknown is computed


@pytest.mark.parametrize(
    "value", [DEEP, b'{"payload":' + DEEP + b"}", b'{"source":{"db":1,"table":"t"}}', b"5"]
)
def test_event_without_a_table_names_none(value: bytes) -> None:
    assert source_table(value) is None


def test_event_that_cannot_be_read_tells_no_form_of_decimals() -> None:
    assert (
        decimal_encoding_of([DEEP, b"5", b'{"after":5}'], [Column("x", decimal(10, 2))], with_schema=False)
        is None
    )


def test_deep_event_has_an_encoding() -> None:
    assert encoding_of(DEEP) == "json"


"""Each type has the one before three times as a part."""


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (AVRO_LAUGHS, b""),
        (AVRO_LIST, b"\2" * 1_000_000),
        (AVRO_NOTHING, b"\xfe\xff\xff\xff\xff\xff\xff\x7f\0"),
        (AVRO_EMPTY, b"\x02\0\0"),
    ],
)
def test_avro_that_grows_when_it_is_read_is_refused(schema: dict[str, Any], body: bytes) -> None:
    book = AvroFormat(GivenSchemas({1: json.dumps(schema)}))
    with soon(), pytest.raises(DecodeError):
        book.definitions_in(b"\0\0\0\0\1" + body)


@pytest.mark.parametrize(
    "text",
    [
        DEEP.decode(),
        "5",
        "[]",
        json.dumps(AVRO_LIST),
        json.dumps(AVRO_NOTHING),
        AVRO_VALUE.replace('"id"', '"a-b"'),
        AVRO_VALUE.replace('"id"', '"\\ud800"'),
    ],
)
def test_writer_schema_is_refused(text: str) -> None:
    assert text != AVRO_VALUE
    with soon(), pytest.raises(DecodeError):
        parse_writer_schema(text)


def test_key_s_writer_schema_is_refused() -> None:
    for text in (DEEP.decode(), "5", "[]", '{"fields":5}', '{"fields":[5]}', '{"fields":[{"name":5}]}'):
        with pytest.raises(DecodeError):
            key_names(text, ())


# What a producer may write instead of anything.
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
    """A document of which a few values are gone, others, or there twice."""
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
    """What Spark and Iceberg would fail at must not be in a schema."""
    assert len(set(schema.names)) == len(schema.names) <= 5000
    for column in schema.columns:
        column.written.encode()
        parsed_type(column)
        spark_type(column.type)
        assert column.name
        assert column.size is None or 0 <= column.size <= 1024
        if column.type.name == "decimal":
            assert 0 <= column.type.scale <= column.type.precision <= 38
        assert len(column.fill or "") <= 100_000


@given(ANY_BYTES | mutated(DEFINITIONS).map(encoded))
def test_any_schema_change(value: bytes) -> None:
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
                book.writer_schemas(found.table, SourcePosition("a.000001", 4))
            except MissingSchema:
                assert found.schema is None


@given(ANY_BYTES | mutated([json.loads(v) for _, v in WITH_SCHEMA]).map(encoded), ANY_BYTES | st.none())
@pytest.mark.parametrize("flattened", [False, True])
def test_any_event_with_a_schema(flattened: bool, value: bytes, key: bytes | None) -> None:
    with refused_in_few_words():
        schema = table_schema(value, key, flattened=flattened)
        assert_usable(schema)
        assert set(schema.key) <= set(schema.names)


@given(ANY_BYTES | mutated([json.loads(v) for _, v in EVENTS]).map(encoded))
def test_any_event_is_looked_at(value: bytes) -> None:
    table = source_table(value)
    if table is not None:
        str(table).encode()
    columns = [Column(f"c{i:02}", decimal(10, 2)) for i in range(30)]
    for with_schema in (True, False):
        for flattened in (True, False):
            form = decimal_encoding_of([value], columns, with_schema=with_schema, flattened=flattened)
            assert form is None or isinstance(form, Encoding)
    encoding_of(value)


@given(ANY_BYTES.map(lambda b: b.decode("latin-1")) | mutated([json.loads(AVRO_VALUE)]).map(json.dumps))
@pytest.mark.parametrize("flattened", [False, True])
def test_any_writer_schema(flattened: bool, text: str) -> None:
    with refused_in_few_words():
        read, columns = parse_writer_schema(text, flattened=flattened)
        assert_usable(TableSchema(columns))
        for schema in (read.written, read.wanted):
            fastavro.parse_schema(json.loads(schema))


@given(ANY_BYTES.map(lambda b: b.decode("latin-1")) | mutated([json.loads(AVRO_KEY)]).map(json.dumps))
def test_any_writer_schema_of_a_key(text: str) -> None:
    with refused_in_few_words():
        assert all(isinstance(name, str) for name in key_names(text, ()))


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
def test_any_schema_change_in_avro(value: bytes) -> None:
    book = SchemaTracker(AvroFormat(GivenSchemas(AVRO.schemas)))
    bad = book.add_schema_changes([RawRecord("shop", 0, 1, 0, None, value)])
    assert all(len(b.reason) < 1000 for b in bad)
    book.table_named_in(value)


@given(mutated([SCHEMA_CHANGE]).map(json.dumps), st.binary(max_size=40))
def test_any_writer_schema_of_a_schema_change(text: str, body: bytes) -> None:
    book = SchemaTracker(AvroFormat(GivenSchemas({1: text})))
    for data in (body, CHANGE[5:]):
        book.add_schema_changes([RawRecord("shop", 0, 1, 0, None, b"\0\0\0\0\1" + data)])
