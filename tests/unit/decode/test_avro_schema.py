"""Avro writer schemas, including one of a real table with every kind of column."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from replicator.decode.avro.schema import key_names, parse_writer_schema, source_names
from replicator.errors import DecodeError, UnsupportedChange
from replicator.model.table import Column
from replicator.model.types import INT, Encoding
from tests.support.golden import AVRO_KEY, AVRO_VALUE


def test_parse_writer_schema_returns_the_columns_of_a_real_table() -> None:
    _, columns = parse_writer_schema(AVRO_VALUE)
    found = {c.name: (str(c.type), c.encoding, c.nullable) for c in columns}
    assert found["id"] == ("decimal(20, 0)", Encoding.BASE64_DECIMAL, False)
    assert found["k2"] == ("string", Encoding.PLAIN, False)
    assert found["d"] == ("decimal(10, 2)", Encoding.BASE64_DECIMAL, False)
    assert found["d2"] == ("string", Encoding.BASE64_DECIMAL, True)
    assert found["ti"] == ("int", Encoding.PLAIN, True)
    assert found["b1"] == ("boolean", Encoding.PLAIN, True)
    assert found["b9"] == ("binary", Encoding.BASE64_BITS, True)
    assert found["dt"] == ("date", Encoding.DAYS, True)
    assert found["dtm"] == ("timestamp", Encoding.MICROS, True)
    assert found["dt3"] == ("timestamp", Encoding.MILLIS, True)
    assert found["ts"] == ("timestamptz", Encoding.INSTANT_TEXT, True)
    assert found["tm"] == ("long", Encoding.PLAIN, True)
    assert found["f"] == ("float", Encoding.PLAIN, True)
    assert found["y"] == ("int", Encoding.YEAR, True)
    assert found["st"] == ("string", Encoding.SET, True)
    assert found["g"] == found["p"] == ("binary", Encoding.GEOMETRY, True)
    assert found["v"] == ("list<float>", Encoding.PLAIN, True)
    assert found["en"] == ("string", Encoding.PLAIN, True)
    by_name = {c.name: c for c in columns}
    assert by_name["d2"].size == 20
    assert by_name["e"].respelt == (("b\\,c", "b,c"),)


def test_written_schema_determines_only_the_layout_of_bytes() -> None:
    writer, _ = parse_writer_schema(AVRO_VALUE)
    written = json.loads(writer.written)
    assert [f["name"] for f in written["fields"]] == [f["name"] for f in json.loads(AVRO_VALUE)["fields"]]
    for word in ("connect.", "logicalType", "default", "precision"):
        assert word not in writer.written


def test_parse_writer_schema_names_nullable_columns_with_defaults() -> None:
    assert parse_writer_schema(AVRO_VALUE)[0].defaulted == ("nd", "ni", "en")


def test_key_names_returns_the_source_names_of_the_key() -> None:
    _, columns = parse_writer_schema(AVRO_VALUE)
    assert key_names(AVRO_KEY, columns) == ("k2", "id")
    adjusted_key = json.dumps(
        {"type": "record", "name": "Key", "fields": [{"name": "gr__e_x", "type": "int"}]}
    )
    assert key_names(adjusted_key, columns) == ("größe x",)
    with pytest.raises(DecodeError, match="not a record"):
        key_names('"string"', columns)


def test_source_names_are_found_in_the_definition() -> None:
    columns = (Column("id", INT), Column("gr__e_x", INT, source_known=False), Column("gone", INT))
    found = source_names(columns, [("id", "größe x", "new")])
    assert [(c.name, c.written) for c in found] == [("id", "id"), ("größe x", "gr__e_x"), ("gone", "gone")]
    assert [c.source_name.name for c in found] == ["id", "größe x", "gone"]
    assert all(c.source_name.known for c in found)


def test_source_names_prefer_the_first_of_several_definitions() -> None:
    columns = (Column("e_mail", INT, source_known=False), Column("old_x", INT, source_known=False))
    found = source_names(
        (*columns, Column("a_b", INT, source_known=False)), [("e-mail",), ("e_mail", "old x")]
    )
    assert [c.source_name.name for c in found] == ["e-mail", "old x", "a_b"]
    assert [c.source_name.known for c in found] == [True, True, False]


def test_source_name_is_known_when_it_has_no_underscore() -> None:
    document = json.loads(AVRO_VALUE)
    fields = document["fields"][0]["type"][1]["fields"]
    for field in fields:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for kind in kinds:
            if isinstance(kind, dict):
                kind.get("connect.parameters", {}).pop("__debezium.source.column.name", None)
    _, columns = parse_writer_schema(json.dumps(document))
    assert {c.name for c in columns if not c.source_name.known} == {"gr__e_x", "a_b"}


def test_source_names_refuse_columns_that_share_a_name_in_avro() -> None:
    with pytest.raises(UnsupportedChange, match="a b and a-b have the same name in Avro, a_b"):
        source_names((Column("a_b", INT, source_known=False),), [("a b", "a-b")])
    document = json.loads(AVRO_VALUE)
    fields = document["fields"][0]["type"][1]["fields"]
    fields[3]["type"][1]["connect.parameters"]["__debezium.source.column.name"] = "id"
    with pytest.raises(UnsupportedChange, match="fields id and a_b have the same column name, id"):
        parse_writer_schema(json.dumps(document))


def changed(**parts: Any) -> str:
    return json.dumps({k: v for k, v in (json.loads(AVRO_VALUE) | parts).items() if v is not ...})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '"string"',
        "[]",
        "{}",
        "null",
        AVRO_KEY,
        changed(fields=[]),
        changed(fields=None),
        changed(fields=[{"name": "after"}]),
        changed(type=["null", ["null", "int"]]),
        changed(fields=[f for f in json.loads(AVRO_VALUE)["fields"] if f["name"] != "source"]),
    ],
)
def test_parse_writer_schema_refuses_a_schema_of_other_records(text: str) -> None:
    with pytest.raises(DecodeError, match="not that of a Debezium change event"):
        parse_writer_schema(text)


WORDS = st.sampled_from(
    [
        "type",
        "name",
        "fields",
        "after",
        "before",
        "source",
        "op",
        "record",
        "null",
        "int",
        "items",
        "array",
        "connect.name",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


def paths(document: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each part of a document, including those that have parts themselves."""
    parts = document.items() if isinstance(document, dict) else enumerate(document)
    for key, part in parts:
        yield (key,)
        if isinstance(part, dict | list):
            yield from ((key, *rest) for rest in paths(part))


@pytest.mark.parametrize("size", [-1, 10**30, 2.5, True, None])
def test_parse_writer_schema_refuses_a_fixed_type_without_a_valid_size(size: Any) -> None:
    fields = [
        *json.loads(AVRO_VALUE)["fields"],
        {"name": "x", "type": {"type": "fixed", "name": "X", "size": size}},
    ]
    with pytest.raises(DecodeError):
        parse_writer_schema(changed(fields=fields))


def test_parse_writer_schema_refuses_ambiguous_schemas() -> None:
    with pytest.raises(UnsupportedChange, match=r"Connect's type names") as caught:
        parse_writer_schema(changed(**{"connect.name": ...}))
    assert "connect.meta.data" in (caught.value.hint or "")
    document = json.loads(AVRO_VALUE)
    document["fields"][0]["type"][1]["fields"][1]["type"] = ["null", {}]
    with pytest.raises(DecodeError):
        parse_writer_schema(json.dumps(document))
    document["fields"][0]["type"][1]["fields"][1]["type"] = ["null", "int", "string"]
    with pytest.raises(UnsupportedChange, match="k2 is a union of several types"):
        parse_writer_schema(json.dumps(document))
