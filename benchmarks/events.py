"""Write Debezium 3.6 change events and schema changes as JSON, with all fields as the connector writes them."""

import json
from collections.abc import Iterator

from benchmarks.workload import DATABASE, DELETE, INSERT, SNAPSHOT, UPDATE, Change, Layout, Row

Schema = dict[str, object]
DDL = (
    "CREATE TABLE `{table}` (\n  `id` bigint NOT NULL,\n  `quantity` int NOT NULL,\n"
    "  `amount` decimal(12,2) NOT NULL,\n  `status` varchar(16) NOT NULL,\n  `note` varchar(120) NOT NULL,\n"
    "  `updated_at` datetime(6) NOT NULL,\n  PRIMARY KEY (`id`)\n"
    ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci"
)
HEADERS: list[tuple[str, str | bytes | None]] = [
    ("__debezium.context.connectorLogicalName", b"bench"),
    ("__debezium.context.taskId", b"0"),
    ("__debezium.context.connectorName", b"mysql"),
    ("__debezium.context.runId", b"01a1fea4-75bd-7815-87ad-c3fc5164cf9b"),
]
OPS = {SNAPSHOT: "r", INSERT: "c", UPDATE: "u", DELETE: "d"}
_GTID_SOURCE = "e95b1ac8-e5bc-11f1-811f-02fc00000001"
_COLUMNS: tuple[tuple[str, int, str, str | None, int | None, int | None], ...] = (
    ("id", -5, "BIGINT", None, None, None),
    ("quantity", 4, "INT", None, None, None),
    ("amount", 3, "DECIMAL", None, 12, 2),
    ("status", 12, "VARCHAR", "utf8mb4", 16, None),
    ("note", 12, "VARCHAR", "utf8mb4", 120, None),
    ("updated_at", 93, "DATETIME", None, 6, None),
)


class EventWriter:
    """Writes the texts of one layout's events; repeated parts are built once."""

    def __init__(self, layout: Layout) -> None:
        self._key_schemas = [_wrap(_key_schema(layout.topic(i)), layout) for i in range(layout.tables)]
        self._value_schemas = [_wrap(_value_schema(layout.topic(i)), layout) for i in range(layout.tables)]
        self._close = "}" if layout.with_schemas else ""
        self._tables = [layout.table(i) for i in range(layout.tables)]
        self._name = layout.prefix

    def key(self, table: int, key: int) -> str:
        """Return the key of a row's events."""
        return f'{self._key_schemas[table]}{{"id":{key}}}{self._close}'

    def value(
        self, table: int, change: Change, before: Row | None, after: Row | None, row_in_event: int = 0
    ) -> str:
        """Return the value of one event; as in Debezium, a row of a snapshot names no transaction."""
        streamed = change.kind != SNAPSHOT
        commit = change.commit_us if streamed else change.commit_us // 1_000_000 * 1_000_000
        seen = commit + 21_653
        server, thread = (223344, "19") if streamed else (0, "null")
        gtid = f'"{_GTID_SOURCE}:{change.transaction + 6}"' if streamed else "null"
        return (
            f'{self._value_schemas[table]}{{"before":{_image(before)},"after":{_image(after)},'
            f'"source":{{"version":"3.6.1.Final","connector":"mysql","name":"{self._name}",'
            f'"ts_ms":{commit // 1000},"snapshot":"{"false" if streamed else "true"}","db":"{DATABASE}",'
            f'"sequence":null,"ts_us":{commit},"ts_ns":{commit}000,"table":"{self._tables[table]}",'
            f'"server_id":{server},"gtid":{gtid},"file":"mysql-bin.{change.file:06d}","pos":{change.pos},'
            f'"row":{row_in_event},"thread":{thread},"query":null}},"transaction":null,"op":"{OPS[change.kind]}",'
            f'"ts_ms":{seen // 1000},"ts_us":{seen},"ts_ns":{seen}287}}{self._close}'
        )


