"""Events and schema changes in Avro, and tables that are refused."""

import json

import pytest

from replicator.decode.avro.format import AvroFormat
from replicator.decode.decoding import WriterSchema
from replicator.decode.event_format import CarriedSchema
from replicator.decode.schemas.discovery import SchemaDiscovery
from replicator.decode.schemas.histories import SchemaHistories
from replicator.decode.schemas.resolution import resolve
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import UnsupportedChange
from replicator.model.column_rules import ColumnRules, RuleSet
from replicator.model.events import RawRecord
from replicator.model.position import SourcePosition
from replicator.model.table import TableId
from replicator.schema.history.builder import with_observed
from replicator.schema.history.versions import SchemaHistory, TableDefinition
from replicator.sources.kafka.schema_registry import GivenSchemas
from tests.oracle.avro import SCHEMA_CHANGE, AvroTopics
from tests.oracle.events import ColumnSpec, Place, schema_change_event, with_value_schema
from tests.support.golden import AVRO_KEY, AVRO_VALUE

ORDERS = TableId("shop", "orders")
COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("a b", "varchar"))


def test_add_schema_changes_returns_records_that_are_not_schema_changes() -> None:
    topics = AvroTopics()
    change = json.loads(schema_change_event(Place(1, 4), "orders", COLUMNS, ["id"], kind="CREATE"))
    good = topics.write(SCHEMA_CHANGE, change)
    foreign = topics.write(
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}
    )
    values = [good, b"{}", b"\0\0\0\0\x63ab", good[:40], good[:5] + b"\xff" * 30, foreign, None]
    schemas = SchemaTracker(AvroFormat(GivenSchemas(topics.schemas)))
    bad = schemas.add_schema_changes(
        RawRecord("shop", 0, i, 0, None, value) for i, value in enumerate(values)
    )
    assert [b.record.offset for b in bad] == [1, 2, 3, 4, 5]
    assert bad[0].reason == "not in Confluent's wire format"
    assert bad[1].reason == "the registry has no schema 99"
    (version,) = schemas.history(ORDERS).versions
    assert (version.schema.names, version.schema.key) == (("id", "a b"), ("id",))


def test_table_named_in_returns_none_for_records_without_a_table() -> None:
    topics = AvroTopics()
    change = json.loads(schema_change_event(Place(1, 4), "odd name", COLUMNS, ["id"], kind="CREATE"))
    value = topics.write(SCHEMA_CHANGE, change)
    event_format = AvroFormat(GivenSchemas(topics.schemas))
    assert event_format.table_named_in(value) == TableId("shop", "odd name")
    others = (b"{}", value[:9], b"\0\0\0\0\x63ab")
    assert [event_format.table_named_in(other) for other in others] == [None] * 3


def read(
    event_format: AvroFormat,
    histories: SchemaHistories,
    carried: int,
    key: bytes | None,
    at: SourcePosition | None,
) -> WriterSchema:
    discovery = SchemaDiscovery(event_format, histories)
    return discovery.writer_schema(ORDERS, CarriedSchema(carried, key, b"", at))


def test_writer_schema_has_id_and_key_of_its_events() -> None:
    schemas = GivenSchemas({1: AVRO_VALUE, 2: AVRO_KEY})
    writer_schema = read(AvroFormat(schemas), SchemaHistories(), 1, b"\0\0\0\0\2x", None)
    assert (writer_schema.fingerprint, writer_schema.schema.key) == (1, ("k2", "id"))


def test_writer_schema_with_defaults_is_refused_when_nulls_are_lost() -> None:
    event_format = AvroFormat(GivenSchemas({1: AVRO_VALUE, 2: AVRO_KEY}), refuse_defaults=True)
    with pytest.raises(UnsupportedChange, match=r"NULLs in nd, ni, en of shop\.orders arrive as") as caught:
        read(event_format, SchemaHistories(), 1, None, None)
    assert "allow_lossy" in (caught.value.hint or "")


SECRET = ("e-mail", "pass word", "ssn#", "größe", "1st")
RULES = ColumnRules((RuleSet(exclude=SECRET),))


def writer_of(topics: AvroTopics, *columns: ColumnSpec) -> int:
    """Return the id of the schema with which events of `orders` with these columns are written."""
    value = with_value_schema(b"{}", columns, "shop.shop.orders")
    return topics.registered(json.loads(value)["schema"])


def changed(
    topics: AvroTopics, pos: int, kind: str, ddl: str | None, *columns: ColumnSpec
) -> list[TableDefinition]:
    """Return the definitions in a schema change that is written to `topics` and read again."""
    change = schema_change_event(Place(1, pos), "orders", columns, ["id"], kind=kind, ddl=ddl)
    value = topics.write(SCHEMA_CHANGE, json.loads(change))
    definitions = AvroFormat(GivenSchemas(topics.schemas)).definitions_in(value)
    assert definitions
    return definitions


@pytest.mark.parametrize("told_by", ["parameter", "definition", "nothing"])
def test_column_rules_apply_to_columns_with_other_names_in_avro(told_by: str) -> None:
    topics = AvroTopics(names=told_by == "parameter")
    columns = (*COLUMNS, *(ColumnSpec(name, "varchar") for name in SECRET))
    number = writer_of(topics, *columns)
    histories = SchemaHistories()
    if told_by == "definition":
        histories.apply(changed(topics, 4, "CREATE", None, *columns))
    writer_schema = read(
        AvroFormat(GivenSchemas(topics.schemas)), histories, number, None, SourcePosition("binlog.000001", 10)
    )
    history = histories.history(ORDERS) or with_observed(
        SchemaHistory(), SourcePosition("b.000001", 4), 0, writer_schema.schema
    )
    found = resolve(history, [writer_schema], 0, 0).with_rules(RULES, "shop.orders")
    plain = "a_b" if told_by == "nothing" else "a b"
    assert found.decoded_schema.names == found.schema.names == ("id", plain)
    assert {c.name for c in found.writer_schemas[0].schema.columns} == {"id", plain}


def test_writer_schema_has_the_names_of_the_version_at_its_position() -> None:
    """The definition at that position has the source's names. The rules of all names apply to its columns."""
    topics = AvroTopics(names=False)
    old, new = (
        (ColumnSpec("id", "bigint", False), ColumnSpec("e-mail", "varchar")),
        ColumnSpec("contact", "varchar"),
    )
    number = writer_of(topics, *old)
    histories = SchemaHistories()
    histories.apply(changed(topics, 4, "CREATE", None, *old))
    ddl = "ALTER TABLE orders RENAME COLUMN `e-mail` TO contact"
    histories.apply(changed(topics, 50, "ALTER", ddl, old[0], new))
    writer_schema = read(
        AvroFormat(GivenSchemas(topics.schemas)), histories, number, None, SourcePosition("binlog.000001", 10)
    )
    assert [c.source_name.name for c in writer_schema.schema.columns] == ["id", "e-mail"]
    for target in (0, 1):
        assert resolve(histories.history(ORDERS), [writer_schema], 0, target).with_rules(
            RULES, "shop.orders"
        ).decoded_schema.names == ("id",)
