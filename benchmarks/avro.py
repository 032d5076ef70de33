"""Debezium 3.6 change events as Avro in Confluent's wire format, as Apicurio's converter writes them."""

import io
import json
from collections.abc import Iterator
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import fastavro
import requests

from benchmarks.events import OPS, source_of
from benchmarks.events import schema_changes as json_schema_changes
from benchmarks.workload import SNAPSHOT, Change, Layout, Row

Schema = dict[str, Any]
_ATTEMPTS = 5


class AvroWriter:
    """Encodes keys and values of one layout's events, and registers their schemas at the registry at `url`."""

    def __init__(self, layout: Layout, url: str) -> None:
        topics = [layout.topic(i) for i in range(layout.tables)]
        self._keys = [_Encoder(url, f"{topic}-key", _key_schema(topic)) for topic in topics]
        self._values = [_Encoder(url, f"{topic}-value", _value_schema(topic)) for topic in topics]
        self._tables = [layout.table(i) for i in range(layout.tables)]
        self._name = layout.prefix

    def key(self, table: int, key: int) -> bytes:
        """Return the key of a row's events."""
        return self._keys[table].encode({"id": key})

    def value(self, table: int, change: Change, before: Row | None, after: Row | None) -> bytes:
        """Return the value of one event."""
        commit = change.commit_us
        seen = (commit if change.kind != SNAPSHOT else commit // 1_000_000 * 1_000_000) + 21_653
        event = {
            "before": _image(before),
            "after": _image(after),
            "source": source_of(change, self._name, self._tables[table]),
            "transaction": None,
            "op": OPS[change.kind],
            "ts_ms": seen // 1000,
            "ts_us": seen,
            "ts_ns": seen * 1000 + 287,
        }
        return self._values[table].encode(event)


def schema_changes(layout: Layout, url: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of the records of the schema-change topic."""
    keys = _Encoder(url, f"{layout.prefix}-key", _record(
        "io.debezium.connector.mysql.SchemaChangeKey", [_field("databaseName", "string")]
    ))  # fmt: skip
    values = _Encoder(url, f"{layout.prefix}-value", _schema_change_schema())
    for key, value in json_schema_changes(layout):
        yield keys.encode(json.loads(key)), values.encode(json.loads(value))


class _Encoder:
    """Encodes records of one schema, which it registers."""

    def __init__(self, url: str, subject: str, schema: Schema) -> None:
        # Of two processes that register a new schema at the same time, the registry refuses one.
        for _ in range(_ATTEMPTS):
            answer = requests.post(
                f"{url}/subjects/{subject}/versions", json={"schema": json.dumps(schema)}, timeout=30
            )
            if answer.status_code != HTTPStatus.CONFLICT:
                break
        answer.raise_for_status()
        self._header = b"\0" + int(answer.json()["id"]).to_bytes(4, "big")
        self._schema = fastavro.parse_schema(schema)

    def encode(self, record: dict[str, Any]) -> bytes:
        data = io.BytesIO(self._header)
        data.seek(len(self._header))
        fastavro.schemaless_writer(data, self._schema, record)
        return data.getvalue()


def _image(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "id": row.id,
        "quantity": row.quantity,
        "amount": Decimal(row.cents).scaleb(-2),
        "status": row.status,
        "note": row.note,
        "updated_at": row.updated_us,
    }


def _field(name: str, kind: Any, *, optional: bool = False) -> Schema:
    return (
        {"name": name, "type": ["null", kind], "default": None} if optional else {"name": name, "type": kind}
    )


def _record(name: str, fields: list[Schema]) -> Schema:
    space, _, short = name.rpartition(".")
    return {"type": "record", "name": short, "namespace": space, "fields": fields, "connect.name": name}


def _key_schema(topic: str) -> Schema:
    return _record(f"{topic}.Key", [_field("id", "long")])


def _value_schema(topic: str) -> Schema:
    amount = {
        "type": "bytes", "scale": 2, "precision": 12, "logicalType": "decimal", "connect.version": 1,
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
    }  # fmt: skip
    updated = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
    columns = [
        _field("id", "long"), _field("quantity", "int"), _field("amount", amount), _field("status", "string"),
        _field("note", "string"), _field("updated_at", updated),
    ]  # fmt: skip
    transaction = _record(
        "event.block",
        [_field("id", "string"), _field("total_order", "long"), _field("data_collection_order", "long")],
    )
    value = _record(f"{topic}.Value", columns)
    return _record(
        f"{topic}.Envelope",
        [
            _field("before", value, optional=True),
            _field("after", f"{topic}.Value", optional=True),
            _field("source", _source_schema()),
            _field("transaction", transaction, optional=True),
            _field("op", "string"),
            *(_field(name, "long", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
        ],
    )


def _source_schema() -> Schema:
    return _record(
        "io.debezium.connector.mysql.Source",
        [
            *(_field(name, "string") for name in ("version", "connector", "name")),
            _field("ts_ms", "long"),
            {"name": "snapshot", "type": ["string", "null"], "default": "false"},
            _field("db", "string"),
            _field("sequence", "string", optional=True),
            *(_field(name, "long", optional=True) for name in ("ts_us", "ts_ns")),
            _field("table", "string", optional=True),
            _field("server_id", "long"),
            _field("gtid", "string", optional=True),
            _field("file", "string"),
            _field("pos", "long"),
            _field("row", "int"),
            _field("thread", "long", optional=True),
            _field("query", "string", optional=True),
        ],
    )


def _schema_change_schema() -> Schema:
    texts = {"type": "array", "items": "string"}
    column = _record(
        "io.debezium.connector.schema.Column",
        [
            _field("name", "string"),
            _field("jdbcType", "int"),
            _field("nativeType", "int", optional=True),
            _field("typeName", "string"),
            *(_field(name, "string", optional=True) for name in ("typeExpression", "charsetName")),
            *(_field(name, "int", optional=True) for name in ("length", "scale")),
            _field("position", "int"),
            *(
                _field(name, "boolean", optional=True)
                for name in ("optional", "autoIncremented", "generated")
            ),
            *(_field(name, "string", optional=True) for name in ("comment", "defaultValueExpression")),
            _field("enumValues", texts, optional=True),
        ],
    )
    table = _record(
        "io.debezium.connector.schema.Table",
        [
            _field("defaultCharsetName", "string", optional=True),
            _field("primaryKeyColumnNames", texts, optional=True),
            _field("columns", {"type": "array", "items": column}),
            _field("comment", "string", optional=True),
        ],
    )
    change = _record(
        "io.debezium.connector.schema.Change",
        [_field("type", "string"), _field("id", "string"), _field("table", table, optional=True)],
    )
    return _record(
        "io.debezium.connector.mysql.SchemaChangeValue",
        [
            _field("source", _source_schema()),
            _field("ts_ms", "long"),
            *(_field(name, "string", optional=True) for name in ("databaseName", "schemaName", "ddl")),
            _field("tableChanges", {"type": "array", "items": change}),
        ],
    )