def source_of(change: Change, name: str, table: str, row_in_event: int = 0) -> dict[str, object]:
    """Return the source block of one event as values; `EventWriter` writes the same as text, which is faster."""
    streamed = change.kind != SNAPSHOT
    commit = change.commit_us if streamed else change.commit_us // 1_000_000 * 1_000_000
    return {
        "version": "3.6.1.Final", "connector": "mysql", "name": name, "ts_ms": commit // 1000,
        "snapshot": "false" if streamed else "true", "db": DATABASE, "sequence": None, "ts_us": commit,
        "ts_ns": commit * 1000, "table": table, "server_id": 223344 if streamed else 0,
        "gtid": f"{_GTID_SOURCE}:{change.transaction + 6}" if streamed else None,
        "file": f"mysql-bin.{change.file:06d}", "pos": change.pos, "row": row_in_event,
        "thread": 19 if streamed else None, "query": None,
    }  # fmt: skip


def schema_changes(layout: Layout) -> Iterator[tuple[str, str]]:
    """Yield (key, value) of the records of the schema-change topic, as a connector writes them at its start."""
    create = f"CREATE DATABASE `{DATABASE}` CHARSET utf8mb4 COLLATE utf8mb4_0900_ai_ci"
    yield _schema_change(layout, "", None, "SET character_set_server=utf8mb4", [])
    for index in range(layout.tables):
        table = layout.table(index)
        drop: Schema = {"type": "DROP", "id": f'"{DATABASE}"."{table}"', "table": None}
        yield _schema_change(layout, DATABASE, table, f"DROP TABLE IF EXISTS `{DATABASE}`.`{table}`", [drop])
    for ddl in (f"DROP DATABASE IF EXISTS `{DATABASE}`", create, f"USE `{DATABASE}`"):
        yield _schema_change(layout, DATABASE, None, ddl, [])
    for index in range(layout.tables):
        table = layout.table(index)
        made: Schema = {"type": "CREATE", "id": f'"{DATABASE}"."{table}"', "table": _table_definition()}
        yield _schema_change(layout, DATABASE, table, DDL.format(table=table), [made])


def _image(row: Row | None) -> str:
    if row is None:
        return "null"
    return (
        f'{{"id":{row.id},"quantity":{row.quantity},"amount":{row.amount},"status":"{row.status}",'
        f'"note":"{row.note}","updated_at":{row.updated_us}}}'
    )


def _schema_change(
    layout: Layout, database: str, table: str | None, ddl: str, table_changes: list[Schema]
) -> tuple[str, str]:
    source = {
        "version": "3.6.1.Final", "connector": "mysql", "name": layout.prefix, "ts_ms": 1_767_225_599_000,
        "snapshot": "true", "db": database, "sequence": None, "ts_us": 1_767_225_599_000_000,
        "ts_ns": 1_767_225_599_000_000_000, "table": table, "server_id": 0, "gtid": None,
        "file": "mysql-bin.000001", "pos": 157, "row": 0, "thread": None, "query": None,
    }  # fmt: skip
    value = {
        "source": source, "ts_ms": 1_767_225_599_100, "databaseName": database, "schemaName": None,
        "ddl": ddl, "tableChanges": table_changes,
    }  # fmt: skip
    close = "}" if layout.with_schemas else ""
    key_schema = _struct(
        "io.debezium.connector.mysql.SchemaChangeKey", [_field("string", "databaseName")], version=1
    )
    key = json.dumps({"databaseName": database}, separators=(",", ":"))
    text = json.dumps(value, separators=(",", ":"))
    return (
        f"{_wrap(key_schema, layout)}{key}{close}",
        f"{_wrap(_schema_change_schema(), layout)}{text}{close}",
    )


def _table_definition() -> dict[str, object]:
    columns = [
        {
            "name": name, "jdbcType": jdbc, "nativeType": None, "typeName": type_name,
            "typeExpression": type_name, "charsetName": charset, "length": length, "scale": scale,
            "position": position, "optional": False, "autoIncremented": False, "generated": False,
            "comment": None, "defaultValueExpression": None, "enumValues": None,
        }
        for position, (name, jdbc, type_name, charset, length, scale) in enumerate(_COLUMNS, start=1)
    ]  # fmt: skip
    return {
        "defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": ["id"], "columns": columns, "comment": None,
    }  # fmt: skip


def _field(type_name: str, field: str, *, optional: bool = False, **more: object) -> Schema:
    return {"type": type_name, "optional": optional, **more, "field": field}


