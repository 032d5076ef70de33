"""The fields of an event without a schema."""

import json
from typing import Any

import pytest

from replicator.decode.event_format import image_fields
from replicator.model.position import SourcePosition

SOURCE = {"file": "mysql-bin.000003", "pos": 120, "server_id": 7, "gtid": "3e11:5", "ts_ms": 1_700}
POSITION = SourcePosition("mysql-bin.000003", 120, 0, 7, "3e11:5")


def fields(event: Any, *, flattened: bool = False) -> set[str] | None:
    found = image_fields(json.dumps(event).encode(), flattened=flattened)
    return None if found is None else set(found.names)


def test_fields_are_those_of_the_row_after_else_of_the_row_before() -> None:
    assert fields({"before": {"a": 1}, "after": {"a": 1, "b": None}, "source": SOURCE}) == {"a", "b"}
    assert fields({"before": {"a": 1}, "after": None, "source": SOURCE}) == {"a"}


def test_position_is_that_of_the_source_block() -> None:
    found = image_fields(json.dumps({"after": {"a": 1}, "source": SOURCE}).encode(), flattened=False)
    assert found is not None
    assert (found.position, found.position.gtid, found.ts_ms) == (POSITION, "3e11:5", 1_700)


def test_metadata_of_flattened_events_are_no_columns() -> None:
    event = {"a": 1, "__op": "c", "__source_file": "mysql-bin.000003", "__source_pos": 120, "__extra": 1}
    assert fields(event, flattened=True) == {"a"}
    assert fields({"a": 1, "__op": "c"}, flattened=True) is None


@pytest.mark.parametrize(
    "event",
    [
        {"op": "t", "before": None, "after": None, "source": SOURCE},
        {"after": {"a": 1}},
        {"after": {"a": 1}, "source": {"pos": 1}},
        {"after": {"a": 1}, "source": {"file": "odd", "pos": 1}},
        {"after": {"a": 1}, "source": {**SOURCE, "pos": "x"}},
        {"after": [1], "source": SOURCE},
        [1],
        7,
    ],
)
def test_other_records_have_no_fields(event: Any) -> None:
    assert fields(event) is None


@pytest.mark.parametrize("value", [b"", b"\xff", b"{", b"[" * 100_000])
def test_any_bytes_are_accepted(value: bytes) -> None:
    assert image_fields(value, flattened=False) is None
