"""The formats of change events, and which fields an event without a schema has."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from replicator.decode.avro.format import AvroFormat
from replicator.decode.event_format import CarriedSchema, EventFormat, image_fields
from replicator.decode.json.format import JsonFormat
from replicator.model.position import SourcePosition
from replicator.model.table import TableId
from replicator.schema.history.versions import SchemaHistory
from replicator.sources.kafka.schema_registry import GivenSchemas
from tests.oracle.avro import AvroTopics
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record

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


COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("note", "varchar"))
NOTES = TableId("shop", "notes")
AT = SourcePosition("binlog.000001", 90)
CHANGE: dict[str, Any] = json.loads(schema_change_event(Place(1, 4), "notes", COLUMNS, ["id"], kind="CREATE"))


@dataclass
class Written:
    """Records of one format, and the format as it is configured to read them."""

    topics: AvroTopics | None
    schemas: dict[int, str] = field(default_factory=dict)

    def record(self, key: bytes | None, value: bytes) -> Record:
        record = Record("shop.shop.notes", 0, key, value)
        return record if self.topics is None else self.topics.encoded(record)

    @property
    def event_format(self) -> EventFormat:
        return JsonFormat() if self.topics is None else AvroFormat(GivenSchemas(self.topics.schemas))


@pytest.fixture(params=["json", "avro"])
def written(request: pytest.FixtureRequest) -> Written:
    return Written(AvroTopics() if request.param == "avro" else None)


def insert(written: Written) -> Record:
    row = {"id": 7, "note": "a"}
    return written.record(
        with_key_schema(key_of(row, ["id"]), COLUMNS, ["id"], "shop.shop.notes"),
        with_value_schema(change_event("c", Place(1, 90), "notes", after=row), COLUMNS, "shop.shop.notes"),
    )


def test_definitions_are_the_same_in_each_format(written: Written) -> None:
    record = written.record(None, json.dumps({"schema": {}, "payload": CHANGE}).encode())
    (definition,) = written.event_format.definitions_in(record.value or b"")
    assert (definition.table, definition.position.pos) == (NOTES, 4)
    assert definition.schema is not None
    assert (definition.schema.names, definition.schema.key) == (("id", "note"), ("id",))


def test_event_names_its_table_and_carries_its_schema(written: Written) -> None:
    value = insert(written).value or b""
    assert written.event_format.carries_schema(value)
    assert written.event_format.table_named_in(value) == NOTES
    for other in (b"", b"{}", value[:-12]):
        assert written.event_format.table_named_in(other) is None


def test_writer_schema_has_columns_and_key_of_the_event(written: Written) -> None:
    record = insert(written)
    carried = CarriedSchema(1 if written.topics is not None else 99, record.key, record.value or b"", AT)
    if written.topics is not None:
        (carried,) = [
            CarriedSchema(number, record.key, b"", AT)
            for number, text in written.topics.schemas.items()
            if "Envelope" in text
        ]
    found = written.event_format.writer_schema(NOTES, carried, SchemaHistory())
    assert (found.schema.names, found.schema.key) == (("id", "note"), ("id",))
    assert found.fingerprint == carried.schema_id
