"""Tables whose events are Avro."""

from collections.abc import Sequence
from typing import Any

from tests.oracle.avro import AvroTopics
from tests.oracle.events import ColumnSpec, Place, change_event, key_of, with_key_schema, with_value_schema
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS, ORDERS


def record(op: str, pos: int, columns: Sequence[ColumnSpec], **images: Any) -> Record:
    row = images["before" if op == "d" else "after"]
    value = with_value_schema(change_event(op, Place(1, pos), "orders", **images), columns, ORDERS)
    return Record(ORDERS, 0, with_key_schema(key_of(row, ["id"]), columns, ["id"], ORDERS), value)


def test_table_gets_the_columns_of_newer_writer_schemas(lake: LakeHarness) -> None:
    topics = AvroTopics()
    newer = [*COLUMNS, ColumnSpec("größe x", "int")]
    lake.write(
        [
            record("c", 100, COLUMNS, after={"id": 1, "name": "a"}),
            record("c", 101, COLUMNS, after={"id": 2, "name": "b"}),
            record(
                "u",
                102,
                newer,
                before={"id": 2, "name": "b", "größe x": None},
                after={"id": 2, "name": "c", "größe x": 7},
            ),
            Record(ORDERS, 0, b"no key", b"\0\0\0\0\1no event"),
        ],
        avro=topics,
    )
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}})
    assert lake.rows("orders") == [{"id": 1, "name": "a"}]
    mirror.advance({ORDERS: {0: 4}})
    assert mirror.summary().paused == {}
    assert sorted(lake.rows("orders"), key=lambda r: r["id"]) == [
        {"id": 1, "name": "a", "größe x": None},
        {"id": 2, "name": "c", "größe x": 7},
    ]
    (bad,) = lake.rows("quarantine", "shop_ops")
    assert bad["value"] == b"\0\0\0\0\1no event"


def test_table_pauses_when_the_registry_lacks_the_writer_schema(lake: LakeHarness) -> None:
    """No schema of the table is known yet, so the cause is the registry and not an event."""
    lake.write([Record(ORDERS, 0, None, b"\0\0\0\3\xe7 an event")], avro=AvroTopics())
    mirror = lake.catch_up()
    (reason,) = mirror.summary().paused.values()
    assert "the registry has no schema 999" in reason
