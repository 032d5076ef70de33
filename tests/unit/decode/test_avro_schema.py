"""Avro writer schemas, among them one of a real table with every kind of column."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.decode.avro_schema import adjusted, key_names, source_names, writer_schema
from replicator.errors import DecodeError, UnsupportedChange
from replicator.model.table import Column
from replicator.model.types import INT, Wire

GOLDEN = Path(__file__).parents[2] / "golden" / "avro"
VALUE = (GOLDEN / "all-types-value.avsc").read_text()
KEY = (GOLDEN / "all-types-key.avsc").read_text()


def test_columns_of_a_real_table() -> None:
    _, columns = writer_schema(VALUE)
    found = {c.name: (str(c.type), c.wire, c.nullable) for c in columns}
    assert found["id"] == ("decimal(20, 0)", Wire.BASE64_DECIMAL, False)
    assert found["k2"] == ("string", Wire.PLAIN, False)
    assert found["d"] == ("decimal(10, 2)", Wire.BASE64_DECIMAL, False)
    assert found["d2"] == ("string", Wire.BASE64_DECIMAL, True)
    assert found["ti"] == ("int", Wire.PLAIN, True)
    assert found["b1"] == ("boolean", Wire.PLAIN, True)
    assert found["b9"] == ("binary", Wire.BASE64_BITS, True)
    assert found["dt"] == ("date", Wire.DAYS, True)
    assert found["dtm"] == ("timestamp", Wire.MICROS, True)
    assert found["dt3"] == ("timestamp", Wire.MILLIS, True)
    assert found["ts"] == ("timestamptz", Wire.INSTANT_TEXT, True)
    assert found["tm"] == ("long", Wire.PLAIN, True)
    assert found["f"] == ("float", Wire.PLAIN, True)
    assert found["y"] == ("int", Wire.YEAR, True)
    assert found["st"] == ("string", Wire.SET, True)
    assert found["g"] == found["p"] == ("binary", Wire.GEOMETRY, True)
    assert found["v"] == ("list<float>", Wire.PLAIN, True)
    assert found["en"] == ("string", Wire.PLAIN, True)
    by_name = {c.name: c for c in columns}
    assert by_name["d2"].size == 20
    assert by_name["e"].respelt == (("b\\,c", "b,c"),)


def test_names_that_avro_does_not_allow_are_those_of_the_source() -> None:
    _, columns = writer_schema(VALUE)
    (odd,) = (c for c in columns if c.renamed_from)
    assert (odd.name, odd.written) == ("größe x", "gr__e_x")


def test_what_is_read_is_a_part_of_what_was_written_and_has_no_logical_types() -> None:
    writer, _ = writer_schema(VALUE)
    wanted = json.loads(writer.wanted)
    assert [f["name"] for f in wanted["fields"]] == ["before", "after", "op", "source", "transaction"]
    source = next(f["type"] for f in wanted["fields"] if f["name"] == "source")
    assert {f["name"] for f in source["fields"]} == {
        *("file", "pos", "row", "server_id", "gtid", "ts_ms", "snapshot"),
    }
    written = json.loads(writer.written)
    assert [f["name"] for f in written["fields"]] == [f["name"] for f in json.loads(VALUE)["fields"]]
    for word in ("connect.", "logicalType", "default", "precision"):
        assert word not in writer.written


def test_nullable_columns_with_defaults_are_named() -> None:
    assert writer_schema(VALUE)[0].defaulted == ("nd", "ni", "en")


def test_key_names() -> None:
    _, columns = writer_schema(VALUE)
    assert key_names(KEY, columns) == ("k2", "id")
    adjusted_key = json.dumps(
        {"type": "record", "name": "Key", "fields": [{"name": "gr__e_x", "type": "int"}]}
    )
    assert key_names(adjusted_key, columns) == ("größe x",)
    with pytest.raises(DecodeError, match="no record"):
        key_names('"string"', columns)


@pytest.mark.parametrize(
    ("name", "wanted"), [("a_b", "a_b"), ("größe x", "gr__e_x"), ("1st", "_st"), ("a.b", "a_b"), ("A9", "A9")]
)
def test_adjusted_names(name: str, wanted: str) -> None:
    assert adjusted(name) == wanted


def test_names_found_by_the_definition() -> None:
    columns = (Column("id", INT), Column("gr__e_x", INT), Column("gone", INT))
    found = source_names(columns, ("id", "größe x", "new"))
    assert [(c.name, c.written) for c in found] == [("id", "id"), ("größe x", "gr__e_x"), ("gone", "gone")]


def test_columns_that_share_a_name_in_avro_are_refused() -> None:
    with pytest.raises(UnsupportedChange, match="a b and a-b are both a_b in Avro"):
        source_names((Column("a_b", INT),), ("a b", "a-b"))
    document = json.loads(VALUE)
    fields = document["fields"][0]["type"][1]["fields"]
    fields[3]["type"][1]["connect.parameters"]["__debezium.source.column.name"] = "id"
    with pytest.raises(UnsupportedChange, match="the fields id and a_b are both of the column id"):
        writer_schema(json.dumps(document))


def changed(**parts: Any) -> str:
    return json.dumps({k: v for k, v in (json.loads(VALUE) | parts).items() if v is not ...})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '"string"',
        "[]",
        "{}",
        "null",
        KEY,
        changed(fields=[]),
        changed(fields=None),
        changed(fields=[{"name": "after"}]),
    ],
)
def test_other_schemas_are_no_change_events(text: str) -> None:
    with pytest.raises(DecodeError, match="not that of a Debezium change event"):
        writer_schema(text)


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


@given(JSON, st.booleans())
def test_any_schema_is_read_or_refused(schema: Any, flattened: bool) -> None:
    with contextlib.suppress(DecodeError, UnsupportedChange):
        writer_schema(json.dumps(schema), flattened=flattened)
    with contextlib.suppress(DecodeError):
        key_names(json.dumps(schema), ())


def paths(document: Any) -> Iterator[tuple[Any, ...]]:
    """Where the parts of a document are, those that have parts themselves included."""
    parts = document.items() if isinstance(document, dict) else enumerate(document)
    for key, part in parts:
        yield (key,)
        if isinstance(part, dict | list):
            yield from ((key, *rest) for rest in paths(part))


@given(JSON, st.sampled_from(list(paths(json.loads(VALUE)))))
def test_a_good_schema_with_any_part_in_it_is_read_or_refused(part: Any, path: tuple[Any, ...]) -> None:
    document = json.loads(VALUE)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = part
    with contextlib.suppress(DecodeError, UnsupportedChange):
        writer_schema(json.dumps(document))


def test_schemas_that_cannot_be_read_right_are_refused() -> None:
    with pytest.raises(UnsupportedChange, match=r"Connect's names") as caught:
        writer_schema(changed(**{"connect.name": ...}))
    assert "connect.meta.data" in (caught.value.hint or "")
    document = json.loads(VALUE)
    document["fields"][0]["type"][1]["fields"][1]["type"] = ["null", {}]
    with pytest.raises(DecodeError):
        writer_schema(json.dumps(document))
    document["fields"][0]["type"][1]["fields"][1]["type"] = ["null", "int", "string"]
    with pytest.raises(UnsupportedChange, match="k2 may be of several types"):
        writer_schema(json.dumps(document))
