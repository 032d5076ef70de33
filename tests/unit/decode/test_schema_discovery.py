"""Discovery of the schemas of events, without Spark."""

import pytest

from replicator.decode.avro.format import AvroFormat
from replicator.decode.decoding import WriterSchema
from replicator.decode.event_format import CarriedSchema
from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.discovery import SchemaDiscovery
from replicator.decode.schemas.histories import SchemaHistories
from replicator.errors import MissingSchema
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG, STRING, Encoding, decimal
from replicator.schema.history.versions import TableDefinition
from replicator.sources.kafka.schema_registry import GivenSchemas

TABLE = TableId("shop", "orders")
ID = Column("id", LONG, nullable=False)
OLD = TableSchema((ID, Column("name", STRING)), ("id",))
RENAMED = TableSchema((ID, Column("title", STRING)), ("id",))
GROWN = TableSchema((*OLD.columns, Column("n", LONG)), ("id",))
PRICED = TableSchema((ID, Column("price", decimal(12, 2), Encoding.UNSEEN_DECIMAL)), ("id",))


def at(pos: int) -> SourcePosition:
    return SourcePosition("b.000001", pos)


def defined(schema: TableSchema = OLD) -> SchemaHistories:
    histories = SchemaHistories()
    histories.apply([TableDefinition(TABLE, at(4), 0, schema)])
    return histories


def observe(discovery: SchemaDiscovery, schema: TableSchema, *, patient: bool, pos: int | None = 90) -> None:
    position = None if pos is None else at(pos)
    carried = CarriedSchema(7, b"{}", b"{}", position)
    discovery.observe(TABLE, carried, WriterSchema(schema, 7), patient=patient)


def observed_columns(histories: SchemaHistories) -> list[tuple[str, ...]]:
    return [v.schema.names for v in histories.history(TABLE).versions if not v.declared]


def test_batch_is_postponed_twice_when_columns_may_be_renamed() -> None:
    histories = defined()
    discovery = SchemaDiscovery(JsonFormat(), histories)
    for _ in range(2):
        with pytest.raises(MissingSchema, match=r"columns of shop\.orders were renamed"):
            observe(discovery, RENAMED, patient=True)
        assert observed_columns(histories) == []
    observe(discovery, RENAMED, patient=True)
    assert observed_columns(histories) == [("id", "title")]


def test_batch_is_not_postponed_when_no_definition_can_arrive() -> None:
    histories = defined()
    observe(SchemaDiscovery(JsonFormat(), histories), RENAMED, patient=False)
    assert observed_columns(histories) == [("id", "title")]


def test_version_is_not_observed_when_declared_or_without_position() -> None:
    histories = defined()
    discovery = SchemaDiscovery(JsonFormat(), histories)
    observe(discovery, OLD, patient=True)
    observe(discovery, GROWN, patient=True, pos=None)
    assert observed_columns(histories) == []


def test_definition_is_sufficient_for_json_but_not_for_avro() -> None:
    json, avro = (SchemaDiscovery(f, defined()) for f in (JsonFormat(), AvroFormat(GivenSchemas({}))))
    assert json.knows(TABLE)
    assert [e.schema for e in json.writer_schemas(TABLE, None)] == [OLD]
    assert not avro.knows(TABLE)
    with pytest.raises(MissingSchema):
        avro.writer_schemas(TABLE, None)


@pytest.mark.parametrize(
    ("prices", "encoding"),
    [
        ([b"null"], Encoding.UNSEEN_DECIMAL),
        ([b"12.5"], Encoding.NUMBER),
        ([b'"AfQ="'], Encoding.BASE64_DECIMAL),
        ([b"12.5", b'"AfQ="'], Encoding.EITHER_DECIMAL),
    ],
)
def test_decimal_encoding_is_learned_from_inspected_events(prices: list[bytes], encoding: Encoding) -> None:
    discovery = SchemaDiscovery(JsonFormat(), defined(PRICED))
    assert discovery.needs_inspection(TABLE)
    discovery.inspect_values(
        TABLE, [b'{"before": null, "after": {"id": 1, "price": %s}}' % price for price in prices]
    )
    assert not discovery.needs_inspection(TABLE)
    (found,) = discovery.writer_schemas(TABLE, None)
    assert [c.encoding for c in found.schema.columns] == [Encoding.PLAIN, encoding]
