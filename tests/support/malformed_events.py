"""Build events and schemas that are malformed or expensive to read."""

import json
from typing import Any

from tests.oracle.events import ColumnSpec, Place, schema_change_event

DEEP = b"[" * 100_000 + b"]" * 100_000
DECIMAL = "org.apache.kafka.connect.data.Decimal"
ENUM = "io.debezium.data.Enum"
AVRO_LIST: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
AVRO_NOTHING: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}],
}
AVRO_EMPTY: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "x", "type": {"type": "map", "values": {"type": "record", "name": "E", "fields": []}}}
    ],
}
AVRO_LAUGHS: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a0", "type": {"type": "record", "name": "R0", "fields": []}},
        *(
            {
                "name": f"a{i}",
                "type": {
                    "type": "record",
                    "name": f"R{i}",
                    "fields": [{"name": name, "type": f"R{i - 1}"} for name in "xyz"],
                },
            }
            for i in range(1, 40)
        ),
    ],
}


def definition(**fields: Any) -> bytes:
    """Return a schema change of one column."""
    columns = (ColumnSpec("id", "bigint", False), ColumnSpec("x", "int"))
    record = json.loads(schema_change_event(Place(1, 4), "orders", columns, ["id"], kind="CREATE"))
    record = record.get("payload", record)
    record["ddl"] = fields.pop("ddl", record.get("ddl"))
    record["tableChanges"][0] |= {name: fields.pop(name) for name in ("id", "type") if name in fields}
    record["tableChanges"][0]["table"]["columns"][1] |= fields
    return json.dumps(record).encode()


def event_with(*fields: dict[str, Any]) -> bytes:
    row = {"type": "struct", "fields": list(fields), "field": "after"}
    return json.dumps({"schema": {"type": "struct", "fields": [row]}, "payload": {}}).encode()
