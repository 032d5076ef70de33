"""Encode JSON events with schemas as Avro in Confluent's wire format, as the converter of a schema registry does."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro

from replicator.model.events import adjusted
from tests.oracle.model import Record

_TYPES = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_SOURCE_NAME = "__debezium.source.column.name"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.mysql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {
            "name": "snapshot",
            "type": [{"type": "string", "connect.default": "false"}, "null"],
            "default": "false",
        },
        {"name": "db", "type": "string"},
        {"name": "sequence", **_optional("string")},
        {"name": "ts_us", **_optional("long")},
        {"name": "ts_ns", **_optional("long")},
        {"name": "table", **_optional("string")},
        {"name": "server_id", "type": "long"},
        {"name": "gtid", **_optional("string")},
        {"name": "file", "type": "string"},
        {"name": "pos", "type": "long"},
        {"name": "row", "type": "int"},
        {"name": "thread", **_optional("long")},
        {"name": "query", **_optional("string")},
    ],
    "connect.name": "io.debezium.connector.mysql.Source",
}
_TEXTS = {"type": "array", "items": "string"}
_TABLE_COLUMN = {
    "type": "record",
    "name": "Column",
    "namespace": "io.debezium.connector.schema",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "jdbcType", "type": "int"},
        {"name": "nativeType", **_optional("int")},
        {"name": "typeName", "type": "string"},
        {"name": "typeExpression", **_optional("string")},
        {"name": "charsetName", **_optional("string")},
        {"name": "length", **_optional("int")},
        {"name": "scale", **_optional("int")},
        {"name": "position", "type": "int"},
        {"name": "optional", **_optional("boolean")},
        {"name": "autoIncremented", **_optional("boolean")},
        {"name": "generated", **_optional("boolean")},
        {"name": "comment", **_optional("string")},
        {"name": "defaultValueExpression", **_optional("string")},
        {"name": "hasDefaultValue", **_optional("boolean")},
        {"name": "enumValues", **_optional(_TEXTS)},
    ],
}
_TABLE = {
    "type": "record",
    "name": "Table",
    "namespace": "io.debezium.connector.schema",
    "fields": [
        {"name": "defaultCharsetName", **_optional("string")},
        {"name": "primaryKeyColumnNames", **_optional(_TEXTS)},
        {"name": "columns", "type": {"type": "array", "items": _TABLE_COLUMN}},
        {"name": "comment", **_optional("string")},
    ],
}
SCHEMA_CHANGE = {
    "type": "record",
    "name": "SchemaChangeValue",
    "namespace": "io.debezium.connector.mysql",
    "fields": [
        {"name": "source", "type": SOURCE},
        {"name": "ts_ms", "type": "long"},
        {"name": "databaseName", **_optional("string")},
        {"name": "schemaName", **_optional("string")},
        {"name": "ddl", **_optional("string")},
        {
            "name": "tableChanges",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Change",
                    "namespace": "io.debezium.connector.schema",
                    "fields": [
                        {"name": "type", "type": "string"},
                        {"name": "id", "type": "string"},
                        {"name": "table", **_optional(_TABLE)},
                    ],
                },
            },
        },
    ],
    "connect.name": "io.debezium.connector.mysql.SchemaChangeValue",
}


@dataclass
class AvroTopics:
    """Encodes records and keeps the schemas by their ids, as a registry does.

    With `names`, a column whose name Avro does not allow has its source name in a parameter.
    """

    schemas: dict[int, str] = field(default_factory=dict)
    names: bool = True

    def encoded(self, record: Record) -> Record:
        """Return the record in Avro; data that is not JSON with a schema is not changed."""
        key, value = (self._encoded(data) for data in (record.key, record.value))
        return Record(record.topic, record.partition, key, value, record.snapshot)

    def _encoded(self, data: bytes | None) -> bytes | None:
        if data is None or not data.startswith(b'{"schema":'):
            return data
        document = json.loads(data)
        payload = document["payload"]
        if "tableChanges" in payload:
            return self.write(SCHEMA_CHANGE, payload)
        return self.write(self._schema(document["schema"]), _row(document["schema"], payload))

    def registered(self, connect: Mapping[str, Any]) -> int:
        """Return the id of an envelope's schema, given the schema in Kafka Connect's JSON form."""
        return self._number(json.dumps(self._schema(connect)))

    def _schema(self, connect: Mapping[str, Any]) -> Any:
        schema = envelope_schema(connect)
        return schema if self.names else _without_names(schema)

    def _number(self, text: str) -> int:
        number = next((n for n, known in self.schemas.items() if known == text), len(self.schemas) + 1)
        self.schemas[number] = text
        return number

    def write(self, schema: Mapping[str, Any], payload: Mapping[str, Any]) -> bytes:
        """Encode a record in Confluent's wire format."""
        number = self._number(json.dumps(schema))
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(dict(schema)), payload)
        return b"\0" + number.to_bytes(4, "big") + data.getvalue()


