"""The table of a topic, from definitions, from events, or from the name of the topic."""

import json
from unittest.mock import Mock

import pyarrow as pa
import pytest

from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import DecodeError, SharedTopic
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from replicator.runner.topic_tables import TopicTables
from replicator.sources.change_log import RECORDS
from tests.oracle.events import ColumnSpec, Place, change_event, schema_change_event

COLUMNS = (ColumnSpec("id", "int", False),)


def define(schemas: SchemaTracker, database: str, table: str, *, kind: str = "CREATE", pos: int = 4) -> None:
    value = json.loads(schema_change_event(Place(1, pos), table, COLUMNS, ["id"], kind=kind))
    (change,) = value["tableChanges"]
    change["id"] = ".".join('"' + part.replace('"', '""') + '"' for part in (database, table))
    schemas.add_schema_changes([RawRecord("shop", 0, 0, 0, None, json.dumps(value).encode())])


def log(events: dict[str, list[bytes]] | None = None) -> Mock:
    found = events or {}
    made = Mock(topic_prefix="shop")
    made.offsets.return_value = ({t: {0: 0} for t in found}, {t: {0: len(v)} for t, v in found.items()})
    made.fetch.side_effect = lambda ranges, _: {
        r.topic: pa.table(
            [[0] * r.count, range(r.count), [0] * r.count, [None] * r.count, found[r.topic]], schema=RECORDS
        )
        for r in ranges
    }
    return made


@pytest.mark.parametrize(
    ("database", "table", "topic"),
    [
        ("db", "orders", "shop.db.orders"),
        ("db", "a b", "shop.db.a_b"),
        ("my.db", "t", "shop.my.db.t"),
        ("db", "größe.x", "shop.db.gr__e.x"),
        ('d"b', "`日本`", "shop.d_b.____"),
    ],
)
def test_topic_tables_are_found_by_definitions(database: str, table: str, topic: str) -> None:
    schemas = SchemaTracker(JsonFormat())
    define(schemas, database, table)
    topics = TopicTables(log(), schemas, lambda _: True)
    assert topics.table(topic) == TableId(database, table)
    topics.check_alone(topic)


def test_topic_tables_are_found_by_events_when_there_are_no_definitions() -> None:
    value = change_event("c", Place(1, 5), "a b", after={"id": 1})
    source = log({"shop.shop.a_b": [b"garbage", value]})
    topics = TopicTables(source, SchemaTracker(JsonFormat()), lambda _: True)
    assert topics.table("shop.shop.a_b") == TableId("shop", "a b")
    assert topics.table("shop.shop.a_b") == TableId("shop", "a b")
    assert source.fetch.call_count == 1
    assert topics.table("shop.shop.orders") == TableId("shop", "orders")
    assert source.fetch.call_count == 1, "that name leaves nothing open"
    with pytest.raises(DecodeError):
        topics.table("shop.transaction")


def test_topic_tables_fetch_events_without_a_table_name_once() -> None:
    """Flattened events have no table name."""
    topic, nothing = "shop.shop.a_b", change_event("c", Place(1, 5), "a b").replace(b'"source"', b'"origin"')
    events = {topic: [nothing]}
    source = log(events)
    source.offsets.return_value = ({topic: {0: 0}}, {topic: {0: 1}})
    topics = TopicTables(source, SchemaTracker(JsonFormat()), lambda _: True)
    for _ in range(3):
        topics.invalidate()
        assert topics.table(topic) == TableId("shop", "a_b")
    assert source.fetch.call_count == 1
    events[topic].append(change_event("c", Place(1, 6), "a b", after={"id": 1}))
    source.offsets.return_value = ({topic: {0: 0}}, {topic: {0: 2}})
    topics.invalidate()
    assert topics.table(topic) == TableId("shop", "a b")


def test_topic_tables_refuse_two_included_tables_of_one_topic() -> None:
    schemas = SchemaTracker(JsonFormat())
    define(schemas, "db", "a b")
    wanted = {"db.a b", "db.a$b"}
    topics = TopicTables(log(), schemas, wanted.__contains__)
    assert topics.table("shop.db.a_b") == TableId("db", "a b")
    define(schemas, "db", "a$b")
    with pytest.raises(SharedTopic, match=r"db\.a b and db\.a\$b|db\.a\$b and db\.a b"):
        topics.check_alone("shop.db.a_b")
    wanted.discard("db.a b")
    assert TopicTables(log(), schemas, wanted.__contains__).table("shop.db.a_b") == TableId("db", "a$b")
    TopicTables(log(), schemas, wanted.__contains__).check_alone("shop.db.a_b")
