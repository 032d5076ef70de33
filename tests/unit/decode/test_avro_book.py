"""Schema changes in Avro, and tables that are refused."""

import json

import pytest

from replicator.decode.avro_book import AvroBook
from replicator.errors import UnsupportedChange
from replicator.model.record import RawRecord
from replicator.model.table import TableId
from replicator.registry import GivenSchemas
from tests.oracle.avro import SCHEMA_CHANGE, AvroTopics
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.unit.decode.test_avro_schema import KEY, VALUE

ORDERS = TableId("shop", "orders")
COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("a b", "varchar"))


def test_schema_changes_in_avro() -> None:
    topics = AvroTopics()
    change = json.loads(schema_change_event(Place(1, 4), "orders", COLUMNS, ["id"], kind="CREATE"))
    good = topics.write(SCHEMA_CHANGE, change)
    foreign = topics.write(
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}
    )
    values = [good, b"{}", b"\0\0\0\0\x63ab", good[:40], good[:5] + b"\xff" * 30, foreign, None]
    book = AvroBook(GivenSchemas(topics.schemas))
    bad = book.add_schema_changes(RawRecord("shop", 0, i, 0, None, value) for i, value in enumerate(values))
    assert [b.record.offset for b in bad] == [1, 2, 3, 4, 5]
    assert bad[0].reason == "not in Confluent's wire format"
    assert bad[1].reason == "the registry has no schema 99"
    (version,) = book.line(ORDERS).versions
    assert (version.schema.names, version.schema.key) == (("id", "a b"), ("id",))


def test_an_event_tells_its_table() -> None:
    topics = AvroTopics()
    change = json.loads(schema_change_event(Place(1, 4), "odd name", COLUMNS, ["id"], kind="CREATE"))
    value = topics.write(SCHEMA_CHANGE, change)
    book = AvroBook(GivenSchemas(topics.schemas))
    assert book.table_named_in(value) == TableId("shop", "odd name")
    assert [book.table_named_in(other) for other in (b"{}", value[:9], b"\0\0\0\0\x63ab")] == [None] * 3


def test_a_writer_schema_becomes_an_epoch() -> None:
    schemas = GivenSchemas({1: VALUE, 2: KEY})
    epoch = AvroBook(schemas)._epoch(ORDERS, 1, b"\0\0\0\0\2x", None)
    assert (epoch.fingerprint, epoch.schema.key) == (1, ("k2", "id"))
    with pytest.raises(UnsupportedChange, match=r"NULLs in nd, ni, en of shop\.orders arrive as") as caught:
        AvroBook(schemas, refuse_defaults=True)._epoch(ORDERS, 1, None, None)
    assert "allow_lossy" in (caught.value.hint or "")
