"""Malformed records: each is refused quickly, and only by DecodeError."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from replicator.decode.avro.format import AvroFormat
from replicator.decode.avro.schema import parse_writer_schema
from replicator.decode.connect_schema import source_table, table_schema
from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import DecodeError
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from replicator.schema.ddl.tables import computed_columns, parse
from replicator.schema.history.declared import table_definitions
from replicator.sources.kafka.schema_registry import GivenSchemas
from tests.support.golden import AVRO_VALUE
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

ORDERS = TableId("shop", "orders")


SOON_S = 5.0


@contextmanager
def soon() -> Iterator[None]:
    """Assert that the block ends within `SOON_S`; slow records could stop a mirror for hours."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < SOON_S


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
def test_table_schema_refuses_a_malformed_event(value: bytes) -> None:
    with soon(), pytest.raises(DecodeError):
        table_schema(value, None)


@pytest.mark.parametrize("key", [b'{"other":1}', b'{"schema":{"fields":[{"field":"other"}]},"payload":{}}'])
def test_key_is_empty_when_the_record_key_names_other_columns(key: bytes) -> None:
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
def test_malformed_schema_change_is_quarantined(value: bytes) -> None:
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
def test_schema_change_is_refused_when_its_position_is_invalid(
    source: dict[str, Any], more: dict[str, Any]
) -> None:
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
def test_fill_is_unknown_when_the_type_cannot_contain_the_default(
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
def test_computed_columns_of_a_malformed_statement_are_found_quickly(ddl: str) -> None:
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
def test_fill_is_unknown_when_the_statement_computes_the_default(ddl: str, computed: bool) -> None:
    (found,) = table_definitions(definition(ddl=ddl))
    assert found.schema is not None
    assert found.schema.columns[1].fill_unknown is computed


@pytest.mark.parametrize(
    "value", [DEEP, b'{"payload":' + DEEP + b"}", b'{"source":{"db":1,"table":"t"}}', b"5"]
)
def test_source_table_is_unknown_when_the_event_names_no_table(value: bytes) -> None:
    assert source_table(value) is None


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (AVRO_LAUGHS, b""),
        (AVRO_LIST, b"\2" * 1_000_000),
        (AVRO_NOTHING, b"\xfe\xff\xff\xff\xff\xff\xff\x7f\0"),
        (AVRO_EMPTY, b"\x02\0\0"),
    ],
)
def test_avro_format_refuses_a_record_that_expands_when_it_is_read(
    schema: dict[str, Any], body: bytes
) -> None:
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
def test_parse_writer_schema_refuses_a_malformed_schema(text: str) -> None:
    assert text != AVRO_VALUE
    with soon(), pytest.raises(DecodeError):
        parse_writer_schema(text)
