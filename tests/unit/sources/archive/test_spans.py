"""Spans that are read from all events at once are those that the positions of the single events have."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.config import KafkaLog
from replicator.operations.record_events import source_columns
from replicator.sources.archive import spans
from replicator.sources.archive.positions import PositionReader, SourceSpan
from replicator.sources.archive.spans import SpanReader
from replicator.sources.kafka.schema_registry import GivenSchemas
from tests.unit.sources.archive.test_positions import ENVELOPE, EVENT, SOURCE, avro, text

USUAL = 8
SCHEMAS = GivenSchemas(
    {7: json.dumps(ENVELOPE), USUAL: json.dumps(ENVELOPE | {"connect.name": "shop.shop.t.Envelope"})}
)
"""The schema 7 is one that a mirror refuses."""

FILES = st.sampled_from(["bin.000001", "bin.000002", "bin.999999", "bin.1000000", "nothing", "bin\\n.000003"])
GTIDS = st.sampled_from(
    [None, "", "A:5", "a:77", "b:tag:7", "B:3", ":4", "c:", "d:x", "e:٣", "f:" + "9" * 25, 'g":8']
)
NUMBERS = st.integers(-2, 5_000) | st.sampled_from([1 << 40, (1 << 40) - 1, 1 << 41])
SOURCES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"file": FILES, "pos": NUMBERS, "ts_ms": NUMBERS, "gtid": GTIDS}
)
ODD: st.SearchStrategy[Any] = st.sampled_from([None, "1", 1.5, 1.0, True, {}, [1], "", 1 << 70])
ODD_SOURCES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"file": FILES | st.sampled_from([None, {}, [1], ""]), "pos": NUMBERS | ODD},
    optional={"ts_ms": NUMBERS | ODD, "gtid": GTIDS, "row": ODD},
)


def read(values: Sequence[bytes | None], log_format: str, flattened: bool) -> SourceSpan | None:
    settings: Any = {"format": log_format, "flattened": flattened, "registry_url": "http://registry"}
    log = KafkaLog(kind="kafka", bootstrap_servers="k:9092", topic_prefix="shop", **settings)
    columns = partial(source_columns, log)
    return SpanReader(columns, SCHEMAS).read(pa.chunked_array([pa.array(values, pa.binary())]))


def exact(values: Sequence[bytes | None]) -> SourceSpan | None:
    return SourceSpan.of(map(PositionReader(SCHEMAS.schema).read, values))


def envelope(source: dict[str, Any]) -> dict[str, Any]:
    return EVENT | {"source": {**SOURCE, "gtid": None, **source}}


def flat(source: dict[str, Any]) -> dict[str, Any]:
    return {"id": 1, **{f"__source_{name}": value for name, value in source.items()}}


def with_schema(event: object) -> dict[str, Any]:
    return {"schema": {"fields": [{"field": "source"}]}, "payload": event}


SHAPES = st.sampled_from(
    [
        lambda source: text(envelope(source)),
        lambda source: text(envelope(source), compact=False),
        lambda source: text(with_schema(envelope(source))),
        lambda source: text(with_schema(envelope(source)), compact=False),
        lambda source: text(flat(source)),
        lambda source: text(with_schema(flat(source))),
        lambda source: text({"source": source}),
        lambda source: text(envelope(source))[:-30],
        lambda source: text(envelope(source)) + b"}",
        lambda source: text(envelope(source)).replace(b'"before"', b'"bef\xff"'),
    ]
)
OTHERS = st.sampled_from([None, b"", b"{}", b"[1]", b"\xff\xfe", b'{"source":', b"\x00\x00\x00\x00\x07abc"])


@given(
    values=st.lists(
        st.builds(lambda shape, s: shape(s), SHAPES, SOURCES | ODD_SOURCES) | OTHERS, max_size=30
    ),
    flattened=st.booleans(),
)
def test_span_of_json_events_is_that_of_their_positions(values: list[bytes | None], flattened: bool) -> None:
    assert read(values, "json", flattened) == exact(values)


@pytest.mark.parametrize("shape", [envelope, lambda source: with_schema(envelope(source))])
@given(sources=st.lists(SOURCES, max_size=30))
def test_span_of_usual_events_is_that_of_their_positions(shape: Any, sources: list[dict[str, Any]]) -> None:
    values = [text(shape(source)) for source in sources]
    assert read(values, "json", False) == exact(values)


def avro_value(source: dict[str, Any], writer: int = USUAL, end: int | None = None) -> bytes:
    event = {"before": None, "after": {"id": 5, "note": "n"}, "source": {**SOURCE, **source}, "op": "c"}
    return b"\x00" + writer.to_bytes(4, "big") + avro(ENVELOPE, event)[5:end]


@given(
    values=st.lists(
        st.builds(
            avro_value, SOURCES, st.sampled_from([7, USUAL]), st.sampled_from([None, None, None, 20, 60])
        )
        | st.sampled_from([None, b"", b"{}", b"\x00\x00\x00\x00\x09abcdef", b"\x00\x00\x00\x00\x07"]),
        max_size=30,
    )
)
def test_span_of_avro_events_is_that_of_their_positions(values: list[bytes | None]) -> None:
    assert read(values, "avro", False) == exact(values)


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize(
    ("log_format", "value"),
    [
        ("json", lambda source: text(envelope(source))),
        ("json", lambda source: text(with_schema(envelope(source)))),
        ("avro", avro_value),
    ],
    ids=["json", "json with schemas", "avro"],
)
def test_usual_events_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch, log_format: str, value: Any, at_once: int
) -> None:
    monkeypatch.setattr(spans, "_AT_ONCE", at_once)
    values = [None, *(value({"pos": n, "gtid": f"U:{n}"}) for n in range(10))]
    expected = exact(values)
    monkeypatch.setattr(PositionReader, "read", None)
    assert expected is not None
    assert read(values, log_format, False) == expected