def _without_names(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_names(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: _without_names(v) for k, v in schema.items() if k != _SOURCE_NAME}


def envelope_schema(connect: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of a key or an envelope, given its schema in Kafka Connect's JSON form."""
    return _kind(connect, set())


def _kind(connect: Mapping[str, Any], defined: set[str]) -> Any:
    if connect.get("name") == "io.debezium.connector.mysql.Source":
        return SOURCE
    if connect["type"] == "struct":
        return _record(connect, defined)
    if connect["type"] == "array":
        return {"type": "array", "items": _kind(connect["items"], defined), **_properties(connect)}
    properties = _properties(connect)
    if connect["type"] in ("int8", "int16"):
        properties["connect.type"] = connect["type"]
    if connect.get("name") == _DECIMAL:
        parameters = connect["parameters"]
        digits = int(parameters["connect.decimal.precision"])
        properties |= {"logicalType": "decimal", "precision": digits, "scale": int(parameters["scale"])}
    return {"type": _TYPES[connect["type"]], **properties} if properties else _TYPES[connect["type"]]


def _record(connect: Mapping[str, Any], defined: set[str]) -> Any:
    if connect["name"] in defined:
        return connect["name"]
    defined.add(connect["name"])
    space, _, name = connect["name"].rpartition(".")
    return {
        "type": "record",
        "name": name,
        "namespace": space,
        "fields": [_field(f, defined) for f in connect["fields"]],
        **_properties(connect),
    }


def _field(connect: Mapping[str, Any], defined: set[str]) -> dict[str, Any]:
    name, kind = connect["field"], _kind(connect, defined)
    if adjusted(name) != name:
        kind = kind if isinstance(kind, dict) else {"type": kind}
        kind.setdefault("connect.parameters", {})[_SOURCE_NAME] = name
    found = {"name": adjusted(name), "type": kind}
    if connect.get("default") is None:
        return found | _optional(kind) if connect.get("optional") else found
    # The default must match the first branch of a union.
    return found | {"type": [kind, "null"] if connect.get("optional") else kind, "default": _default(connect)}


def _default(connect: Mapping[str, Any]) -> Any:
    value = connect["default"]
    if connect.get("name") == _DECIMAL:
        number = int(Decimal(str(value)).scaleb(int(connect["parameters"]["scale"])))
        return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True).decode(
            "latin1"
        )
    return int(value) if connect["type"].startswith("int") else value


def _properties(connect: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"connect.name": connect["name"]} if connect.get("name") else {}
    if connect.get("parameters"):
        found["connect.parameters"] = dict(connect["parameters"])
    return found


def _row(connect: Mapping[str, Any], value: Any) -> Any:
    if value is None or connect.get("name") == "io.debezium.connector.mysql.Source":
        return value
    if connect["type"] == "struct":
        return {adjusted(f["field"]): _row(f, value.get(f["field"])) for f in connect["fields"]}
    if connect.get("name") == _DECIMAL:
        return Decimal(str(value))
    return value
