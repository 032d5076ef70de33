"""Events of several writer schemas in one frame."""

import pyarrow as pa

from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.format import JsonFormat
from replicator.decode.json.parser import JsonParser
from replicator.decode.records import DriverRecords
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.model.batch_stats import UNDECODABLE, UNKNOWN_SCHEMA
from replicator.model.events import RawRecord
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import (
    STRING,
)
from replicator.sources.change_log import SCHEMA_PREFIX
from tests.oracle.events import ColumnSpec, Place, change_event, schema_change_event, with_value_schema
from tests.support.decoding import ID, RANGES, records, rows_of


def test_older_events_are_filled_with_added_columns_by_their_position() -> None:
    columns = [ColumnSpec("id", "bigint", False)]
    newer = [*columns, ColumnSpec("n", "int", False, "7")]
    schemas = SchemaTracker(JsonFormat())
    table = TableId("shop", "t")
    schemas.add_schema_changes(
        [
            RawRecord(
                "p", 0, i, 0, None, schema_change_event(Place(1, pos), "t", shape, ["id"], kind="ALTER")
            )
            for i, (pos, shape) in enumerate(((5, columns), (50, newer)))
        ]
    )
    writer_schemas = schemas.discovery.writer_schemas(table, None)
    raw = records(
        change_event("c", Place(1, 10), "t", after={"id": 1}),
        change_event("c", Place(1, 60), "t", after={"id": 2, "n": 9}),
        b"garbage{",
        with_value_schema(change_event("c", Place(1, 70), "t", after={"id": 3}), columns, "x"),
    )
    decoding = Decoding(tuple(writer_schemas), writer_schemas[-1].schema, True)
    rows = rows_of(Decoder(JsonParser(), decoding, RANGES).decode(raw))
    assert [r.offset for r in rows] == [0, 1, 2, 3]
    assert [None if r.after is None else r.after["n"] for r in rows[:3]] == [7, 9, None]
    assert [r.bad for r in rows] == [None, None, "not JSON of the table's schema", UNKNOWN_SCHEMA]


def test_added_columns_are_filled_in_rows_and_not_in_events_without_a_row() -> None:
    schema = TableSchema((ID,), ("id",))
    target = TableSchema((ID, Column("state", STRING, fill="new")), ("id",))
    raw = records(change_event("c", Place(1, 5), "t", after={"id": 1}), change_event("t", Place(1, 6), "t"))
    frame = Decoder(JsonParser(), Decoding((WriterSchema(schema),), target, True), RANGES).decode(raw)
    assert frame.column("after").to_pylist() == [{"id": 1, "state": "new"}, None]


def test_events_are_decoded_by_the_schema_that_they_contain() -> None:
    """No record is dropped: one that no schema fits gets a reason."""
    columns = [ColumnSpec("id", "bigint", False)]
    newer = [*columns, ColumnSpec("n", "int")]
    raw = records(
        with_value_schema(change_event("t", Place(1, 3), "t"), columns, "x"),
        with_value_schema(change_event("c", Place(1, 4), "t", after={"id": 1}), columns, "x"),
        with_value_schema(change_event("c", Place(1, 5), "t", after={"id": 2, "n": 5}), newer, "x"),
        change_event("c", Place(1, 6), "t", after={"id": 3}),
        b'{"schema":{"odd":1},"payload":{}}',
        b'{"schema":nonsense',
    )
    writer_schemas = SchemaTracker(JsonFormat()).discovery.learn(
        TableId("shop", "t"), DriverRecords(raw), patient=False
    )
    assert [e.schema.names for e in writer_schemas] == [("id",), ("id", "n")]
    assert {e.schema.key for e in writer_schemas} == {("id",)}
    decoding = Decoding(tuple(writer_schemas), writer_schemas[-1].schema, True, UNDECODABLE)
    rows = rows_of(Decoder(JsonParser(), decoding, RANGES).decode(raw))
    assert [r.op for r in rows] == ["t", "c", "c", None, None, None]
    assert [r.bad for r in rows] == [None, None, None, UNDECODABLE, UNDECODABLE, UNDECODABLE]
    assert rows[2].after == {"id": 2, "n": 5}


def test_payloads_are_decoded_as_the_events_that_they_are_of() -> None:
    columns = [ColumnSpec("id", "bigint", False)]
    newer = [*columns, ColumnSpec("n", "int")]
    raw = records(
        with_value_schema(change_event("c", Place(1, 4), "t", after={"id": 1}), columns, "x"),
        with_value_schema(change_event("c", Place(1, 5), "t", after={"id": 2, "n": 5}), newer, "x"),
        with_value_schema(change_event("d", Place(1, 6), "t", before={"id": 2, "n": 5}), newer, "x"),
    )
    found = SchemaTracker(JsonFormat()).discovery.learn(
        TableId("shop", "t"), DriverRecords(raw), patient=False
    )
    decoder = Decoder(JsonParser(), Decoding(tuple(found), found[-1].schema, True, UNDECODABLE), RANGES)
    _, prefix = decoder.decoding.prefixes
    later = raw.slice(1)
    payloads = [value[len(prefix) : -1] for value in later.column("value").to_pylist()]
    cut = later.set_column(4, "value", pa.array(payloads, pa.binary())).replace_schema_metadata(
        {SCHEMA_PREFIX: prefix}
    )
    assert decoder.decode(cut).equals(decoder.decode(later))
    assert [row.after for row in rows_of(decoder.decode(cut))] == [{"id": 2, "n": 5}, None]


def test_schema_begins_at_its_first_event_with_a_position() -> None:
    """The first record of a partition may have the schema and no position."""
    columns = [ColumnSpec("id", "bigint", False)]
    good = [change_event("c", Place(1, at), "t", after={"id": at}) for at in (7, 8)]
    nothing = good[0].replace(b'"source":', b'"origin":')
    schemas, table = SchemaTracker(JsonFormat()), TableId("shop", "t")
    values = (with_value_schema(event, columns, "x") for event in (nothing, *good))
    schemas.discovery.learn(table, DriverRecords(records(*values)), patient=False)
    assert [v.position.pos for v in schemas.history(table).versions] == [7]


def test_schema_begins_at_its_earliest_event_in_any_partition() -> None:
    columns = [ColumnSpec("id", "bigint", False)]
    values = [
        with_value_schema(change_event("c", Place(1, at), "t", after={"id": at}), columns, "x")
        for at in (9, 8)
    ]
    raw = records(*values)
    partitions = pa.array([0, 1], raw.schema.field("partition").type)
    raw = raw.set_column(0, "partition", partitions)
    schemas, table = SchemaTracker(JsonFormat()), TableId("shop", "t")
    schemas.discovery.learn(table, DriverRecords(raw), patient=False)
    assert [v.position.pos for v in schemas.history(table).versions] == [8]
