"""Write change events as Debezium's MySQL connector does, from changes described in plain Python."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONNECT_TYPES: Mapping[str, Mapping[str, Any]] = {
    "bigint": {"type": "int64"},
    "int": {"type": "int32"},
    "unsigned": {"type": "int64"},
    "varchar": {"type": "string"},
    "text": {"type": "string"},
    "seconds": {"type": "int64", "name": "io.debezium.time.Timestamp", "version": 1},
    "decimal": {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "12"},
    },
    "datetime": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
    "timestamp": {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1},
    "json": {"type": "string", "name": "io.debezium.data.Json", "version": 1},
}
"""Column type → its schema in Kafka Connect."""

COLUMN_TYPES: Mapping[str, Mapping[str, Any]] = {
    "bigint": {"jdbcType": -5, "typeName": "BIGINT"},
    "int": {"jdbcType": 4, "typeName": "INT"},
    "unsigned": {"jdbcType": 4, "typeName": "INT UNSIGNED"},
    "varchar": {"jdbcType": 12, "typeName": "VARCHAR", "length": 200},
    "text": {"jdbcType": 12, "typeName": "TEXT"},
    "seconds": {"jdbcType": 93, "typeName": "DATETIME", "length": 0},
    "decimal": {"jdbcType": 3, "typeName": "DECIMAL", "length": 12, "scale": 2},
    "date": {"jdbcType": 91, "typeName": "DATE"},
    "datetime": {"jdbcType": 93, "typeName": "DATETIME", "length": 6},
    "timestamp": {"jdbcType": 2014, "typeName": "TIMESTAMP", "length": 6},
    "json": {"jdbcType": 1111, "typeName": "JSON"},
}


@dataclass(frozen=True)
class ColumnSpec:
    """A column of a test table: a name, a key of `COLUMN_TYPES`, and whether NULL is allowed.

    Attributes:
        renamed_from: its first name, if it was renamed.
    """

    name: str
    kind: str
    optional: bool = True
    default: str | None = None
    renamed_from: str | None = None

    @property
    def first_name(self) -> str:
        return self.renamed_from or self.name


@dataclass(frozen=True)
class Place:
    """The position of a change in the binlog."""

    file: int
    pos: int
    row: int = 0
    ts_ms: int = 1_700_000_000_000
    server_id: int = 1
    gtid: str | None = None


def quoted(name: str) -> str:
    """Quote a name for use in a statement."""
    return "`" + name.replace("`", "``") + "`"


def source_block(place: Place, database: str, table: str | None, snapshot: str = "false") -> dict[str, Any]:
    return {
        "version": "3.6.1.Final",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": place.ts_ms,
        "snapshot": snapshot,
        "db": database,
        "sequence": None,
        "ts_us": place.ts_ms * 1000,
        "ts_ns": place.ts_ms * 1_000_000,
        "table": table,
        "server_id": place.server_id,
        "gtid": place.gtid,
        "file": f"mysql-bin.{place.file:06d}",
        "pos": place.pos,
        "row": place.row,
        "thread": 7,
        "query": None,
    }


def change_event(
    op: str,
    place: Place,
    table: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    database: str = "shop",
) -> bytes:
    """Return the value of one change event, JSON without schema."""
    snapshot = "true" if op == "r" else "false"
    value = {
        "before": before,
        "after": after,
        "source": source_block(place, database, table, snapshot),
        "transaction": None,
        "op": op,
        "ts_ms": place.ts_ms + 5,
        "ts_us": (place.ts_ms + 5) * 1000,
        "ts_ns": (place.ts_ms + 5) * 1_000_000,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def key_of(row: Mapping[str, Any], key: Sequence[str]) -> bytes:
    """Return the record key of a row, JSON without schema."""
    return json.dumps({name: row[name] for name in key}, separators=(",", ":")).encode()


def with_key_schema(key: bytes, columns: Sequence[ColumnSpec], names: Sequence[str], name: str) -> bytes:
    """Return a record key as JsonConverter writes it with schemas."""
    by_name = {c.name: c for c in columns}
    fields = [_connect_field(by_name[n]) for n in names]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Key"}
    return _with_schema(schema, key)


def with_value_schema(value: bytes, columns: Sequence[ColumnSpec], name: str) -> bytes:
    """Return a change event as JsonConverter writes it with schemas: the envelope's schema precedes the payload."""
    row = {
        "type": "struct",
        "fields": [_connect_field(c) for c in columns],
        "optional": True,
        "name": f"{name}.Value",
    }
    source = {
        "type": "struct",
        "fields": [
            {"type": "string", "optional": False, "field": "version"},
            {"type": "int64", "optional": False, "field": "ts_ms"},
            {"type": "string", "optional": False, "field": "file"},
            {"type": "int64", "optional": False, "field": "pos"},
            {"type": "int32", "optional": False, "field": "row"},
        ],
        "optional": False,
        "name": "io.debezium.connector.mysql.Source",
        "version": 1,
        "field": "source",
    }
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        source,
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Envelope", "version": 2}
    return _with_schema(schema, value)


def _connect_field(column: ColumnSpec) -> dict[str, Any]:
    field: dict[str, Any] = {**CONNECT_TYPES[column.kind], "optional": column.optional, "field": column.name}
    if column.default is not None:
        field["default"] = column.default if column.kind == "varchar" else float(column.default)
    return field


def _with_schema(schema: Mapping[str, Any], payload: bytes) -> bytes:
    return (
        b'{"schema":' + json.dumps(schema, separators=(",", ":")).encode() + b',"payload":' + payload + b"}"
    )


def schema_change_event(
    place: Place,
    table: str,
    columns: Sequence[ColumnSpec],
    key: Sequence[str],
    *,
    kind: str,
    database: str = "shop",
    ddl: str | None = None,
    old_name: str | None = None,
    snapshot: str = "false",
) -> bytes:
    """Return a record of the schema-change topic; `kind` is CREATE, ALTER or DROP.

    As in Debezium 3.6, only the statement contains the `old_name` of a renamed table.
    """
    if old_name is not None and ddl is None:
        ddl = f"RENAME TABLE {old_name} TO {table}"
    definition = None
    if kind != "DROP":
        definition = {
            "defaultCharsetName": "utf8mb4",
            "primaryKeyColumnNames": list(key),
            "columns": [_column(i, c) for i, c in enumerate(columns, start=1)],
            "comment": None,
        }
    value = {
        "source": source_block(place, database, table, snapshot),
        "ts_ms": place.ts_ms + 5,
        "databaseName": database,
        "schemaName": None,
        "ddl": ddl or f"{kind} TABLE {table} ...",
        "tableChanges": [
            {
                "type": kind,
                "id": f'"{database}"."{table}"',
                "table": definition,
            }
        ],
    }
    return json.dumps(value).encode()


def statement_event(place: Place, table: str, ddl: str) -> bytes:
    """Return a record of the schema-change topic for a statement about an index, which defines no table."""
    record = json.loads(schema_change_event(place, table, (), (), kind="ALTER", ddl=ddl))
    return json.dumps(record | {"tableChanges": []}).encode()


def _column(position: int, column: ColumnSpec) -> dict[str, Any]:
    kind = COLUMN_TYPES[column.kind]
    return {
        "name": column.name,
        "nativeType": None,
        "typeExpression": kind["typeName"],
        "charsetName": None,
        "length": None,
        "scale": None,
        "position": position,
        "optional": column.optional,
        "autoIncremented": False,
        "generated": False,
        "comment": None,
        "hasDefaultValue": column.default is not None or column.optional,
        "defaultValueExpression": column.default,
        "enumValues": [],
        **kind,
    }
