"""Fields of events in JSON that are no columns of their table."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.config.log_tables import LogPolicy
from replicator.log_tables import json_events
from replicator.log_tables.decoding import Decoded, LogDecoding
from replicator.model.shapes import Shape, parse_shape
from replicator.sources.change_log import RECORDS

SHAPE = parse_shape({"id": "long", "device": {"os": "string"}})


def decode(policy: LogPolicy, *events: Any, colon: str = ": ") -> Decoded:
    numbers = range(len(events))
    values = [json.dumps(event, separators=(", ", colon)).encode() for event in events]
    columns = [[0] * len(events), numbers, numbers, [None] * len(events), values]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, RECORDS, strict=True)], schema=RECORDS)
    return LogDecoding("json", policy, SHAPE, {}).decode(table)


_names = st.sampled_from(["id", "device", "os", "more", "a/b~c", "ü", 'q"', "0"])
_values = st.recursive(
    st.none() | st.integers(0, 5) | st.sampled_from(["x", '{"id":']),
    lambda value: st.lists(value, max_size=2) | st.dictionaries(_names, value, max_size=3),
    max_leaves=5,
)


def has_others(event: dict[str, Any]) -> bool:
    device = event.get("device")
    inner = device if isinstance(device, dict) else {}
    return any(v is not None and k not in SHAPE for k, v in event.items()) or any(
        v is not None and k != "os" for k, v in inner.items()
    )


def is_good(event: dict[str, Any]) -> bool:
    device = event.get("device")
    fits = event.get("id") is None or isinstance(event["id"], int)
    return fits and (device is None or isinstance(device, dict))


@given(
    st.lists(st.dictionaries(_names, _values, max_size=4), max_size=5), st.sampled_from([":", " :", "\n: "])
)
def test_events_with_unknown_fields_are_found(events: list[dict[str, Any]], colon: str) -> None:
    found = decode("quarantine", *events, colon=colon)
    wrong = {number for number, event in enumerate(events) if has_others(event) or not is_good(event)}
    assert set(found.bad.column("offset").to_pylist()) == wrong
    kept = decode("discard", *events).bad.column("offset").to_pylist()
    assert set(kept) == {number for number, event in enumerate(events) if not is_good(event)}


def test_names_are_read_only_of_events_that_may_have_unknown_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def unknown(values: pa.BinaryArray, *args: Any, **options: Any) -> Shape:
        asked.append(len(values))
        return found(values, *args, **options)

    found = json_events.unknown_fields
    monkeypatch.setattr(json_events, "unknown_fields", unknown)
    plain = {"id": 1, "device": {"os": "linux"}}
    assert decode("evolve", plain, {"id": 2}, {}).unknown == {}
    decode("evolve", plain, {"id": None}, {"id": 1, "more": 1}, {"id": '":'}, plain)
    assert asked == [3]


@pytest.mark.parametrize("count", [1, 3, 500])
def test_the_reason_names_the_field_unless_there_are_very_many(count: int) -> None:
    events = [{"id": 1}, *({f"c{number}": number} for number in range(count)), {"device": {"os": "linux"}}]
    found = decode("quarantine", *events)
    assert found.bad.column("offset").to_pylist() == list(range(1, count + 1))
    reasons = found.bad.column("bad").to_pylist()
    assert reasons[0] == (
        "c0 is no column of the table" if count < 20 else "it has fields that are no columns of the table"
    )