def _struct(name: str, fields: list[Schema], *, optional: bool = False, **more: object) -> Schema:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, **more}


def _key_schema(topic: str) -> Schema:
    return _struct(f"{topic}.Key", [_field("int64", "id")])


def _value_schema(topic: str) -> Schema:
    decimal = {"scale": "2", "connect.decimal.precision": "12"}
    columns = [
        _field("int64", "id"),
        _field("int32", "quantity"),
        _field(
            "bytes", "amount", name="org.apache.kafka.connect.data.Decimal", version=1, parameters=decimal
        ),
        _field("string", "status"),
        _field("string", "note"),
        _field("int64", "updated_at", name="io.debezium.time.MicroTimestamp", version=1),
    ]
    transaction = [
        _field("string", "id"), _field("int64", "total_order"), _field("int64", "data_collection_order"),
    ]  # fmt: skip
    fields = [
        _struct(f"{topic}.Value", columns, optional=True, field="before"),
        _struct(f"{topic}.Value", columns, optional=True, field="after"),
        _source_schema(),
        _struct("event.block", transaction, optional=True, version=1, field="transaction"),
        _field("string", "op"),
        *(_field("int64", name, optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return _struct(f"{topic}.Envelope", fields, version=2)


def _source_schema() -> Schema:
    allowed = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    fields = [
        *(_field("string", name) for name in ("version", "connector", "name")),
        _field("int64", "ts_ms"),
        {
            "type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1,
            "parameters": {"allowed": allowed}, "default": "false", "field": "snapshot",
        },
        _field("string", "db"),
        _field("string", "sequence", optional=True),
        _field("int64", "ts_us", optional=True),
        _field("int64", "ts_ns", optional=True),
        _field("string", "table", optional=True),
        _field("int64", "server_id"),
        _field("string", "gtid", optional=True),
        _field("string", "file"),
        _field("int64", "pos"),
        _field("int32", "row"),
        _field("int64", "thread", optional=True),
        _field("string", "query", optional=True),
    ]  # fmt: skip
    return _struct("io.debezium.connector.mysql.Source", fields, version=1, field="source")


def _schema_change_schema() -> Schema:
    texts = ("typeExpression", "charsetName")
    column = _struct(
        "io.debezium.connector.schema.Column",
        [
            _field("string", "name"),
            _field("int32", "jdbcType"),
            _field("int32", "nativeType", optional=True),
            _field("string", "typeName"),
            *(_field("string", name, optional=True) for name in texts),
            *(_field("int32", name, optional=True) for name in ("length", "scale")),
            _field("int32", "position"),
            *(
                _field("boolean", name, optional=True)
                for name in ("optional", "autoIncremented", "generated")
            ),
            *(_field("string", name, optional=True) for name in ("comment", "defaultValueExpression")),
            _array(_plain_string(), "enumValues", optional=True),
        ],
        version=1,
    )
    table = _struct(
        "io.debezium.connector.schema.Table",
        [
            _field("string", "defaultCharsetName", optional=True),
            _array(_plain_string(), "primaryKeyColumnNames", optional=True),
            _array(column, "columns"),
            _field("string", "comment", optional=True),
        ],
        optional=True,
        version=1,
        field="table",
    )
    change = _struct(
        "io.debezium.connector.schema.Change",
        [_field("string", "type"), _field("string", "id"), table],
        version=1,
    )
    fields = [
        _source_schema(),
        _field("int64", "ts_ms"),
        *(_field("string", name, optional=True) for name in ("databaseName", "schemaName", "ddl")),
        _array(change, "tableChanges"),
    ]
    return _struct("io.debezium.connector.mysql.SchemaChangeValue", fields, version=1)


def _plain_string() -> Schema:
    return {"type": "string", "optional": False}


def _array(items: Schema, field: str, *, optional: bool = False) -> Schema:
    return {"type": "array", "items": items, "optional": optional, "field": field}


def _wrap(schema: Schema, layout: Layout) -> str:
    """Return the text before a payload: empty, or the schema and the name of the payload."""
    return f'{{"schema":{json.dumps(schema, separators=(",", ":"))},"payload":' if layout.with_schemas else ""
